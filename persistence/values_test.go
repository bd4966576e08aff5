package persistence

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

func mustValues(t testing.TB, fsys vfs.FS) *Values {
	t.Helper()
	v, err := OpenValues(fsys, "data")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustSet(t testing.TB, v *Values, name, value string) {
	t.Helper()
	if err := v.Set(name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// valueOf reads a value.
func valueOf(t testing.TB, v *Values, name string) string {
	t.Helper()
	b, err := v.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestValuesCrash loses the power at every step of everything that writes values: what was
// acknowledged, or was ever read, is never forgotten.
func TestValuesCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for at := 1; ; at += raced.Step {
		mem := vfs.NewCrashableMem()
		acked := 0
		var left []*vfs.MemFS
		var promised []int
		v := mustValues(t, errorfs.Wrap(mem, crashtest.AtOperation(at, func() {
			for _, percent := range []int{0, 30, 50, 50, 70, 100} {
				left, promised = append(left, crashtest.Left(mem, percent, rng)), append(promised, acked)
			}
		})))
		for n := 1; n <= 4; n++ {
			value := fmt.Sprint(n, " ", string(crashtest.Noise[n:][:3000*n])) // several pages
			if n%2 == 0 {
				mustSet(t, v, "vote", value)
			} else if err := errors.Join(v.SetSoon("vote", []byte(value)), v.Settle()); err != nil {
				t.Fatal(err)
			}
			acked = n
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if left == nil {
			return
		}
		for i, fsys := range left {
			v := mustValues(t, fsys)
			seen := 0
			_, _ = fmt.Sscan(valueOf(t, v, "vote"), &seen)
			if seen < promised[i] || seen > promised[i]+1 {
				t.Fatalf("operation %d: vote %d, after %d was acknowledged", at, seen, promised[i])
			}
			again := mustValues(t, crashtest.Left(fsys, 0, rng)) // what was read once may have been answered
			expect(t, "vote after another crash", valueOf(t, again, "vote"), valueOf(t, v, "vote"))
			if err := errors.Join(v.Close(), again.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestValuesRepaired: what was read of one copy is in both, before it is acted upon.
func TestValuesRepaired(t *testing.T) {
	fault := new(crashtest.Fault)
	mem := vfs.NewMem()
	v := mustValues(t, errorfs.Wrap(mem, fault))
	mustSet(t, v, "term", "7")
	fault.Arm(syscall.EIO, crashtest.On(ValuesName, errorfs.OpFileSyncData)) // the first copy is written
	if err := v.Set("term", []byte("8")); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	_ = v.Close()
	v = mustValues(t, mem)
	expect(t, "term", valueOf(t, v, "term"), "8")
	_ = v.Close()
	if err := crashtest.Flip(mem, "data/"+ValuesName, 9); err != nil {
		t.Fatal(err)
	}
	v = mustValues(t, mem)
	expect(t, "term", valueOf(t, v, "term"), "8")
	_ = v.Close()
}

// TestValuesRot: a copy that rots changes nothing, whichever it is; two are refused.
func TestValuesRot(t *testing.T) {
	mem := vfs.NewMem()
	v := mustValues(t, mem)
	mustSet(t, v, "term", "7")
	mustSet(t, v, "gone", "x")
	if err := errors.Join(v.Set("gone", nil), v.Close()); err != nil {
		t.Fatal(err)
	}
	flip := func(at int64) {
		if err := crashtest.Flip(mem, "data/"+ValuesName, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []int64{0, 9, 15, 17, valuesHeader + 1, valuesHeader + 12} {
		for copy := range int64(2) {
			flip(at + copy*valuesCopy)
			v := mustValues(t, mem)
			if valueOf(t, v, "term") != "7" || valueOf(t, v, "gone") != "" {
				t.Fatal("byte", at, "of copy", copy)
			}
			if err := v.Close(); err != nil { // and it is whole again
				t.Fatal(err)
			}
		}
		for copy := range int64(2) {
			flip(at + copy*valuesCopy)
		}
		if _, err := OpenValues(mem, "data"); !errors.Is(err, ErrCorrupt) {
			t.Fatal("both copies are damaged:", err)
		}
		for copy := range int64(2) {
			flip(at + copy*valuesCopy)
		}
	}
}

// TestValuesFaults: after a failure nothing more is accepted or told; what is too much is
// refused, and nothing has changed.
func TestValuesFaults(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpFileSyncData} {
		fault := new(crashtest.Fault)
		mem := vfs.NewMem()
		v := mustValues(t, errorfs.Wrap(mem, fault))
		mustSet(t, v, "a", "1")
		for name, value := range map[string]string{"": "x", strings.Repeat("n", 256): "x",
			"b": strings.Repeat("x", valuesMost)} {
			for _, set := range []func(string, []byte) error{v.Set, v.SetSoon} {
				if err := set(name, []byte(value)); !errors.Is(err, ErrBadOptions) {
					t.Fatal(err)
				}
			}
		}
		expect(t, "value", valueOf(t, v, "a"), "1")
		fault.Arm(syscall.EIO, crashtest.On(ValuesName, kind))
		if err := v.Set("a", []byte("2")); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		fault.Arm(nil, nil)
		for _, set := range []func(string, []byte) error{v.Set, v.SetSoon} {
			if err := set("a", []byte("3")); !errors.Is(err, ErrFailed) {
				t.Fatal("it is tried again:", err)
			}
		}
		if _, err := v.Get("a"); !errors.Is(err, ErrFailed) {
			t.Fatal("a value that may not be durable is told:", err)
		}
		_ = v.Close()
	}
}

// TestValuesSettle: what could not be made durable later is a failure, too, and is not tried again.
func TestValuesSettle(t *testing.T) {
	fault := new(crashtest.Fault)
	v := mustValues(t, errorfs.Wrap(vfs.NewMem(), fault))
	if err := v.SetSoon("term", []byte("7")); err != nil {
		t.Fatal(err)
	}
	expect(t, "term", valueOf(t, v, "term"), "7")
	fault.Arm(syscall.EIO, crashtest.On(ValuesName, errorfs.OpFileSyncData))
	if err := v.Settle(); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	fault.Arm(nil, nil)
	if err := v.Settle(); !errors.Is(err, ErrFailed) {
		t.Fatal("it is tried again:", err)
	}
	_ = v.Close()
}

// TestValuesAreTheNodes: a data directory may have them before all else, one process has
// them at a time, and no backup and no restored directory has them (R9).
func TestValuesAreTheNodes(t *testing.T) {
	dir := t.TempDir()
	v, err := OpenValues(vfs.Default, dir+"/data")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenValues(vfs.Default, dir+"/data"); !errors.Is(err, ErrInUse) {
		t.Fatal("opened twice:", err)
	}
	w, err := OpenWitness(vfs.Default, dir+"/data")
	if err != nil {
		t.Fatal(err)
	}
	db, err := Open(Options{Dir: dir + "/data"})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Backup(dir+"/backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(), v.Close(), w.Close(),
		Restore(vfs.Default, dir+"/data", dir+"/restored", func(_, _ int64) {})); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"/backup/", "/restored/"} {
		for _, name := range []string{ValuesName, WitnessName} {
			if _, err := vfs.Default.Stat(dir + to + name); err == nil {
				t.Fatal(to, "is the same node: it has", name)
			}
		}
	}
}

// FuzzValues: a copy that is taken is written in one way only.
func FuzzValues(f *testing.F) {
	v := Values{generation: 3, values: map[string][]byte{"a": []byte("1"), "bb": {}}}
	f.Add(v.encode(v.values))
	f.Fuzz(func(t *testing.T, b []byte) {
		content := make([]byte, valuesCopy)
		copy(content, b)
		generation, values, ok := decodeValues(content)
		if !ok {
			return
		}
		v := Values{generation: generation}
		if again := v.encode(values); string(again) != string(content[:len(again)]) {
			t.Fatalf("%x is written as %x", b, again)
		}
	})
}
