package oplog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestEntriesFaults: after a write or an fsync that failed nothing more is accepted, and
// nothing that was not durable is shown.
func TestEntriesFaults(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSyncData} {
		for _, what := range []string{"append", "cut", "void"} {
			fault := new(crashtest.Fault)
			mem := vfs.NewCrashableMem()
			l := mustOpen(t, shardOptions(errorfs.Wrap(mem, fault)))
			mustAppend(t, l, span(1, 5, 1))
			do := func() error {
				switch what {
				case "append":
					return l.AppendEntries(span(6, 7, 2), 0)
				case "cut":
					return l.DeleteEntries(4, 5)
				}
				l.SetApplied(9)
				return l.DeleteEntries(1, 5)
			}
			fault.Arm(syscall.EIO, crashtest.On("/log/", kind))
			if err := do(); !errors.Is(err, disk.ErrFailed) || !errors.Is(err, syscall.EIO) {
				t.Fatal(what, err)
			}
			fault.Arm(nil, nil)
			if err := do(); !errors.Is(err, disk.ErrFailed) {
				t.Fatal(what, "is tried again:", err)
			}
			if _, later := fault.Count(); later != 0 {
				t.Fatal(what, "wrote again")
			}
			if first, last := l.EntryBounds(); first != 1 || last != 5 {
				t.Fatal(what, "shows what may not be durable:", first, last)
			}
			_ = l.Close()
			l = mustOpen(t, shardOptions(crashtest.Left(mem, 0, nil)))
			expect(t, "entries after "+what, entriesOf(t, l), "applied 0, 1… of term 1 to 5")
			mustClose(t, l)
		}
	}
}

// TestEntriesOneFsync: entries that are appended at once take one write and one fsync,
// under every policy.
func TestEntriesOneFsync(t *testing.T) {
	for _, policy := range []Fsync{Always, Everysec, No} {
		var mu sync.Mutex
		writes, fsyncs := 0, 0
		o := shardOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if crashtest.On("/log/", errorfs.OpFileWrite)(op) {
				writes++
			} else if crashtest.On("/log/", errorfs.OpFileSync, errorfs.OpFileSyncData)(op) {
				fsyncs++
			}
			return nil
		})))
		o.Fsync = policy
		l := mustOpen(t, manualTicks(o))
		mustAppend(t, l, span(1, 1, 1))
		writes, fsyncs = 0, 0
		mustAppend(t, l, span(2, 9, 1))
		expect(t, "writes", writes, 1)
		expect(t, "fsyncs", fsyncs, 1)
		mustClose(t, l)
	}
}

// TestEntriesRoom: a full disk refuses entries, and nothing has changed; those for which
// room is reserved are appended nevertheless. No reservation leaks.
func TestEntriesRoom(t *testing.T) {
	small := crashtest.NewFullDisk(vfs.NewMem())
	o := shardOptions(small)
	o.FileSize = 64 << 10
	l := mustOpen(t, o)
	next := uint64(1)
	append1 := func(size int, reserved int64) error {
		e := Entry{Index: next, Term: 1, Type: 1, Data: make([]byte, size)}
		err := l.AppendEntries([]Entry{e}, reserved)
		if err == nil {
			next++
		}
		return err
	}
	for round := range 20 {
		const size = 20 << 10
		room := Framed(size+entryMost) + SectionOverhead
		if err := l.Reserve(2 * room); err != nil {
			t.Fatal(err)
		}
		small.Fill(0)
		var err error
		for err == nil {
			err = append1(1000*round+100, 0)
		}
		if !errors.Is(err, disk.ErrNoSpace) || l.Failure() != nil {
			t.Fatal("a full disk:", err, l.Failure())
		}
		if err := append1(size, room); err != nil {
			t.Fatal("what was reserved:", err)
		}
		if err := append1(100<<10, room); !errors.Is(err, disk.ErrNoSpace) {
			t.Fatal(err)
		}
		if _, last := l.EntryBounds(); last != next-1 {
			t.Fatal(last, next)
		}
		small.Fill(-1)
		l.SetApplied(next - 2)
		mustDelete(t, l, 0, next-2)
	}
	var err error
	small.Fill(0)
	for err == nil {
		err = append1(10, 0)
	}
	cuts := 0
	for err = error(nil); err == nil; cuts++ { // they need room, too
		next--
		err = l.DeleteEntries(next, next)
	}
	next++
	if cuts < 20 {
		t.Fatal("entries have left room for", cuts)
	}
	if !errors.Is(err, disk.ErrNoSpace) || l.Failure() != nil {
		t.Fatal(err, l.Failure())
	}
	small.Fill(-1)
	l.mu.Lock()
	if reserved := l.filled - roomMargin - l.pos - l.room.Load(); reserved != 0 {
		t.Errorf("%d bytes stay reserved", reserved)
	}
	l.mu.Unlock()
	mustClose(t, l)
	l = mustOpen(t, o)
	small.Fill(30 << 10) // less than other writes must leave
	_, last := l.EntryBounds()
	next = last + 1
	if err := append1(10<<10, 0); err != nil {
		t.Fatal("there is space for it:", err)
	}
	mustClose(t, l)
}

// TestEntriesRot: an entry that was read from a damaged file is never another one, and
// a log with one is not opened.
func TestEntriesRot(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, shardOptions(mem))
	e := Entry{Index: 1, Term: 1, Type: 1, Data: crashtest.Noise[:3*disk.Block]}
	mustAppend(t, l, []Entry{e})
	mustClose(t, l)
	for _, at := range []int64{headerSize + 4, headerSize + 15, headerSize + 60, 2 * disk.Block,
		3*disk.Block - 1} {
		l = mustOpen(t, shardOptions(mem))
		path := "data/log/" + fileName(1)
		mustFlip(t, mem, path, at)
		var got Entry
		err := l.Entry(1, &got)
		if framing := at%disk.Block < chunkHeader ||
			at < headerSize+chunkHeader; framing == errors.Is(err, disk.ErrCorrupt) {
			t.Errorf("flip at %d: %v", at, err)
		}
		mustClose(t, l)
		if _, err := tryOpen(shardOptions(mem)); !errors.Is(err, disk.ErrCorrupt) {
			t.Errorf("flip at %d: it is opened: %v", at, err)
		}
		mustFlip(t, mem, path, at)
	}
}

// TestEntriesForged: records in an order that the log never writes are damage.
func TestEntriesForged(t *testing.T) {
	entryOf := func(index, applied uint64) []byte {
		e := entry(index, 1)
		return AppendSection(nil, EntryPartition, index, appendEntry(nil, &e, applied))
	}
	mark := func(kind byte, index, applied uint64) []byte {
		return AppendSection(nil, EntryPartition, index, appendMark(nil, kind, applied, Reign{}))
	}
	of := func(index uint64, r Reign, kind uint8) []byte {
		return AppendSection(nil, EntryPartition, index,
			appendEntry(nil, &Entry{Index: index, Term: 1, Type: kind, Reign: r}, 0))
	}
	changed := func(record []byte, at int, to byte) []byte {
		record[sectionHeader+at] = to
		return record
	}
	for name, records := range map[string][][]byte{
		"a gap":                     {entryOf(1, 0), entryOf(3, 0)},
		"an entry again":            {entryOf(1, 0), entryOf(1, 0)},
		"applied runs ahead":        {entryOf(1, 1)},
		"applied goes back":         {entryOf(1, 0), entryOf(2, 1), entryOf(3, 0)},
		"a cut of nothing":          {entryOf(1, 0), mark(kindCut, 2, 0)},
		"a cut of what was applied": {entryOf(1, 0), entryOf(2, 1), mark(kindCut, 0, 1)},
		"a void elsewhere":          {entryOf(1, 0), mark(kindVoid, 3, 2)},
		"a gap behind a void":       {mark(kindVoid, 3, 3), entryOf(5, 3)},
		"an unknown kind":           {changed(mark(kindVoid, 3, 3), 0, 4)},
		"kind 0":                    {changed(entryOf(1, 0), 0, 0)},
		"a cut with flags":          {entryOf(1, 0), changed(mark(kindCut, 0, 0), 1, 1)},
		"unknown flags":             {changed(entryOf(1, 0), 1, 4)},
		"fields cut off": {changed(AppendSection(nil, EntryPartition, 1,
			appendEntry(nil, &Entry{}, 0)), 1, flagTime)},
		"index 0":              {entryOf(0, 0)},
		"a reign nobody began": {entryOf(1, 0), of(2, Reign{1, 1}, 0)},
		"a reign that is over": {of(1, Reign{1, 1}, beginType), of(2, Reign{1, 2}, beginType),
			of(3, Reign{1, 1}, 0)},
		"a beginning of another":   {of(1, Reign{1, 1}, beginType), of(2, Reign{1, 1}, beginType)},
		"a beginning that is none": {of(1, Reign{1, 1}, 0)},
		"a reign to come":          {of(1, Reign{1, 2}, 0)},
		"a cut of another reign": {entryOf(1, 0), entryOf(2, 0),
			AppendSection(nil, EntryPartition, 1, appendMark(nil, kindCut, 0, Reign{1, 1}))},
		"the last index":      {mark(kindVoid, 1<<64-1, 1<<64-1)},
		"a record of its own": {entryOf(1, 0), AppendSection(nil, 0, 2, nil)},
		"a torn section": {AppendSection(nil, EntryPartition, 1,
			appendEntry(nil, &Entry{Data: []byte{sectionKind}}, 0))},
		"a partition": {AppendSection(nil, EntryPartition, 1,
			appendEntry(nil, &Entry{Data: AppendSection(nil, 99, 1, nil)}, 0))},
	} {
		mem := vfs.NewMem()
		l := mustOpen(t, shardOptions(mem))
		l.mu.Lock()
		for _, r := range records {
			l.append(r)
		}
		l.mu.Unlock()
		mustClose(t, l)
		l, err := tryOpen(shardOptions(mem))
		if !errors.Is(err, disk.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			mustClose(t, l)
		}
	}
}

// TestEntriesTrim: a file is given up once neither Raft nor a partition needs it, and
// recovery of a partition sees what was cut in any file.
func TestEntriesTrim(t *testing.T) {
	o := shardOptions(vfs.NewMem())
	o.FileSize = 10 << 10
	l := mustOpen(t, o)
	defer func() { mustClose(t, l) }()
	fill := func(term uint64) { // more than a file
		_, last := l.EntryBounds()
		for files, _ := l.Sizes(); ; {
			es := span(last+1, last+5, term)
			es[4] = Entry{Index: last + 5, Term: term, Type: 1, Data: make([]byte, 4000)}
			mustAppend(t, l, es)
			last += 5
			if now, _ := l.Sizes(); now > files {
				return
			}
		}
	}
	fill(1)
	_, stale := l.EntryBounds()
	l.SetApplied(3)
	mustDelete(t, l, 4, stale)
	// no sections of partition 0
	mustAppend(t, l, []Entry{{Index: 4, Term: 2, Type: 1, Data: make([]byte, 20<<10)}})
	for range 4 {
		fill(2)
	}
	l.SetApplied(5)
	if err := l.BeginRecovery(0); err != nil {
		t.Fatal(err)
	}
	expect(t, "sections", logOf(t, l, 0, 0), "1=t1 2=t1 3=t1 5=t2 ")
	l.EndRecovery()
	_, last := l.EntryBounds()
	l.SetApplied(last)
	all, _ := l.Sizes()
	if err := l.Trim(0, last); err != nil {
		t.Fatal(err)
	}
	if files, _ := l.Sizes(); files != all {
		t.Fatal("files went that Raft has not given up")
	}
	hold := l.Hold("a follower", 1<<40)
	mustDelete(t, l, 1, last-1)
	if files, _ := l.Sizes(); files != all {
		t.Fatal("files went that somebody holds")
	}
	hold.Acknowledge(0, last)
	hold.Acknowledge(EntryPartition, last)
	if err := l.Trim(0, last); err != nil {
		t.Fatal(err)
	}
	if files, _ := l.Sizes(); files >= all {
		t.Fatal("no file went")
	}
	expect(t, "entries", entriesOf(t, l), fmt.Sprintf("applied %d, %d… of term 2 to %d", last, last, last))
	for range 3 {
		fill(3)
	}
	l.SetApplied(last + 1)
	mustDelete(t, l, 0, last)
	files, _ := l.Sizes()
	if files < 4 {
		t.Fatal("files went that the partition needs")
	}
	mustClose(t, l)
	l = mustOpen(t, o)
	if err := l.Trim(0, 1<<62); err != nil {
		t.Fatal(err)
	}
	if first, _ := l.EntryBounds(); first > last {
		t.Fatal("entries were lost", first, last)
	}
	entriesOf(t, l) // they are read from their files
}

// TestEntryCache: the newest entries are in memory, up to a limit; older ones are read.
func TestEntryCache(t *testing.T) {
	reads := 0
	l := mustOpen(t, shardOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			reads++
		}
		return nil
	}))))
	defer mustClose(t, l)
	const n, size = 40, 1 << 20
	for i := uint64(1); i <= n; i++ {
		mustAppend(t, l, []Entry{{Index: i, Term: i, Type: 1, Data: slices.Repeat([]byte{byte(i)}, size)}})
	}
	reads = 0
	for i := uint64(n); i > 0; i-- {
		var e Entry
		if err := l.Entry(i, &e); err != nil || e.Term != i || len(e.Data) != size ||
			e.Data[size-1] != byte(i) {
			t.Fatal(i, err)
		}
	}
	expect(t, "entries that were read", reads, n-entryCache/size+1)
	if l.entries.bytes > entryCache {
		t.Fatal(l.entries.bytes)
	}
}

// FuzzEntry: what is not an entry is refused, and what is one is written in one way only.
func FuzzEntry(f *testing.F) {
	e := entry(3, 4)
	f.Add(appendEntry(nil, &e, 2))
	e.Extensions, e.Data = []byte("x"), nil
	f.Add(appendEntry(nil, &e, 2))
	f.Add(appendMark(nil, kindCut, 2, Reign{4, 1}))
	f.Add(appendMark(nil, kindVoid, 3, Reign{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseEntry(3, b)
		if err != nil {
			if !errors.Is(err, disk.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := appendMark(nil, s.kind, s.applied, s.reign)
		if s.kind == kindEntry {
			again = appendEntry(nil, &s.entry, s.applied)
			if string(b[s.data:]) != string(s.entry.Data) {
				t.Fatal("the data lie elsewhere")
			}
		}
		if string(again) != string(b) {
			t.Fatalf("%x is written as %x", b, again)
		}
	})
}
