package fbf_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
)

// A Set has a lock and a clock of its own, and keeps to its window and its bound of
// memory by itself.
func ExampleSet() {
	seen, err := fbf.NewSet(2*time.Minute, 1e-6, fbf.WithMaxMemory(64<<20))
	if err != nil {
		fmt.Println(err)
		return
	}
	counter := 0
	for _, opid := range []string{"op-1", "op-2", "op-1"} { // the last is a retry
		if !seen.Seen(opid) {
			counter++
		}
	}
	fmt.Println(counter, seen.Stats().Items)
	// Output: 2 2
}

func ExampleNewSet() {
	seen, _ := fbf.NewSet(2*time.Minute, 1e-6)
	fmt.Println(seen.Seen("op-1"))
	fmt.Println(seen.Seen("op-1"))
	// Output:
	// false
	// true
}

// An owner that has a lock, a clock and a log of its own drives a Filter by hand. Before it
// inserts, it plans, logs and applies what is due.
func ExampleFilter() {
	f, err := fbf.New(fbf.Options{Window: 120_000, Error: 1e-6}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Release()
	grant := func(bytes uint64) bool { return true } // memory is not scarce here
	hasher := fbf.NewHasher([16]byte{42}, "example") // a real seed is random, and secret

	counter := 0
	increment := func(opid string, now int64) {
		for f.Due(now) {
			e, ok := f.Plan(now, grant)
			if !ok {
				break
			}
			fmt.Println("log:", e.Kind, "at", e.Time)
			if err := f.Apply(e); err != nil {
				fmt.Println(err)
				return
			}
		}
		h := hasher.Hash([]byte("visits"), []byte(opid))
		if f.Contains(h) {
			return
		}
		f.Insert(h, now) // CheckAndInsert does both
		counter++
	}
	increment("op-1", 1_000)
	increment("op-2", 2_000)
	increment("op-1", 90_000)  // a retry
	increment("op-1", 300_000) // too late for one
	fmt.Println(counter)
	// Output:
	// log: rotate at 90000
	// log: expire at 300000
	// 3
}

// A decision is made once, logged, and repeated elsewhere without deciding again.
func ExampleFilter_Apply() {
	o := fbf.Options{Window: 1000, Error: 1e-3}
	live, _ := fbf.New(o, 0)
	copied, _ := fbf.New(o, 0)
	hasher := fbf.NewHasher([16]byte{1}, "example")
	for now := int64(0); now < 5000; now++ {
		for live.Due(now) {
			e, ok := live.Plan(now, func(uint64) bool { return true })
			if !ok {
				break
			}
			logged, _, _ := fbf.DecodeEvent(e.AppendTo(nil))
			fmt.Print(first(live.Apply(e), copied.Apply(logged)))
		}
		h := hasher.Hash([]byte("k"), fmt.Append(nil, now))
		live.Insert(h, now)
		copied.Insert(h, now)
	}
	fmt.Println(live.Len() == copied.Len(), live.Bytes() == copied.Bytes())
	// Output: true true
}

func first(errs ...error) string {
	for _, err := range errs {
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

// A filter is written while it goes on being used, and read back.
func ExampleFilter_NewEncoder() {
	f, _ := fbf.New(fbf.Options{Window: 60_000, Error: 1e-3}, 0)
	f.Insert(7, 10)

	var file bytes.Buffer
	e := f.NewEncoder()
	chunk := make([]byte, 4096)
	for {
		n, err := e.Read(chunk) // under the owner's lock, which is free in between
		file.Write(chunk[:n])
		if err != nil {
			break
		}
	}
	g, err := fbf.Decode(&file, 1<<20)
	fmt.Println(g.Contains(7), g.Contains(8), err)
	// Output: true false <nil>
}
