package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reopenAs starts a region from a copy of its directory.
func (w *testRegions) reopenAs(r *testRegion, fs vfs.FS) {
	must(w.t, r.s.CloseNow())
	r.fs = fs
	w.open(r)
}

// copied returns a copy of a region's directory, as it is when its process has ended.
func (w *testRegions) copied(r *testRegion) vfs.FS {
	w.t.Helper()
	must(w.t, r.s.CloseNow())
	fs := vfs.NewMem()
	if ok, err := vfs.Clone(r.fs, fs, "data", "data"); !ok || err != nil {
		w.t.Fatal(ok, err)
	}
	w.open(r)
	return fs
}

// TestWentBack: a region whose directory was put back from a copy is fenced for good, whichever way it hears that
// another one has taken more: clients' writes are refused, and others do not read it, also after a start and however
// much it takes. It goes on if all others are lost.
func TestWentBack(t *testing.T) {
	for _, parts := range [][2]int{{1, 1}, {4, 2}, {1, 4}} {
		for _, how := range []string{"is asked", "reads a log", "takes a state"} {
			t.Run(fmt.Sprint(how, parts), func(t *testing.T) { testWentBack(t, how, parts) })
		}
	}
}

func testWentBack(t *testing.T, how string, parts [2]int) {
	w := newTestRegions(t, 1, parts[0], parts[1])
	a, b := w.r[0], w.r[1]
	key, n := []byte("k"), Slot([]byte("k"))
	incr := func(r *testRegion) error { return do(r.s, Op{Kind: IncrBy, Key: key, Delta: 1}).Err }
	must(t, incr(a))
	must(t, incr(b))
	w.drain()
	known, old := a.s.Meta(), w.copied(a)
	for range 9 {
		must(t, incr(a))
	}
	w.drain()
	w.reopenAs(a, old)
	if how != "is asked" {
		must(t, incr(a)) // it knows nothing yet
	}
	finer := max(a.parts, b.parts)
	first, _ := slotRange(int(n)*finer/slots, finer)
	ask := func() error { // for what b has not taken
		after, _, err := b.s.TakenOf(first>>b.s.shift, RegionSource{0, first >> a.s.shift})
		must(t, err)
		last, _, _ := pullRange(int(first>>a.s.shift), a.parts, b.parts, first)
		_, err = a.s.Pull(Pull{By: 1, Group: 77, Incarnation: known.Incarnation, Partition: first >> a.s.shift, First: first, Last: last, After: after, Acked: after})
		return err
	}
	read := func() (err error) { // by a, of b
		answer, err := w.pull(a, b, first>>b.s.shift, first, 0)
		must(t, err)
		_, err = a.s.Take(answer)
		return err
	}
	var err error
	switch how {
	case "is asked":
		err = ask()
	case "reads a log":
		err = read()
	case "takes a state":
		last, _, _ := pullRange(int(first>>b.s.shift), b.parts, a.parts, first)
		page, failed := b.s.State(StateQuery{By: 0, Of: 1, Group: 77, Incarnation: b.s.Meta().Incarnation, Partition: first >> b.s.shift, First: first, Last: last, Most: 1000})
		must(t, failed)
		_, err = a.s.TakeState(page)
	}
	if !errors.Is(err, ErrStream) {
		t.Fatalf("it goes on: %v", err)
	}
	fenced := a.s.Meta()
	if fenced.Incarnation == known.Incarnation || fenced.ID != known.ID {
		t.Fatalf("it was %+v, and is %+v", known, fenced)
	}
	for range 3 {
		if err := incr(a); !errors.Is(err, ErrRestored) {
			t.Errorf("a write: %v", err)
		}
		if err := ask(); !errors.Is(err, ErrStream) {
			t.Errorf("it is read: %v", err)
		}
		must(t, incr(b))
		must(t, read()) // what others do it takes
		must(t, a.s.Snapshot())
		must(t, a.s.CloseNow())
		w.open(a)
		if m := a.s.Meta(); m != fenced {
			t.Errorf("it was %+v, and is %+v", fenced, m)
		}
	}
	set, _ := a.s.Regions()
	set, err = set.Remove(0, 1)
	must(t, err)
	set.Members[0].Incarnation = fenced.Incarnation
	must(t, a.s.SetRegions(set))
	must(t, incr(a))
}
