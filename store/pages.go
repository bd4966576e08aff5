package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// Sketches keep their state in pages (package sketch), which a checkpoint writes one by one:
//
//	pages.go      what is common to all sketches; loading their pages
//	saving.go     what a checkpoint does: writes dirty pages, deletes those of objects
//	              that are gone
//	fragments.go  how a change of more than 256 KiB is logged
//	countmin.go, bloom.go  the operations on the two types of sketches
//
// An object's pages are named after the sequence of its creation, which no other object
// of the partition ever has. A page that does not exist is zero. The snapshot file of the
// partition holds only this number and the options that the object was made with.
//
// One increment of a count-min sketch goes this way:
//
//	decide      execution.sketchIncrBy looks whether cells or count would overflow, and logs
//	            one entry: (item, delta) pairs
//	redo        adds the deltas to the cells, in those pages that lack the entry,
//	            and to the count, if the header lacks it. Live all pages do. The pages
//	            are dirty now and have the entry's sequence
//	checkpoint  at sequence S: capture takes the lists of dirty pages. writePages copies
//	            the pages as they are by then, a few at a time under the partition's lock,
//	            waits until that is committed, and commits them to Pebble. All are flushed
//	            before the snapshot of S is published and the log trimmed. So every page
//	            on disk reflects S or more, or has not changed between its sequence and S
//	recovery    loads the snapshot and then the pages of its objects, and redoes the log
//	            from S on: each page takes the entries behind its own sequence
//
// An object that was created behind S is made anew by redoing its creation and all that
// followed. Pages that it has on disk already are dropped: all that it needs is dirty.
// With the older snapshot, there may be objects whose pages are gone because the log
// deletes them later on. They ignore what is redone until then.

// paged is an object that keeps its state in pages: a sketch.
type paged struct {
	sketch.Sketch
	created uint64 // sequence of its creation
}

// sketchOf finds the sketch that a key holds; nil if the key does not exist. S is the type
// of the sketches of type t.
func sketchOf[S sketch.Sketch](x *turn, r *ref, t Type) (f S, err error) {
	o, err := objectOf[*paged](x, r, t)
	if o != nil {
		f = o.Sketch.(S)
	}
	return f, err
}

func (o *paged) bytes() uint64 { return o.Memory().Bytes() }
func (o *paged) release()      {}

func (o *paged) due(logged int64) bool {
	f, ok := o.Sketch.(*sketch.CountMin)
	return ok && f.Due(logged)
}

// upkeep logs that panes of a windowed sketch are turned, and pieces of one that are emptied.
func (o *paged) upkeep(x *turn, r *ref) error {
	f, ok := o.Sketch.(*sketch.CountMin)
	if !ok {
		return nil
	}
	for n, now := 0, x.at(r.p).logged; x.err == nil &&
		(f.PaneIsOver(now) || n < maxEvents && f.Due(now)); n++ {
		if err := x.world.reserveMore(eventRoom + len(r.key)); err != nil {
			return err
		}
		x.control = f.AppendUpkeep(x.control[:0], now)
		x.changeObject(r, x.control, 0)
	}
	return nil
}

// misses reports that the pages are not loaded yet, or not on disk: then the log deletes
// the object later on.
func (o *paged) misses() bool { return !o.Memory().Loaded() }

func (o *paged) redo(c change) error {
	if o.misses() {
		return nil
	}
	return o.Redo(c.what, c.seq)
}

// encode is what the snapshot file holds of a paged object: number u | options bytes. It
// is the same forever; what changes is in the pages.
func (o *paged) encode(*machine) io.Reader {
	return bytes.NewReader(coding.AppendBytes(binary.AppendUvarint(nil, o.created), o.Options()))
}

// decodePaged reads what encode wrote.
func decodePaged(in *bufio.Reader, maxOptions uint64) (created uint64, options []byte, err error) {
	created, err = binary.ReadUvarint(in)
	var size uint64
	if err == nil {
		size, err = binary.ReadUvarint(in)
	}
	if err == nil && (size > maxOptions || created == 0) {
		err = errors.New("out of range")
	}
	if err == nil {
		options, err = readAll(in, size)
	}
	if err != nil {
		err = fmt.Errorf("%w: object with pages: %w", errCorruptEntry, err)
	}
	return created, options, err
}

// beginPages gives the pages of a new object their name.
func (p *machine) beginPages(o object, seq uint64) {
	if o, ok := o.(*paged); ok {
		o.created = seq
		o.Memory().Created(seq)
	}
}

// endPages notes that the pages of an object must be deleted.
func (p *machine) endPages(o object) {
	switch o := o.(type) {
	case *paged:
		p.deadObjects = append(p.deadObjects, o.created)
	case *unreadable:
		if o.created > 0 {
			p.deadObjects = append(p.deadObjects, o.created)
		}
	}
}

// loadPages reads the pages of the objects that a snapshot has brought. An object of which one is
// refused becomes unreadable. The next checkpoint deletes the pages of others. pages calls fn for
// all of them.
func (p *machine) loadPages(pages func(fn func(persistence.Page) error) error) error {
	keys := make(map[uint64]*counter)
	for _, c := range p.objects {
		switch o := c.object().(type) {
		case *paged:
			keys[o.created] = c
		case *unreadable:
			keys[o.created] = c
		}
	}
	return pages(func(pg persistence.Page) error {
		c := keys[pg.Object]
		if c == nil {
			if n := len(p.deadObjects); n == 0 || p.deadObjects[n-1] != pg.Object {
				p.deadObjects = append(p.deadObjects, pg.Object)
			}
			return nil
		}
		o, ok := c.object().(*paged)
		if !ok {
			return nil
		}
		err, before := errors.New("it is older than its object"), o.bytes()
		if pg.Seq >= o.created {
			err = sketch.LoadPage(o.Sketch, pg.Number, pg.Seq, pg.Content)
		}
		p.memory.addObject(int64(o.bytes()) - int64(before))
		if err != nil {
			p.markUnreadable(c, fmt.Errorf("page %d: %w", pg.Number, err))
		}
		return nil
	})
}

// missesPages reports whether an object lacks pages that should have been on disk.
func (p *machine) missesPages() bool {
	for _, c := range p.objects {
		if o, ok := c.object().(*paged); ok && o.misses() {
			return true
		}
	}
	return false
}

// dirtyPages are pages of an object that a checkpoint is to write.
type dirtyPages struct {
	c    *counter
	o    *paged
	list []uint32
}

// takeDirtyPages takes the lists of dirty pages. The partition is locked.
func (p *machine) takeDirtyPages() (all []dirtyPages) {
	for _, c := range p.objects {
		if o, ok := c.object().(*paged); ok {
			if list := o.Memory().TakeDirty(); len(list) > 0 {
				all = append(all, dirtyPages{c, o, list})
			}
		}
	}
	return all
}

// isAt reports whether the key still holds the object.
func (d *dirtyPages) isAt() bool { return d.c.object() == object(d.o) }
