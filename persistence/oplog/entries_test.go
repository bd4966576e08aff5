package oplog

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// beginType is the type of entries with which reigns begin.
const beginType = 7

// shardOptions returns the options of a replicated log whose entries of type 0 are sections.
func shardOptions(fsys vfs.FS) Options {
	o := testOptions(fsys)
	o.Sections = func(e *Entry) (from, to int, begins bool, err error) {
		if e.Type != 0 {
			return 0, 0, e.Type == beginType, nil
		}
		return 0, len(e.Data), false, nil
	}
	return o
}

// entry is an entry with a section of partition 0 whose sequence is the index.
func entry(index, term uint64) Entry {
	return Entry{Index: index, Term: term, Data: AppendSection(nil, 0, index, fmt.Appendf(nil, "t%d", term))}
}

// span makes entries with indices from one to another.
func span(from, to, term uint64) (es []Entry) {
	for i := from; i <= to; i++ {
		es = append(es, entry(i, term))
	}
	return es
}

func mustAppend(t testing.TB, l *Log, es []Entry) {
	t.Helper()
	if err := l.AppendEntries(es, 0); err != nil {
		t.Fatal(err)
	}
}

func mustDelete(t testing.TB, l *Log, lo, hi uint64) {
	t.Helper()
	if err := l.DeleteEntries(lo, hi); err != nil {
		t.Fatal(err)
	}
}

// entriesOf renders a replicated log: what was applied, and runs of entries by term.
func entriesOf(t testing.TB, l *Log) string {
	t.Helper()
	s := fmt.Sprint("applied ", l.Applied())
	first, last := l.EntryBounds()
	term := uint64(0)
	for i := first; i <= last && i > 0; i++ {
		var e Entry
		if err := l.Entry(i, &e); err != nil || e.Index != i {
			t.Fatal(i, e, err)
		}
		if e.Term != term {
			s += fmt.Sprintf(", %d… of term %d", i, e.Term)
		}
		term = e.Term
	}
	if last > 0 {
		s += fmt.Sprint(" to ", last)
	}
	for _, i := range []uint64{0, first - 1, last + 1} {
		var e Entry
		if err := l.Entry(i, &e); !errors.Is(err, ErrNoEntry) {
			t.Fatal(i, err)
		}
	}
	return s
}

// TestEntries appends, cuts, voids and gives up entries, and opens the log again after
// each step: it has what it had.
func TestEntries(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, shardOptions(mem))
	var e Entry
	for _, step := range []struct {
		do        func()
		want, log string
	}{
		{func() {}, "applied 0", ""},
		{func() { mustAppend(t, l, span(1, 5, 1)) }, "applied 0, 1… of term 1 to 5", ""},
		{func() { l.SetApplied(3); mustAppend(t, l, span(6, 6, 2)) }, "applied 3, 1… of term 1, 6… of " +
			"term 2 to 6", "1=t1 2=t1 3=t1 "},
		{func() { mustDelete(t, l, 5, 9) }, "applied 3, 1… of term 1 to 4", "1=t1 2=t1 3=t1 "},
		{func() { mustAppend(t, l, span(5, 8, 3)) }, "applied 3, 1… of term 1, 5… of term 3 to 8",
			"1=t1 2=t1 3=t1 "},
		{func() { l.SetApplied(7); mustDelete(t, l, 8, 8) }, "applied 7, 1… of term 1, 5… of term 3 to 7",
			"1=t1 2=t1 3=t1 4=t1 5=t3 6=t3 7=t3 "},
		{func() { l.SetApplied(20); mustDelete(t, l, 1, 7) }, "applied 20", "1=t1 2=t1 3=t1 4=t1 5=t3 " +
			"6=t3 7=t3 "},
		{func() { mustAppend(t, l, span(21, 22, 4)) }, "applied 20, 21… of term 4 to 22",
			"1=t1 2=t1 3=t1 4=t1 5=t3 6=t3 7=t3 "},
		{func() { l.SetApplied(30); mustAppend(t, l, span(31, 31, 5)) }, "applied 30, 31… of term 5 to 31",
			"1=t1 2=t1 3=t1 4=t1 5=t3 6=t3 7=t3 "},
		{func() { mustDelete(t, l, 31, 31) }, "applied 30", "1=t1 2=t1 3=t1 4=t1 5=t3 6=t3 7=t3 "},
	} {
		step.do()
		expect(t, "entries", entriesOf(t, l), step.want)
		mustClose(t, l)
		l = mustOpen(t, shardOptions(mem))
		expect(t, "entries after a start", entriesOf(t, l), step.want)
		expect(t, "sections", logOf(t, l, 0, 0), step.log)
	}
	full := Entry{Index: 31, Term: 9, Type: 5, Data: []byte("data"), Extensions: []byte("more"),
		AppendedAt: time.Unix(7, 8)}
	mustAppend(t, l, []Entry{full})
	mustClose(t, l)
	l = mustOpen(t, shardOptions(mem))
	if err := l.Entry(31, &e); err != nil || fmt.Sprint(e) != fmt.Sprint(full) {
		t.Fatal(e, err)
	}
	mustClose(t, l)
	if _, err := tryOpen(testOptions(mem)); !errors.Is(err, ErrReplicated) {
		t.Fatal("a node without a cluster opened it:", err)
	}
	o := testOptions(mem)
	o.Salvage = true // which takes nothing that it cannot read for damage
	if _, err := OpenReadOnly(o); !errors.Is(err, ErrReplicated) {
		t.Fatal("what counts in a shard's log is not known here:", err)
	}
}

// TestEntryOrder: what would leave a gap or take back what was applied is refused, and
// changes nothing.
func TestEntryOrder(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, shardOptions(mem))
	defer func() { mustClose(t, l) }()
	mustAppend(t, l, span(1, 9, 1))
	l.SetApplied(4)
	foreign := Entry{Index: 10, Term: 1, Data: AppendSection(nil, 16, 1, nil)}
	torn := Entry{Index: 10, Term: 1, Data: []byte{sectionKind, 0}}
	for name, err := range map[string]error{
		"applied":         l.AppendEntries(span(4, 4, 2), 0),
		"not deleted":     l.AppendEntries(span(9, 9, 2), 0),
		"a gap":           l.AppendEntries(span(11, 11, 2), 0),
		"a gap within":    l.AppendEntries([]Entry{entry(10, 1), entry(12, 1)}, 0),
		"index 0":         l.AppendEntries([]Entry{{}}, 0),
		"cut of applied":  l.DeleteEntries(4, 9),
		"the middle":      l.DeleteEntries(5, 6),
		"needed entries":  l.DeleteEntries(1, 5),
		"no partition":    l.AppendEntries([]Entry{foreign}, 0),
		"half a section":  l.AppendEntries([]Entry{torn}, 0),
		"an entry to big": l.AppendEntries([]Entry{{Index: 10, Type: 1, Data: make([]byte, MaxEntry+1)}}, 0),
	} {
		if err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	mustDelete(t, l, 20, 30)
	mustDelete(t, l, 3, 2)
	expect(t, "entries", entriesOf(t, l), "applied 4, 1… of term 1 to 9")
	l.SetApplied(30)
	for _, index := range []uint64{10, 20, 32} {
		if err := l.AppendEntries(span(index, index, 3), 0); err == nil {
			t.Fatal("an entry that does not follow the state that came from elsewhere:", index)
		}
	}
	if err := l.Failure(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Append(AppendSection(nil, 0, 1, nil)); !errors.Is(err, disk.ErrFailed) ||
		!errors.Is(err, ErrReplicated) {
		t.Fatal("a record of the node's own between entries:", err)
	}
}

// TestCopyOfEntries: the copy of a replicated log has what was applied, in order and by
// whole entries, and no entries: a node without a cluster opens it.
func TestCopyOfEntries(t *testing.T) {
	mem := vfs.NewMem()
	o := shardOptions(mem)
	o.FileSize = 10 << 10
	l := mustOpen(t, o)
	mustCommit(t, l, func(b *Batch) { // of the time before
		b.AppendLog(0, 1, []byte("own"))
		b.AppendLog(1, 1, []byte("too"))
	})
	l.SetApplied(1)
	for i := uint64(2); i < 40; i++ {
		e := entry(i, 1)
		e.Data = AppendSection(e.Data, 1, i, make([]byte, 2000))
		mustAppend(t, l, []Entry{e, {Index: i + 1, Term: 1, Type: 1, Data: []byte("noop")}})
		mustDelete(t, l, i+1, i+1)
		l.SetApplied(i)
	}
	mustAppend(t, l, span(40, 41, 1))
	l.SetApplied(40)
	if err := l.CopyCommitted("copy/log", "copy"); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, span(42, 42, 1))
	mustClose(t, l)
	o = testOptions(mem)
	o.Dir, o.MarkDir = "copy/log", "copy"
	l = mustOpen(t, o)
	want := "1=own "
	for i := 2; i <= 40; i++ {
		want += fmt.Sprintf("%d=t1 ", i)
	}
	expect(t, "sections", logOf(t, l, 0, 0), want)
	if first, last, _ := l.Bounds(1); first != 1 || last != 39 {
		t.Fatal(first, last)
	}
	mustClose(t, l)
}

// countingFS counts how often files are opened to be read.
type countingFS struct {
	vfs.FS
	opened atomic.Int64
}

func (c *countingFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	c.opened.Add(1)
	return c.FS.Open(name, o...)
}

// TestEntriesAreReadAhead: who reads one entry after the other has many read at once, and never
// gets one that was deleted since.
func TestEntriesAreReadAhead(t *testing.T) {
	fsys := &countingFS{FS: vfs.NewMem()}
	l := mustOpen(t, shardOptions(fsys))
	mustAppend(t, l, span(1, 2000, 1))
	l.SetApplied(1000)
	mustAppend(t, l, span(2001, 2001, 1))
	mustClose(t, l)
	l = mustOpen(t, shardOptions(fsys))
	defer mustClose(t, l)
	read := func(index, term uint64) {
		t.Helper()
		var e Entry
		if err := l.Entry(index, &e); err != nil || !bytes.Equal(e.Data, entry(index, term).Data) ||
			e.Term != term {
			t.Fatalf("entry %d: %+v %v", index, e, err)
		}
	}
	before := fsys.opened.Load()
	for i := uint64(1); i <= 1500; i++ {
		read(i, 1)
	}
	if opened := fsys.opened.Load() - before; opened > 20 {
		t.Errorf("files are opened %d times for 1500 entries", opened)
	}
	mustDelete(t, l, 1501, 2001)
	mustAppend(t, l, span(1501, 1600, 2))
	for i := uint64(1601); i < 1601+17; i++ { // the newest take the place of these in the cache
		e := entry(i, 2)
		e.Type, e.Data = 1, make([]byte, 1<<20)
		mustAppend(t, l, []Entry{e})
	}
	for i := uint64(1501); i <= 1600; i++ {
		read(i, 2)
	}
}

// TestTail: what is committed is seen in order, from a sequence on, whatever was cut or is not
// applied yet, and while the log is written.
func TestTail(t *testing.T) {
	o := shardOptions(vfs.NewMem())
	o.FileSize = 4 << 10
	l := mustOpen(t, o)
	defer mustClose(t, l)
	tail := func(from uint64) (s string) {
		t.Helper()
		err := l.Tail(0, from, func(seq uint64, content []byte) error {
			s += fmt.Sprintf("%d=%s ", seq, content)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mustAppend(t, l, span(1, 5, 1))
	expect(t, "nothing is applied", tail(1), "")
	l.SetApplied(3)
	expect(t, "some are applied", tail(2), "2=t1 3=t1 ")
	mustDelete(t, l, 4, 5)
	mustAppend(t, l, span(4, 6, 2))
	l.SetApplied(5)
	expect(t, "some were cut", tail(3), "3=t1 4=t2 5=t2 ")
	for i := uint64(7); i < 400; i++ { // several files
		mustAppend(t, l, span(i, i, 3))
	}
	l.SetApplied(399)
	expect(t, "the end", tail(398), "398=t3 399=t3 ")
	expect(t, "behind the end", tail(400), "")
	if files, _ := l.Sizes(); files < 3 {
		t.Fatalf("%d files", files)
	}
	if err := l.Trim(0, 390); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	if err := l.Tail(0, 391, func(uint64, []byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("it ends with %v", err)
	}
	other := 0
	if err := l.Tail(1, 0, func(uint64, []byte) error { other++; return nil }); err != nil || other > 0 {
		t.Errorf("%d sections of a partition that has none: %v", other, err)
	}
}
