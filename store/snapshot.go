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
// horizon; number of objects, and for each its key, type, expiry, sequence; all
// that length-prefixed. Then the encodings of the filters and of the objects, in the
// same order.

const snapshotVersion = 1

// snapshot is a filter snapshot being written.
type snapshot struct {
	seq      uint64
	header   []byte
	encoders []io.Reader
}

// beginSnapshot captures the header. The partition is locked, and until
// endSnapshot no filter's memory is freed.
func (p *partition) beginSnapshot() *snapshot {
	p.saving.snapshotting = true
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
	keys := slices.Sorted(maps.Keys(p.objects))
	h = binary.AppendUvarint(h, uint64(len(keys)))
	for _, key := range keys {
		c := p.objects[key]
		h = coding.AppendBytes(h, []byte(key))
		h = append(h, byte(c.kind))
		h = binary.AppendVarint(h, c.expire)
		h = binary.AppendUvarint(h, c.seq)
		s.encoders = append(s.encoders, c.object().encode(p))
	}
	s.header = h
	return s
}

// endSnapshot frees what was retired while the snapshot was taken.
func (p *partition) endSnapshot() {
	p.mu.Lock()
	p.saving.snapshotting = false
	for _, release := range p.saving.retired {
		release()
	}
	p.saving.retired = nil
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
	if _, err := w.Write(coding.AppendBytes(nil, s.header)); err != nil {
		return err
	}
	buf := make([]byte, snapshotChunk)
	for _, enc := range s.encoders {
		for {
			p.mu.Lock()
			n, err := enc.Read(buf)
			p.mu.Unlock()
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	p.mu.Lock()
	here := p.here()
	p.mu.Unlock()
	if err := here.waitToSave(); err != nil {
		return err
	}
	return w.Commit()
}

// openSnapshot reads a snapshot from its file. The caller adopts or releases it.
func openSnapshot(db *persistence.DB, snap persistence.Snapshot) (*loadedSnapshot, error) {
	in, err := db.OpenSnapshot(snap)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	loaded, err := readSnapshot(in, math.MaxInt64)
	if err == nil && loaded.seq != snap.Seq {
		loaded.release()
		return nil, fmt.Errorf("%w: it was taken at entry %d, its name says %d", errCorruptEntry, loaded.seq, snap.Seq)
	}
	return loaded, err
}

// readSnapshot reads a whole snapshot. The caller adopts or releases it.
func readSnapshot(in io.Reader, maxBytes uint64) (*loadedSnapshot, error) {
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
	loaded, err := decodeSnapshot(header, r, maxBytes)
	if err != nil {
		return nil, err
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		loaded.release()
		return nil, fmt.Errorf("%w: snapshot goes on after its end", errCorruptEntry)
	}
	return loaded, nil
}

// readAll reads exactly n bytes without trusting n for the allocation.
func readAll(r io.Reader, n uint64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(min(n, 1<<40))))
	if err == nil && uint64(len(b)) != n {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// loadedSnapshot is a decoded snapshot.
type loadedSnapshot struct {
	seq     uint64
	at      moment
	catalog *catalog
	tables  map[uint32]*tableState
	keys    []*counter
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
func decodeSnapshot(header []byte, body *bufio.Reader, maxBytes uint64) (_ *loadedSnapshot, err error) {
	l := &loadedSnapshot{tables: make(map[uint32]*tableState)}
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
	for _, c := range l.keys {
		o, err := objectTypes[c.kind].decode(body, maxBytes)
		if err != nil {
			return nil, err
		}
		c.setObject(o)
	}
	return l, nil
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
		c.expire, c.seq = h.Varint(), h.Uvarint()
		if last := len(l.keys) - 1; last >= 0 && l.keys[last].key() >= c.key() {
			h.Fail()
			return
		}
		l.keys = append(l.keys, c)
	}
}

// adopt makes the partition what the snapshot holds.
func (p *partition) adopt(l *loadedSnapshot) {
	p.catalog, p.tables = l.catalog, l.tables
	for _, t := range l.tables {
		t.filter.SetPhase(p.phase())
		p.pool.used.Add(int64(t.filter.Bytes()))
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
