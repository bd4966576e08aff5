package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/fbf/paper"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// The decoders of what this package keeps on disk: on any bytes they neither
// panic nor allocate beyond them, fail only with an error that means damage, and
// what they accept says the same when it is written and read again.

// someUUID is an opid as most clients send them.
const someUUID = "01a1fdcc-4bbc-70ea-a1d6-03cc3a62b435"

// FuzzRecord reads records of the op log.
func FuzzRecord(f *testing.F) {
	record := beginSection(nil, moment{logged: 5, wall: 1e12})
	for kind := entryApply; kind <= entryPaid; kind++ {
		for typ, id := range map[Type]string{TypeCounter: "id", TypeFilter: someUUID} {
			if kind == entryCreate || kind == entryChange || kind == entryLast {
				typ = TypeFilter
			}
			e := entry{kind: kind, typ: typ, flags: flagHasExpire | flagHasTime, table: 3, key: []byte("key"),
				id: []byte(id), delta: -1, value: 1 << 40,
				expire: 7, time: 9}
			if kind >= entryMerge {
				e.flags |= flagRegional
				e.r = someRegional()
			}
			record = e.appendTo(record)
			f.Add(e.appendTo(beginSection(nil, moment{})))
		}
	}
	f.Add(record)
	f.Add(record[:len(record)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, at, err := readRecord(b)
		if err != nil {
			if !errors.Is(err, errCorruptEntry) {
				t.Fatal(err)
			}
			return
		}
		again := beginSection(nil, at)
		for i := range entries {
			again = entries[i].appendTo(again)
			entries[i].packed = nil
		}
		entries2, at2, err := readRecord(again)
		if err != nil || at2 != at || !reflect.DeepEqual(entries, entries2) {
			t.Fatalf("%x: %+v\n%x: %+v %v", b, entries, again, entries2, err)
		}
	})
}

// readRecord reads a whole record.
func readRecord(b []byte) (entries []entry, at moment, err error) {
	r, err := newSectionReader(b)
	for e := (entry{}); r.next(&e); {
		e.packed = nil // what the other fields are
		e.id = slices.Clone(e.id)
		entries = append(entries, e)
	}
	return entries, r.at, r.err()
}

// FuzzRow reads a counter's row.
func FuzzRow(f *testing.F) {
	c := &counter{value: -5, seq: 1 << 40, expire: 1e12}
	f.Add(c.appendRow(nil))
	c.setParts(part.Parts{part.FromCounter(3, -5, 1<<40)})
	f.Add(c.appendRow(nil))
	c.kind = TypeCounter
	f.Add(c.appendRow(nil))
	f.Add([]byte{rowVersion, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeRow(b)
		if err != nil {
			mustBeDamage(t, err)
			return
		}
		c := new(counter)
		if c.showRow(&got); got.aside {
			c.kind = TypeFilter
		}
		if again, err := decodeRow(c.appendRow(nil)); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%x: %+v, again %+v %v", b, got, again, err)
		}
	})
}

// FuzzCatalog reads the tables, and asks the result what a partition would.
func FuzzCatalog(f *testing.F) {
	f.Add(newCatalog().encode())
	f.Add([]byte(`{"Tables":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCatalog(b)
		if err != nil {
			mustBeDamage(t, err)
			return
		}
		c.find([]byte("key"))
		c.live()
		if again, err := decodeCatalog(c.encode()); err != nil || !bytes.Equal(again.encode(), c.encode()) {
			t.Fatalf("%s: again %v", b, err)
		}
	})
}

// FuzzState reads the state of a partition.
func FuzzState(f *testing.F) {
	s := partitionState{seq: 9, records: 8,
		at: moment{logged: 5, wall: 1e12}, size: 3, objects: 1, catalog: newCatalog(),
		horizons: map[uint32]horizon{0: {}, 7: {}}}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeState(b)
		if err != nil {
			mustBeDamage(t, err)
			return
		}
		if again, err := decodeState(got.encode()); err != nil || !bytes.Equal(again.encode(), got.encode()) {
			t.Fatalf("%x: %+v, again %+v %v", b, got, again, err)
		}
	})
}

// FuzzFilterOptions reads the options of a filter key from the log.
func FuzzFilterOptions(f *testing.F) {
	f.Add(FilterOptions{Window: time.Minute, Error: 0.01}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeFilterOptions(b)
		if err != nil {
			mustBeDamage(t, err)
			return
		}
		if again, err := decodeFilterOptions(o.encode()); err != nil || again != o {
			t.Fatalf("%s: %+v, again %+v %v", b, o, again, err)
		}
	})
}

// FuzzSnapshotContent reads a filter snapshot whose frames were in order.
func FuzzSnapshotContent(f *testing.F) {
	f.Add(aSnapshot(f))
	f.Add(binary.AppendUvarint(nil, 1<<40))
	f.Add(bytes.Repeat([]byte{0xff}, 11)) // a length beyond 64 bits
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := readSnapshot(bytes.NewReader(b), 1<<20, false)
		if err != nil {
			if !errors.Is(err, fbf.ErrCorrupt) && !errors.Is(err, paper.ErrCorrupt) &&
				!errors.Is(err, io.EOF) &&
				!errors.Is(err, io.ErrUnexpectedEOF) {
				mustBeDamage(t, err)
			}
			return
		}
		l.release()
	})
}

// aSnapshot returns the content of a partition's snapshot with a filter key.
func aSnapshot(f testing.TB) []byte {
	s := testStore(f, func(o *Options) { o.Partitions = 1 })
	do(s, Op{Kind: FBFAdd, Key: []byte("filter"), Keys: [][]byte{[]byte("item")}})
	do(s, Op{Kind: FBFReserve, Key: []byte("fixed"),
		Object: &FilterOptions{Fixed: true, Bits: 64, Hashes: 1, Refresh: time.Hour}})
	do(s, Op{Kind: tallyAdd, Key: []byte("tally"), Delta: 5})
	p := s.partitions[0]
	p.mu.Lock()
	snap := p.beginSnapshot()
	p.mu.Unlock()
	defer p.endSnapshot()
	return readSnapshotOf(f, snap)
}

// readSnapshotOf returns what a snapshot would write.
func readSnapshotOf(t testing.TB, snap *snapshot) []byte {
	var out bytes.Buffer
	must(t, snap.encode(&out, new(sync.Mutex)))
	return out.Bytes()
}

// mustBeDamage fails unless the error means that bytes are not what was written.
func mustBeDamage(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, errCorruptEntry) {
		t.Fatal(err)
	}
}

// FuzzMoveTail reads what another shard's store says that a partition has done, and redoes it
// beside the partition.
func FuzzMoveTail(f *testing.F) {
	s := testStore(f, func(o *Options) { o.Partitions = 2 })
	key := []byte(keysIn(s)[1])
	section := func(seq uint64, e entry) []byte {
		return oplog.AppendSection(nil, 1, seq, e.appendTo(beginSection(nil, moment{logged: 5, wall: 1e12})))
	}
	for kind := entryApply; kind <= entryPaid; kind++ {
		f.Add(section(1, entry{kind: kind, typ: TypeFilter, table: 1, key: key, id: []byte("id"), delta: 1,
			value: 2, r: new(regional)}))
	}
	p := s.partitions[1]
	f.Fuzz(func(t *testing.T, record []byte) {
		in := &Incoming{p: p, seq: moveStep}
		p.mu.Lock()
		in.begin()
		p.mu.Unlock()
		must(t, in.shadow.setCatalog(newCatalog(), moment{}))
		defer in.release()
		err := in.check(record)
		if err == nil {
			err = in.redo(record)
		}
		if err != nil && !errors.Is(err, ErrMove) && !errors.Is(err, persistence.ErrCorrupt) &&
			!errors.Is(err, ErrLogDamaged) && !errors.Is(err, fbf.ErrCorrupt) &&
			!errors.Is(err, fbf.ErrEvent) {
			mustBeDamage(t, err)
		}
	})
}

// FuzzMoveFile reads the content of the file of a partition that moves.
func FuzzMoveFile(f *testing.F) {
	m := newMoveToTry(f)
	in, err := m.fsA.Open(m.path)
	must(f, err)
	framed, err := io.ReadAll(in)
	must(f, err)
	f.Add(contentOf(framed))
	p := m.b.partitions[1]
	p.pool.limit.Store(1 << 20)
	first, last := slotRange(1, p.count)
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &Incoming{p: p, seq: moveStep}
		p.mu.Lock()
		in.begin()
		p.mu.Unlock()
		l := moveLoader{Incoming: in, r: persistence.ReadMoved(bytes.NewReader(b), uint64(len(b)), 1, first,
			last)}
		_ = l.load() // it neither panics nor leaves anything
		in.release()
		for _, dir := range []string{"data/tmp", "data/runs"} {
			if left, _ := m.fsB.List(dir); len(left) > 0 {
				t.Fatalf("it leaves %v", left)
			}
		}
	})
}

// contentOf is what the frames of a file hold.
func contentOf(framed []byte) (content []byte) {
	for b := framed[24:]; len(b) > 8; {
		n := int(binary.BigEndian.Uint32(b))
		if n == 0 {
			return content
		}
		content, b = append(content, b[8:8+n]...), b[8+n:]
	}
	return content
}
