package store

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/seen"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// moveHeader is the first item of the file of a partition that moves.
type moveHeader struct {
	partitions int
	seed       uint64 // hashes.proof
	from       uint64 // S0
}

const moveVersion = 1

// encode lays the header out as: version, number of partitions, proof of the seed, sequence.
func (h moveHeader) encode() []byte {
	return appendUvarints([]byte{moveVersion}, uint64(h.partitions), h.seed, h.from)
}

func decodeMoveHeader(b []byte) (h moveHeader, err error) {
	r := reader{coding.Reader{Rest: b}}
	if v := r.Byte(); r.err() == nil && v != moveVersion {
		return h, fmt.Errorf("%w: a partition that moves, of version %d", errCorruptEntry, v)
	}
	h = moveHeader{partitions: int(r.UpTo(1024)), seed: r.Uvarint(), from: r.Uvarint()}
	r.End()
	return h, r.err()
}

// movedFrom returns the sequence as of which a file was exported.
func (p *partition) movedFrom(path string) (seq uint64, err error) {
	first, last := slotRange(int(p.id), p.count)
	r, err := p.db.OpenMoved(path, first, last)
	if err != nil {
		return 0, err
	}
	var item persistence.MovedItem
	var h moveHeader
	if err = r.Next(&item); err == nil {
		h, err = decodeMoveHeader(item.Value)
	}
	return h.from, errors.Join(err, r.Close())
}

// moveLoader reads the file of a partition that moves.
type moveLoader struct {
	*Incoming
	r    *persistence.MovedReader
	item persistence.MovedItem // the present one; none at the end
	rest []byte                // of a piece of the snapshot
}

// next goes to the next item.
func (l *moveLoader) next() error {
	err := l.r.Next(&l.item)
	if errors.Is(err, io.EOF) {
		l.item, err = persistence.MovedItem{}, nil
	}
	return err
}

// each calls fn for all items of a kind, which are the next ones.
func (l *moveLoader) each(kind persistence.MovedKind, fn func() error) error {
	for l.item.Kind == kind {
		if err := fn(); err != nil {
			return err
		}
		if err := l.next(); err != nil {
			return err
		}
	}
	return nil
}

func (l *moveLoader) load() error {
	for _, step := range []func() error{l.next, l.header, l.state, l.filters, l.pages, l.holds, l.rows,
		l.expiries, l.tables.Finish, l.readRuns} {
		if err := step(); err != nil {
			return err
		}
	}
	q := l.shadow
	q.rows.whole = !q.rows.tooBig
	q.seen.Take(l.runs)
	q.seen.Assign(q.floor, q.hasTable)
	l.runs = nil
	return nil
}

func (l *moveLoader) header() error {
	h, err := decodeMoveHeader(l.item.Value)
	p := l.p
	switch {
	case err != nil:
		return err
	case h.partitions != p.count:
		return moveError("it is one of %d partitions, and here are %d", h.partitions, p.count)
	case h.seed != p.hashes.proof:
		return moveError("it has another hash seed")
	case l.seq%moveStep != 0 || l.seq <= h.from:
		return fmt.Errorf("%w: as of entry %d it goes on with %d", errCorruptEntry, h.from, l.seq)
	}
	l.shadow.seq = h.from
	return l.next()
}

func (l *moveLoader) state() error {
	q, from := l.shadow, l.shadow.seq
	state, err := q.setState(l.item.Value)
	q.saving.state = state
	if err == nil && (state.seq != from || state.records != from || state.gone) {
		err = fmt.Errorf("%w: a state as of entry %d, with records to %d, and not of %d", errCorruptEntry,
			state.seq, state.records, from)
	}
	if err == nil {
		err = l.next()
	}
	return err
}

// Read reads the content of the snapshot.
func (l *moveLoader) Read(b []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.item.Kind != persistence.MovedFilters {
			return 0, io.EOF
		}
		if l.rest = l.item.Value; len(l.rest) == 0 {
			if err := l.next(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(b, l.rest)
	if l.rest = l.rest[n:]; len(l.rest) == 0 {
		return n, l.next()
	}
	return n, nil
}

func (l *moveLoader) filters() error {
	q := l.shadow
	most := uint64(math.MaxInt64)
	if limit := q.pool.limit.Load(); limit > 0 {
		most = uint64(limit)
	}
	loaded, err := readSnapshot(l, most, false)
	if err != nil {
		return err
	}
	for _, c := range loaded.keys {
		if !q.owns(Slot([]byte(c.key()))) {
			loaded.release()
			return fmt.Errorf("%w: key %q belongs to another partition", errCorruptEntry, c.key())
		}
	}
	if loaded.seq != q.seq {
		loaded.release()
		return fmt.Errorf("%w: a snapshot as of entry %d, with a state as of %d", errCorruptEntry, loaded.seq,
			q.seq)
	}
	q.adopt(loaded)
	return nil
}

// pages loads pages. All count as changed: the checkpoint behind the adoption writes them.
func (l *moveLoader) pages() error {
	q := l.shadow
	err := q.loadPages(func(fn func(persistence.Page) error) error {
		return l.each(persistence.MovedPage, func() error { return fn(l.item.Page) })
	})
	for _, c := range q.objects {
		if o, ok := c.object().(*paged); ok {
			sketch.Unsaved(o.Sketch)
		}
	}
	if err == nil {
		err = q.spoiledHere()
	}
	return err
}

// holds loads open holds. All of them are written by the checkpoint behind the adoption.
func (l *moveLoader) holds() error {
	q := l.shadow
	err := l.each(persistence.MovedHold, func() error {
		if !q.owns(Slot(l.item.Hold.Key)) {
			return fmt.Errorf("%w: the hold of key %q belongs to another partition", errCorruptEntry,
				l.item.Hold.Key)
		}
		return q.putHold(l.item.Hold, l.item.Value)
	})
	if err == nil {
		err = q.checkHolds(&q.saving.state)
	}
	return err
}

func (l *moveLoader) rows() error {
	q := l.shadow
	q.rows.grow(int(min(max(q.size, 0), 1<<30)))
	return l.each(persistence.MovedRow, func() error {
		k := l.item.Row
		if k.Position() != q.hashes.position(k.Key) {
			return fmt.Errorf("%w: the row of key %q lies where that key does not belong", errCorruptEntry,
				k.Key)
		}
		row, err := decodeRow(l.item.Value)
		if err != nil || row.seq <= q.floor {
			return err
		}
		q.rows.add(k.Position())
		return l.tables.PutRow(k, l.item.Value)
	})
}

func (l *moveLoader) expiries() error {
	return l.each(persistence.MovedExpiry, func() error { return l.tables.PutExpiry(l.item.At, l.item.Row) })
}

// readRuns writes the runs anew, under ids of this store's.
func (l *moveLoader) readRuns() error {
	for l.item.Kind == persistence.MovedRun {
		if err := l.readRun(); err != nil {
			return err
		}
	}
	return nil
}

func (l *moveLoader) readRun() error {
	from := l.item.Run
	run := from
	run.ID = l.shadow.seen.NewRun(from.Table).ID
	w, err := l.p.db.NewRun(run)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := l.next(); err != nil {
		return err
	}
	err = l.each(persistence.MovedRecord, func() error {
		r, err := seen.ReadRecord(l.item.Value)
		switch {
		case err != nil:
			return err
		case l.p.hashes.ids.Hash(r.Key, r.ID) != l.item.Hash || !l.p.owns(Slot(r.Key)):
			return fmt.Errorf("%w: the record of key %q lies where it does not belong", errCorruptEntry,
				r.Key)
		case l.item.Seq < from.FirstSeq || l.item.Seq > from.LastSeq:
			return fmt.Errorf("%w: the record of key %q is of entry %d, outside its run's %d to %d",
				errCorruptEntry, r.Key, l.item.Seq, from.FirstSeq, from.LastSeq)
		}
		return w.Add(l.item.Hash, l.item.Seq, l.item.Value)
	})
	if err != nil {
		return err
	}
	if run, err = w.Finish(run); err == nil {
		l.runs = append(l.runs, run)
	}
	return err
}
