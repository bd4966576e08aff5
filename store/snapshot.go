package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/coding"
)

// A filter snapshot holds what one partition remembers: the catalogue, the
// filter of every table and the objects. Header, counts and controller state
// are exactly as of its sequence; the bits are copied in chunks while inserts
// and refreshes go on: they may have those of later ids and lack those of
// generations dropped since. Redoing the log from that sequence adds the one
// and drops the other (G4). What else objects hold: see object.encode.
//
// Layout, after the frames of package persistence: version, sequence, logged
// time, wall time, catalogue; number of tables, and for each its id, tests,
// horizon; number of objects, and for each its key, type, 1 if it is unreadable, expiry,
// sequence; all that length-prefixed. Then the encodings of the filters and of the objects, in
// the same order. An object's comes in pieces, each with its length before it, and ends with a
// piece of no bytes: whoever cannot read it finds the next one.

const snapshotVersion = 1

// snapshot is a filter snapshot being written.
type snapshot struct {
	seq      uint64
	header   []byte
	encoders []io.Reader // of the filters and of the objects
	filters  int
}

// beginSnapshot captures the header. The partition is locked, and until
// endSnapshot no filter's memory is freed.
func (p *partition) beginSnapshot() *snapshot {
	p.snapshotting = true
	s := &snapshot{seq: p.seq}
	h := append([]byte(nil), snapshotVersion)
	h = binary.AppendUvarint(h, p.seq)
	h = binary.AppendVarint(h, p.at.logged)
	h = binary.AppendVarint(h, p.at.wall)
	h = coding.AppendBytes(h, p.catalog.encode())
	ids := slices.Sorted(maps.Keys(p.tables))
	h = binary.AppendUvarint(h, uint64(len(ids)))
	for _, id := range ids {
		t := p.tables[id]
		h = binary.AppendUvarint(h, uint64(id))
		h = binary.AppendUvarint(h, uint64(t.tests))
		h = t.horizon.appendTo(h)
		s.encoders = append(s.encoders, t.filter.NewEncoder())
	}
	s.filters = len(s.encoders)
	keys := slices.Sorted(maps.Keys(p.objects))
	h = binary.AppendUvarint(h, uint64(len(keys)))
	for _, key := range keys {
		c := p.objects[key]
		h = coding.AppendBytes(h, []byte(key))
		h = append(h, byte(c.kind), 0)
		if _, is := c.object().(*unreadable); is {
			h[len(h)-1] = 1
		}
		h = binary.AppendVarint(h, c.expire)
		h = binary.AppendUvarint(h, c.seq)
		s.encoders = append(s.encoders, c.object().encode(&p.machine))
	}
	s.header = h
	return s
}

// endSnapshot frees what was retired while the snapshot was taken.
func (p *partition) endSnapshot() {
	p.mu.Lock()
	p.snapshotting = false
	for _, release := range p.retired {
		release()
	}
	p.retired = nil
	p.mu.Unlock()
}

// snapshotChunk is what is copied of a filter under one acquisition of the
// partition's lock.
const snapshotChunk = 64 << 10

// write streams the snapshot to its file and publishes it once everything that
// it may contain is committed (R1): the bits were copied while operations went
// on, and an opid whose effect was taken back must not be remembered (G4). Under
// lax policies that is not yet durable; Commit makes sure of it.
func (s *snapshot) write(p *partition, w *persistence.SnapshotWriter) error {
	if err := s.encode(w, &p.mu); err != nil {
		return err
	}
	p.mu.Lock()
	here := p.here()
	p.mu.Unlock()
	if err := here.waitToSave(); err != nil {
		return err
	}
	return w.Commit()
}

// encode writes what the snapshot holds. What it reads of the partition it reads with the lock.
func (s *snapshot) encode(w io.Writer, lock sync.Locker) error {
	if _, err := w.Write(coding.AppendBytes(nil, s.header)); err != nil {
		return err
	}
	const room = binary.MaxVarintLen32
	buf := make([]byte, room+snapshotChunk)
	for i, enc := range s.encoders {
		for ended := false; !ended; {
			lock.Lock()
			n, err := enc.Read(buf[room:])
			lock.Unlock()
			if ended = errors.Is(err, io.EOF); err != nil && !ended {
				return err
			}
			piece := buf[room : room+n]
			if i >= s.filters && n > 0 {
				length := binary.AppendUvarint(buf[:0:room], uint64(n))
				piece = buf[room-len(length) : room+n]
				copy(piece, length)
			}
			if i >= s.filters && ended {
				piece = append(piece, 0)
			}
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// pieces reads the pieces of one object.
type pieces struct {
	in    *bufio.Reader
	left  uint64 // of the present one
	ended bool
	err   error // of in
}

// Read implements io.Reader.
func (r *pieces) Read(b []byte) (n int, err error) {
	for r.left == 0 && !r.ended && r.err == nil {
		r.left, r.err = binary.ReadUvarint(r.in)
		r.ended = r.err == nil && r.left == 0
	}
	if r.ended {
		return 0, io.EOF
	}
	if r.err == nil {
		n, r.err = r.in.Read(b[:min(uint64(len(b)), r.left)])
		r.left -= uint64(n)
	}
	if errors.Is(r.err, io.EOF) {
		r.err = io.ErrUnexpectedEOF
	}
	return n, r.err
}

// openSnapshot reads a snapshot from its file. The caller adopts or releases it.
func openSnapshot(db *persistence.DB, snap persistence.Snapshot) (*loadedSnapshot, error) {
	in, err := db.OpenSnapshot(snap)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	loaded, err := readSnapshot(in, math.MaxInt64, true)
	if err == nil && loaded.seq != snap.Seq {
		loaded.release()
		return nil, fmt.Errorf("%w: it was taken at entry %d, its name says %d", errCorruptEntry, loaded.seq,
			snap.Seq)
	}
	return loaded, err
}

// readSnapshot reads a whole snapshot. The caller adopts or releases it. An object that its type
// refuses is an error, unless spoil is set: then it is unreadable.
func readSnapshot(in io.Reader, maxBytes uint64, spoil bool) (*loadedSnapshot, error) {
	r := bufio.NewReaderSize(in, 256<<10)
	head, err := r.Peek(binary.MaxVarintLen64)
	size, n := binary.Uvarint(head)
	if n <= 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: snapshot without a length", errCorruptEntry)
		}
		return nil, err
	}
	r.Discard(n)
	header, err := readAll(r, size)
	if err != nil {
		return nil, err
	}
	loaded, err := decodeSnapshot(header, r, maxBytes, spoil)
	if err != nil {
		return nil, err
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		loaded.release()
		return nil, fmt.Errorf("%w: snapshot goes on after its end", errCorruptEntry)
	}
	return loaded, nil
}

// loadedSnapshot is a decoded snapshot.
type loadedSnapshot struct {
	seq     uint64
	at      moment
	catalog *catalog
	tables  map[uint32]*tableState
	keys    []*counter
	marked  map[*counter]bool // those that are unreadable
}

func (l *loadedSnapshot) release() {
	for _, t := range l.tables {
		if t.filter != nil {
			t.filter.Release()
		}
	}
	for _, c := range l.keys {
		if o := c.object(); o != nil {
			o.release()
		}
	}
}

// decodeSnapshot is the one decoder of the format.
func decodeSnapshot(header []byte, body *bufio.Reader, maxBytes uint64, spoil bool) (_ *loadedSnapshot,
	err error) {
	l := &loadedSnapshot{tables: make(map[uint32]*tableState), marked: make(map[*counter]bool)}
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	h := reader{coding.Reader{Rest: header}}
	if v := h.Byte(); v != snapshotVersion {
		return nil, fmt.Errorf("%w: snapshot version %d", errCorruptEntry, v)
	}
	l.seq, l.at = h.Uvarint(), moment{logged: h.Varint(), wall: h.Varint()}
	if l.catalog, err = decodeCatalog(h.Bytes()); err != nil {
		return nil, err
	}
	order, err := l.decodeTables(&h)
	if err != nil {
		return nil, err
	}
	l.decodeKeys(&h)
	h.End()
	if h.err() != nil {
		return nil, h.err()
	}
	for _, t := range order {
		if t.filter, err = fbf.Decode(body, maxBytes); err != nil {
			return nil, err
		}
	}
	buffered := bufio.NewReaderSize(nil, 64<<10)
	for _, c := range l.keys {
		if err := l.decodeObject(c, body, buffered, maxBytes, spoil); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// decodeObject decodes the object of a key.
func (l *loadedSnapshot) decodeObject(c *counter, body, buffered *bufio.Reader, maxBytes uint64,
	spoil bool) error {
	in := &pieces{in: body}
	buffered.Reset(in)
	var o object
	var err error
	if l.marked[c] {
		o, err = decodeUnreadable(buffered)
	} else if o, err = objectTypes[c.kind].decode(buffered, maxBytes); err == nil {
		if _, more := buffered.ReadByte(); !errors.Is(more, io.EOF) {
			o.release()
			err = fmt.Errorf("%w: key %q goes on after its end", errCorruptEntry, c.key())
		}
	}
	if in.err != nil {
		return in.err // of the file
	}
	if err != nil && (!spoil || l.marked[c] || !spoils(err)) {
		return err
	}
	if err != nil {
		o = newUnreadable(err, o)
	}
	c.setObject(o)
	_, _ = io.Copy(io.Discard, in) // what is left of it
	return in.err
}

func (l *loadedSnapshot) decodeTables(h *reader) (order []*tableState, err error) {
	for n := h.Uvarint(); n > 0 && h.err() == nil; n-- {
		id := h.Uint32()
		t := &tableState{def: l.catalog.byID(id), tests: h.Uint32(), horizon: h.horizon()}
		if t.def == nil || l.tables[id] != nil || t.tests == 0 {
			return nil, fmt.Errorf("%w: snapshot of unknown table %d", errCorruptEntry, id)
		}
		l.tables[id] = t
		order = append(order, t)
	}
	if h.err() == nil && len(order) != len(l.catalog.Tables) {
		return nil, fmt.Errorf("%w: snapshot lacks a table", errCorruptEntry)
	}
	return order, h.err()
}

func (l *loadedSnapshot) decodeKeys(h *reader) {
	for n := h.Uvarint(); n > 0 && h.err() == nil; n-- {
		key := h.Bytes()
		c := newCounter(key, 0) // adopt finds its place
		c.kind = h.keyType(firstObject)
		if h.UpTo(1) == 1 {
			l.marked[c] = true
		}
		c.expire, c.seq = h.Varint(), h.Uvarint()
		if last := len(l.keys) - 1; last >= 0 && l.keys[last].key() >= c.key() {
			h.Fail()
			return
		}
		l.keys = append(l.keys, c)
	}
}

// adopt makes the partition what the snapshot holds.
func (p *machine) adopt(l *loadedSnapshot) {
	p.catalog, p.tables = l.catalog, l.tables
	for _, t := range l.tables {
		t.filter.SetPhase(p.phase())
		p.memory.add(int64(t.filter.Bytes()))
	}
	for _, from := range l.keys {
		key := []byte(from.key())
		c := p.hot.get(hotHash(key), key)
		if c == nil {
			c = p.hot.install(hotHash(key), key, p.hashes.position(key))
		}
		p.putObject(c, from.kind, from.object())
		c.seq = from.seq
		p.setExpire(c, from.expire)
	}
	p.marks.filters, p.marks.catalog = l.seq, l.seq
	p.at = p.at.after(l.at)
}
