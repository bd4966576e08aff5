package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store/coding"
)

// A type of keys that only tests have: a tally, to which numbers are added. It shows that
// a type is one file and a row, and what types that come need: adding twice is wrong,
// and its state is copied while changes go on.
const typeTally = maxTypes - 1

// The row is added before anything runs that looks at the tables.
var _ = addType(typeTally, tallyType{})

func addType(t Type, row objectType) bool {
	objectTypes[t] = row
	kinds = makeKinds()
	return true
}

const (
	// tallyAdd adds Delta to the tally Key, and creates it. Out: Value.
	tallyAdd Kind = typeTally*kindsPerType + iota
	// tallyRead reads the tally Key. Out: Value, Found.
	tallyRead
)

type tallyType struct{}

func (tallyType) kinds() []kind {
	const first = typeTally * kindsPerType
	return []kind{
		tallyAdd - first:  {is: writes, entries: 3, fields: tallySize, turn: addToTally},
		tallyRead - first: {turn: readTally},
	}
}

// tally is what a key of the type holds.
type tally struct {
	value int64
	seq   uint64 // of the last change in value
}

// tallySize is what a tally takes of the memory for filters, bytes.
const tallySize = 64

func addToTally(x *turn, op *Op) error {
	r, f, err := objectAt[*tally](x, op, typeTally)
	if err != nil {
		return err
	}
	if f == nil {
		if err := x.createObject(r, typeTally, tallySize, nil); err != nil {
			return err
		}
		f = r.c.object().(*tally)
	}
	if _, ok := sum(f.value, op.Delta); !ok {
		return ErrOverflow
	}
	x.changeObject(r, binary.AppendVarint(nil, op.Delta), 0)
	op.Value = f.value
	return nil
}

func readTally(x *turn, op *Op) error {
	_, f, err := objectAt[*tally](x, op, typeTally)
	if f != nil {
		op.Value, op.Found = f.value, true
	}
	return err
}

func (tallyType) create(options []byte, at moment) (object, error) {
	if len(options) != 0 {
		return nil, fmt.Errorf("%w: options of a tally", errCorruptEntry)
	}
	return new(tally), nil
}

func (f *tally) redo(c change) error {
	r := reader{coding.Reader{Rest: c.what}}
	delta := r.Varint()
	if r.End(); r.err() != nil || c.seq <= f.seq { // what the snapshot has already
		return r.err()
	}
	f.value, f.seq = f.value+delta, c.seq
	return nil
}

// tallyEncoder reads the state only when its turn comes, and with it how far it is.
type tallyEncoder struct {
	f    *tally
	p    *machine
	rest io.Reader
}

func (f *tally) encode(p *machine) io.Reader { return &tallyEncoder{f: f, p: p} }

func (e *tallyEncoder) Read(b []byte) (int, error) {
	if e.rest == nil {
		e.rest = bytes.NewReader(binary.AppendVarint(binary.AppendUvarint(nil, e.p.seq), e.f.value))
	}
	return e.rest.Read(b)
}

func (tallyType) decode(r *bufio.Reader, maxBytes uint64) (object, error) {
	seq, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCorruptEntry, err)
	}
	value, err := binary.ReadVarint(r)
	if err != nil || maxBytes < tallySize {
		return nil, fmt.Errorf("%w: a tally (%w)", errCorruptEntry, err)
	}
	return &tally{value: value, seq: seq}, nil
}

func (f *tally) bytes() uint64                { return tallySize }
func (f *tally) due(int64) bool               { return false }
func (f *tally) upkeep(x *turn, r *ref) error { return nil }
func (f *tally) release()                     {}

// TestKeyType plays what the store does with keys of any type: nothing of it knows tallies.
func TestKeyType(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	open := func() *Store {
		return testStore(t, func(o *Options) { o.FS, o.Clock, o.Partitions = fs, clock.now, 1 })
	}
	s := open()
	key := []byte("t")
	reopen := func() {
		t.Helper()
		must(t, s.CloseNow())
		checkSound(t, fs, "data")
		s = open()
	}
	expect := func(want int64, found bool) {
		t.Helper()
		if op := do(s, Op{Kind: tallyRead, Key: key}); op.Err != nil || op.Value != want ||
			op.Found != found {
			t.Fatalf("read %d %v %v instead of %d %v", op.Value, op.Found, op.Err, want, found)
		}
		if op := do(s, Op{Kind: Exists, Keys: [][]byte{key}}); (op.Value == 1) != found {
			t.Fatalf("EXISTS %d", op.Value)
		}
		n, err := s.DBSize()
		if must(t, err); (n == 1) != found {
			t.Fatalf("DBSIZE %d", n)
		}
		if got := s.Stats().Objects[typeTally]; (got == 1) != found {
			t.Fatalf("%d tallies are counted", got)
		}
	}
	add := func(n, want int64) {
		t.Helper()
		if op := do(s, Op{Kind: tallyAdd, Key: key, Delta: n}); op.Err != nil || op.Value != want {
			t.Fatal(op.Value, op.Err)
		}
	}
	memory := s.Stats().FilterBytes
	add(5, 5)
	add(-7, -2)
	expect(-2, true)
	reopen() // from the log
	expect(-2, true)
	must(t, s.Snapshot())
	add(10, 8)
	reopen() // from the snapshot and the log behind it
	expect(8, true)
	if now := s.Stats().FilterBytes; now != memory+tallySize {
		t.Errorf("the filters have %d bytes, and %d before there was a tally", now, memory)
	}

	tallyAmongOthers(t, s, key)

	// Expiry, and what takes a key away.
	must(t, do(s, Op{Kind: ExpireAt, Key: key, ExpireAt: clock.wall + 1000}).Err)
	reopen()
	if op := do(s, Op{Kind: ExpireTime, Key: key}); op.Value != clock.wall+1000 {
		t.Errorf("it expires at %d", op.Value)
	}
	clock.step(2 * time.Second)
	if op := do(s, Op{Kind: tallyRead, Key: key}); op.Found {
		t.Error("it did not expire")
	}
	add(3, 3) // a new one
	expect(3, true)
	for _, away := range []Op{{Kind: Del, Keys: [][]byte{key}}, {Kind: FlushAll}, {Kind: MSet,
		Keys: [][]byte{key}, Deltas: []int64{1}}} {
		must(t, s.Snapshot())
		must(t, do(s, away).Err)
		if away.Kind == MSet {
			must(t, do(s, Op{Kind: Del, Keys: [][]byte{key}}).Err)
		}
		expect(0, false)
		reopen()
		expect(0, false)
		if now := s.Stats().FilterBytes; now != memory {
			t.Errorf("after kind %d the filters have %d bytes instead of %d", away.Kind, now, memory)
		}
		add(4, 4)
	}

	// At the memory cap.
	s.SetFilterMaxMemory(s.Stats().FilterBytes + tallySize - 1)
	if op := do(s, Op{Kind: tallyAdd, Key: []byte("more"), Delta: 1}); !errors.Is(op.Err, ErrOutOfMemory) {
		t.Error(op.Err)
	}
}

// tallyAmongOthers plays generic commands, and those of other types, on a tally.
func tallyAmongOthers(t *testing.T, s *Store, key []byte) {
	if op := do(s, Op{Kind: TypeOf, Key: key}); op.Type != typeTally {
		t.Errorf("type %d", op.Type)
	}
	if op := do(s, Op{Kind: MemoryUsage, Key: key}); op.Value < tallySize {
		t.Errorf("it is said to take %d bytes", op.Value)
	}
	var scanned []Type
	_, err := s.Scan(0, 10, func(_ []byte, kind Type) { scanned = append(scanned, kind) })
	if must(t, err); len(scanned) != 1 || scanned[0] != typeTally {
		t.Errorf("SCAN found types %v", scanned)
	}
	for _, op := range []Op{{Kind: Get, Key: key}, {Kind: IncrBy, Key: key, Delta: 1}, {Kind: CIncrBy,
		Key: key, ID: key, Delta: 1},
		{Kind: FBFAdd, Key: key, Keys: [][]byte{key}}, {Kind: Set, Key: key, Flags: SetGet}} {
		if op = do(s, op); !errors.Is(op.Err, ErrWrongType) {
			t.Errorf("kind %d: %v", op.Kind, op.Err)
		}
	}
	for _, other := range []Op{{Kind: Set, Delta: 1}, {Kind: FBFReserve}} {
		other.Key = []byte("other")
		must(t, do(s, other).Err)
		if op := do(s, Op{Kind: tallyAdd, Key: other.Key, Delta: 1}); !errors.Is(op.Err, ErrWrongType) {
			t.Errorf("a tally instead of what kind %d made: %v", other.Kind, op.Err)
		}
		do(s, Op{Kind: Del, Keys: [][]byte{other.Key}})
	}
}

// TestObjectIsCopiedLate: an object that is copied into a snapshot late says which changes
// it has already, and these are not redone.
func TestObjectIsCopiedLate(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	key := []byte("t")
	do(s, Op{Kind: tallyAdd, Key: key, Delta: 5})
	p := s.partitions[0]
	p.mu.Lock()
	snap := p.beginSnapshot()
	p.mu.Unlock()
	do(s, Op{Kind: tallyAdd, Key: key, Delta: 10})
	content := readSnapshotOf(t, snap)
	p.endSnapshot()
	loaded, err := readSnapshot(bytes.NewReader(content), 1<<30, false)
	must(t, err)
	q := newPartition(0, 1, p.hashes, 100, new(memoryPool), nil)
	q.adopt(loaded)
	create := entry{kind: entryCreate, flags: flagCreated, typ: typeTally, key: key}
	q.hashEntry(&create)
	q.resolve(&create, snap.seq-1)
	must(t, q.redo(&create, snap.seq-1, moment{})) // the snapshot has it
	for i, delta := range []int64{10, 100} {       // and the first of these
		e := entry{kind: entryChange, typ: typeTally, key: key, id: binary.AppendVarint(nil, delta)}
		seq := snap.seq + uint64(i) + 1
		q.hashEntry(&e)
		q.resolve(&e, seq)
		must(t, q.redo(&e, seq, moment{}))
	}
	if got := q.objects["t"].object().(*tally).value; got != 115 {
		t.Errorf("%d instead of 115", got)
	}
}

// TestObjectEntriesAreChecked: what the log says of an object that is not there, of
// another type, or that the type does not understand, is damage (FuzzRecord has what is
// refused by its form).
func TestObjectEntriesAreChecked(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	do(s, Op{Kind: tallyAdd, Key: []byte("t"), Delta: 5})
	do(s, Op{Kind: FBFReserve, Key: []byte("f")})
	do(s, Op{Kind: FBFReserve, Key: []byte("fixed"),
		Object: &FilterOptions{Fixed: true, Bits: 64, Hashes: 1, Refresh: time.Hour}})
	do(s, Op{Kind: Set, Key: []byte("c")})
	p := s.partitions[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	ten := binary.AppendVarint(nil, 10)
	for what, e := range map[string]entry{
		"a change of nothing":       {kind: entryChange, typ: typeTally, key: []byte("none"), id: ten},
		"a change of a counter":     {kind: entryChange, typ: typeTally, key: []byte("c"), id: ten},
		"a change of another type":  {kind: entryChange, typ: typeTally, key: []byte("f"), id: ten},
		"an expiry of another type": {kind: entrySetExpiry, typ: TypeFilter, key: []byte("t")},
		"a change without content":  {kind: entryChange, typ: typeTally, key: []byte("t")},
		"a change with more": {kind: entryChange, typ: typeTally, key: []byte("t"),
			id: append(ten, 0)},
		"a key that is there":        {kind: entryCreate, typ: typeTally, key: []byte("t")},
		"options that there are not": {kind: entryCreate, typ: typeTally, key: []byte("new"), id: ten},
		"options of another type":    {kind: entryCreate, typ: TypeFilter, key: []byte("new"), id: ten},
		"no change of a filter":      {kind: entryChange, typ: TypeFilter, key: []byte("f")},
		"another change of a filter": {kind: entryChange, typ: TypeFilter, key: []byte("f"),
			id: []byte{3, 'i'}},
		"an event that is none": {kind: entryChange, typ: TypeFilter, key: []byte("f"),
			id: []byte{filterEvent, 0xff}},
		"an event of a FIXED filter": {kind: entryChange, typ: TypeFilter, key: []byte("fixed"),
			id: []byte{filterEvent, 1}},
		"no event of an adaptive one": {kind: entryChange, typ: TypeFilter, key: []byte("f"),
			id: []byte{filterEvent}},
	} {
		p.hashEntry(&e)
		p.resolve(&e, p.seq+1)
		if err := p.redo(&e, p.seq+1, p.at); !errors.Is(err, errCorruptEntry) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
