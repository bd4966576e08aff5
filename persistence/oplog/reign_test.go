package oplog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// begin is an entry with which a reign begins.
func begin(index, term uint64) Entry { return Entry{Index: index, Term: term, Type: beginType} }

// TestFirstReignIsCut: when the beginning of the first reign is cut, the entries that come instead
// are of none.
func TestFirstReignIsCut(t *testing.T) {
	l := mustOpen(t, shardOptions(vfs.NewMem()))
	defer func() { mustClose(t, l) }()
	mustAppend(t, l, []Entry{entry(1, 1), begin(2, 1)})
	mustDelete(t, l, 2, 2)
	mustAppend(t, l, []Entry{entry(2, 2)})
	l.SetApplied(2)
	if got := l.Reign(); got != (Reign{}) {
		t.Errorf("the reign is %v, whose beginning was cut", got)
	}
}

// TestReigns: each entry is of the latest reign that began up to it: behind a cut, in the other
// files once the one that has the beginning is gone, and after a start. Two reigns of one term are
// two.
func TestReigns(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, shardOptions(mem))
	defer func() { mustClose(t, l) }()
	want := map[uint64]Reign{}
	is := func(r Reign, indices ...uint64) {
		for _, i := range indices {
			want[i] = r
		}
	}
	check := func(what string) {
		t.Helper()
		first, last := l.EntryBounds()
		for i := first; i <= last; i++ {
			var e Entry
			if err := l.Entry(i, &e); err != nil || e.Reign != want[i] {
				t.Errorf("%s: entry %d is of reign %v (%v), want %v", what, i, e.Reign, err, want[i])
			}
		}
		if got := l.Reign(); got != want[l.Applied()] {
			t.Errorf("%s: as of entry %d the reign is %v, want %v", what, l.Applied(), got, want[l.Applied()])
		}
	}
	reopen := func() {
		t.Helper()
		mustClose(t, l)
		l = mustOpen(t, shardOptions(mem))
	}
	mustAppend(t, l, []Entry{entry(1, 1), begin(2, 1), entry(3, 1), begin(4, 1), entry(5, 1)})
	is(Reign{}, 1)
	is(Reign{1, 2}, 2, 3)
	is(Reign{1, 4}, 4, 5)
	check("appended")
	l.SetApplied(3)
	mustDelete(t, l, 4, 5)
	check("cut")
	mustAppend(t, l, []Entry{entry(4, 2), begin(5, 2), entry(6, 2)})
	is(Reign{1, 2}, 4)
	is(Reign{2, 5}, 5, 6)
	check("appended behind the cut")
	reopen()
	check("opened")
	l.SetApplied(6)
	mustAppend(t, l, span(7, 60, 2))
	for i := uint64(7); i <= 60; i++ {
		is(Reign{2, 5}, i)
	}
	l.SetApplied(60)
	for len(l.live()) < 3 { // the beginning is in a file that is given up
		_, last := l.EntryBounds()
		es := span(last+1, last+200, 2)
		mustAppend(t, l, es)
		for _, e := range es {
			is(Reign{2, 5}, e.Index)
		}
		l.SetApplied(last + 200)
	}
	_, last := l.EntryBounds()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.Trim(0, last))
	mustDelete(t, l, 1, last-1)
	check("given up")
	reopen()
	if first, _ := l.EntryBounds(); first <= 5 {
		t.Fatalf("entry %d is there", first)
	}
	check("opened without the beginning")
	l.SetApplied(last)
	mustDelete(t, l, 1, last)
	reopen()
	mustAppend(t, l, []Entry{entry(last+1, 3)})
	is(Reign{2, 5}, last+1)
	check("void, and opened")
}
