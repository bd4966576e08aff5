package regions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// smallLogs makes regions keep next to nothing of their logs for others.
func smallLogs(t testing.TB, all []*region) {
	for _, r := range all {
		r.close()
		r.logFile, r.backlog = 1<<10, 1
		r.open()
		must(t, r.s.Snapshot())
	}
}

// readEach lets each region read all others.
func readEach(all []*region, change func(*Options)) {
	for _, r := range all {
		peers := make(map[part.Region]string)
		for i, o := range all {
			if i != r.n {
				peers[part.Region(i)] = o.server.address()
			}
		}
		r.start(peers, change)
	}
}

// agree waits until all regions have taken everything, and expects them to have the same.
func agree(t testing.TB, all []*region) {
	t.Helper()
	for _, r := range all {
		eventually(t, fmt.Sprintf("region %d agrees with the others", r.n), func() bool {
			differ, err := r.mesh.Verify(context.Background())
			must(t, err)
			for _, d := range differ {
				if d.Err == nil {
					t.Fatalf("region %d and %d differ in the slots %d to %d", r.n, d.Region, d.First, d.Last)
				}
			}
			return len(differ) == 0
		})
	}
}

func (r *region) exchanges() (n uint64) {
	for _, s := range r.mesh.Status() {
		n += s.StateExchanges
	}
	return n
}

// TestStateOverGap: a region that was away until logs do not reach back any more takes the states, page by
// page, and goes on with the logs. Operations that were sent twice meanwhile count once.
func TestStateOverGap(t *testing.T) {
	all := newRegions(t, 4, 2, 8)
	smallLogs(t, all)
	small := func(o *Options) { o.Most = 2000 }
	readEach(all, small)
	a, b, c := all[0], all[1], all[2]
	a.once("gone", "op", 5)
	agree(t, all)
	must(t, b.mesh.Close())
	for i := range 300 {
		a.once(fmt.Sprint("k", i), "a", 1)
		if i%3 == 0 {
			b.once(fmt.Sprint("k", i), "a", 1) // the same operation
			b.once(fmt.Sprint("k", i), "b", 2)
		}
	}
	a.do(store.Op{Kind: store.Del, Keys: [][]byte{[]byte("gone")}})
	a.do(store.Op{Kind: store.Set, Key: []byte("set"), Delta: 7})
	for round := range 2 { // the log reaches back to the snapshot before
		must(t, a.s.Snapshot())
		for i := range 50 {
			a.once(fmt.Sprint("l", i), fmt.Sprint(round), 1)
		}
	}
	b.start(map[part.Region]string{0: a.server.address(), 2: c.server.address()}, small)
	c.once("k1", "c", 3)
	agree(t, all)
	// nothing is trimmed any more
	if n, ranges := b.of(0).StateExchanges, len(b.of(0).Ranges); n == 0 || n > uint64(ranges) {
		t.Errorf("b took %d states of a, for %d ranges", n, ranges)
	}
	for _, r := range all {
		for key, want := range map[string]int64{"k0": 3, "k1": 4, "k299": 1, "gone": 0, "set": 7} {
			if got := r.value(key); got != want {
				t.Errorf("region %d: %s is %d, and should be %d", r.n, key, got, want)
			}
		}
		if op := r.once("k3", "a", 1); op.Applied {
			t.Errorf("region %d applies an operation that it has been told of", r.n)
		}
	}
	eventually(t, "b has noted that it has the states", func() bool {
		return !slices.ContainsFunc(b.of(0).Ranges, func(r RangeStatus) bool {
			return r.Error != "" || r.State != ""
		})
	})
	before := b.exchanges()
	a.once("after", "op", 1)
	eventually(t, "b goes on with the log", func() bool { return b.value("after") == 1 })
	if b.exchanges() != before {
		t.Error("b took another state")
	}
}

// TestNewcomerWaits: a region that has taken nothing takes no state before all others know it.
func TestNewcomerWaits(t *testing.T) {
	var all []*region
	for i := range 3 {
		r := &region{t: t, n: i, partitions: 2, fs: vfs.NewMem()}
		r.open()
		t.Cleanup(func() { r.close() })
		mode := store.Exact
		must(t, r.s.AlterTable(store.DefaultTable, store.TableChange{Mode: &mode}))
		all = append(all, r)
	}
	a, b, c := all[0], all[1], all[2]
	must(t, a.s.SetRegions(setOf(all, 0)))
	must(t, b.s.SetRegions(setOf(all[:2], 1)))
	must(t, c.s.SetRegions(setOf(all, 2)))
	a.once("k", "a", 1)
	a.start(map[part.Region]string{1: b.server.address(), 2: c.server.address()}, nil)
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	c.start(map[part.Region]string{0: a.server.address(), 1: b.server.address()}, nil)
	eventually(t, "c waits for b", func() bool {
		s := c.of(0)
		return len(s.Ranges) > 0 && strings.Contains(s.Ranges[0].Error, `"region1" has not answered`) &&
			s.LastError == s.Ranges[0].Error
	})
	if n, v := c.exchanges(), c.value("k"); n != 0 || v != 0 {
		t.Errorf("c has taken %d states although b does not know it; k is %d", n, v)
	}
	must(t, b.s.SetRegions(setOf(all, 1)))
	must(t, b.mesh.SetPeers(map[part.Region]string{0: a.server.address(), 2: c.server.address()}))
	eventually(t, "c has the state", func() bool { return c.value("k") == 1 })
	agree(t, all)
}

// TestVerify: regions that differ are told where; one that cannot be compared is told as such.
func TestVerify(t *testing.T) {
	all := newRegions(t, 2, 4)
	a, b := all[0], all[1]
	lie, told := false, new(Told)
	liar := fakeSource(t, func(args [][]byte) string {
		var w resp.Writer
		b.server.source.Pull(b.server.ctx, told, args[1:], &w)
		reply := w.Bytes()
		if string(args[1]) == wordDigest && lie {
			reply[len(reply)-4]++ // the sum of the last group, which has no keys
		}
		return string(reply)
	})
	a.start(map[part.Region]string{1: liar}, func(o *Options) { o.Block = 50 * time.Millisecond })
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	for i := range 50 {
		a.once(fmt.Sprint("k", i), "a", 1)
		b.once(fmt.Sprint("k", i), "b", 1)
	}
	agree(t, all)
	lie = true
	differ, err := a.mesh.Verify(context.Background())
	must(t, err)
	var at []string
	for _, d := range differ {
		at = append(at, fmt.Sprint(d.Region, " ", d.First, "-", d.Last, " ", d.Err))
	}
	if got, want := strings.Join(at, ", "),
		"1 4080-4095 <nil>, 1 8176-8191 <nil>, 1 12272-12287 <nil>, 1 16368-16383 <nil>"; got != want {
		t.Errorf("they differ at %s; want %s", got, want)
	}
	must(t, b.mesh.Close()) // from now on it takes nothing
	a.once("new", "a", 1)
	slot := store.Slot([]byte("new"))
	differ, err = a.mesh.Verify(context.Background())
	must(t, err)
	// Of its group one bucket was not compared, and another one is the last one, of which the other
	// side lies.
	if n := len(differ); n != 6 || !errors.Is(differ[5].Err, ErrBusy) || differ[5].First > slot ||
		differ[5].Last < slot || differ[5].Last-differ[5].First >= groupSlots {
		t.Errorf("slot %d: %v", slot, differ)
	}

	a.mesh.Pause(1)
	lie = false
	differ, err = a.mesh.Verify(context.Background())
	must(t, err)
	if len(differ) != 1 || !errors.Is(differ[0].Err, ErrPaused) || differ[0].First > slot ||
		differ[0].Last < slot {
		t.Errorf("paused: %v", differ)
	}
}

// TestVerifyOnce: slots that differ when their buckets are looked at first, and not again, do not.
func TestVerifyOnce(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b := all[0], all[1]
	told, asked := new(Told), 0
	liar := fakeSource(t, func(args [][]byte) string {
		var w resp.Writer
		b.server.source.Pull(b.server.ctx, told, args[1:], &w)
		reply := w.Bytes()
		if string(args[1]) == wordDigest {
			if asked++; asked <= 2 {
				reply[len(reply)-4]++
			}
		}
		return string(reply)
	})
	a.start(map[part.Region]string{1: liar}, func(o *Options) { o.Block = 50 * time.Millisecond })
	eventually(t, "a has asked", func() bool { return a.of(1).Connected })
	if differ, err := a.mesh.Verify(t.Context()); err != nil || len(differ) > 0 || asked != 3 {
		t.Errorf("%v, %v; asked %d times", differ, err, asked)
	}
}

// TestVerifyWhileWritten: what is written all the time may not be comparable, and all else is compared.
func TestVerifyWhileWritten(t *testing.T) {
	all := newRegions(t, 2, 4)
	a, b := all[0], all[1]
	a.start(map[part.Region]string{1: b.server.address()}, nil)
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	for i := range 50 {
		a.once(fmt.Sprint("k", i), "a", 1)
		b.once(fmt.Sprint("k", i), "b", 1)
	}
	agree(t, all)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				all[i%2].once("hot", fmt.Sprint("op", i), 1)
			}
		}
	}()
	slot := store.Slot([]byte("hot"))
	for range 2 {
		differ, err := a.mesh.Verify(t.Context())
		must(t, err)
		if len(differ) > 1 || len(differ) == 1 &&
			(!errors.Is(differ[0].Err, ErrBusy) || differ[0].First > slot || differ[0].Last < slot ||
				differ[0].Last-differ[0].First >= groupSlots) {
			t.Errorf("slot %d is written; not compared: %v", slot, differ)
		}
	}
	close(stop)
	<-done
	agree(t, all)
}

// TestVerifyRest: one that cannot be asked, and one that is paused, are told, each by its reason.
func TestVerifyRest(t *testing.T) {
	all := newRegions(t, 2, 2, 2)
	all[0].start(map[part.Region]string{1: "127.0.0.1:1", 2: all[2].server.address()}, nil)
	all[0].mesh.Pause(2)
	all[2].once("k", "a", 1)
	differ, err := all[0].mesh.Verify(t.Context())
	must(t, err)
	if len(differ) != 2 || differ[0].Region != 1 ||
		!strings.Contains(fmt.Sprint(differ[0].Err), "it cannot be asked at 127.0.0.1:1") ||
		differ[1].Region != 2 || !errors.Is(differ[1].Err, ErrPaused) {
		t.Errorf("%v", differ)
	}
}
