package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// Sketches keep their state in pages. A filter's bits may be set twice, so that an old copy
// of them does no harm. Counts may not be added twice, and a sketch of 80 MB is too large
// to be copied whole at each checkpoint. So a page carries the sequence of the last entry
// that it reflects, redo leaves out what a page has, and a checkpoint writes those pages
// that have changed:
//
//	pages        what an object embeds: its cells in one or more parts, cut into
//	             pages of 16 KiB, numbered from 1, and for each its sequence. Page 0 is
//	             the header: counts and sizes, encoded by the object
//	paged        what such an object does beside object's methods
//	savepages.go what a checkpoint does: writes dirty pages, deletes those of objects
//	             that are gone
//	fragments.go    how a change of more than 256 KiB is logged
//	countmin.go, bloom.go  the types of objects that have pages
//
// An object's pages are named after the sequence of its creation, which no other object
// of the partition ever has. A page that does not exist is zero. The snapshot file of the
// partition holds only this number and the options that the object was made with.
//
// One increment of a count-min sketch goes this way:
//
//	decide      decider.sketchIncrBy looks whether cells or count would overflow, and logs
//	            one entry: (item, delta) pairs
//	redo        adds the deltas to the cells, in those pages that lack the entry (takes),
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

// pageSize is how many bytes of cells a page holds. Cells of 1, 2, 4 or 8 bytes do not
// cross pages.
const pageSize = 16 << 10

// maxPagedBytes bounds the cells of an object, so that no options make a machine fail.
const maxPagedBytes = 64 << 30

// paged is an object that keeps its state in pages.
type paged interface {
	object
	// inPages returns its pages.
	inPages() *pages
	// header encodes page 0.
	header() []byte
	// open makes an object that was decoded from a snapshot what its page 0 says. Its
	// cells are zero.
	open(header []byte) error
}

// pages is the memory of a paged object.
type pages struct {
	created uint64 // sequence of its creation
	parts   []part
	page    []page
	dirty   []uint32 // pages that no checkpoint has taken yet
	turn    uint32   // counts entries
	missing bool     // they are not loaded yet, or not on disk: the log deletes the object later on
}

// page is what is known of a page.
type page struct {
	seq   uint64 // of the last entry that it reflects
	turn  uint32 // in which it took that
	dirty bool   // the page on disk reflects less
}

// part is a stretch of cells. Pages do not cross parts.
type part struct {
	first uint32 // its first page
	cells []byte
}

// addPart appends a part of zero cells, and the first time also the header.
func (ps *pages) addPart(bytes uint64) {
	first := max(1, len(ps.page))
	ps.parts = append(ps.parts, part{uint32(first), make([]byte, bytes)})
	ps.page = append(ps.page, make([]page, first+pagesOf(bytes)-len(ps.page))...)
}

// pagesOf is how many pages hold so many bytes of cells.
func pagesOf(bytes uint64) int { return int((bytes + pageSize - 1) / pageSize) }

// pagedBytes is what a part of so many bytes of cells takes of the memory for filters, with
// what is known of it and its pages.
func pagedBytes(bytes uint64) uint64 { return bytes + 64 + 16*uint64(pagesOf(bytes)) }

func (ps *pages) bytes() (n uint64) {
	for i := range ps.parts {
		n += pagedBytes(uint64(len(ps.parts[i].cells)))
	}
	return n
}

// pageAt is the page of the cell at an offset.
func (p *part) pageAt(offset uint64) uint32 { return p.first + uint32(offset/pageSize) }

// begin begins to redo an entry.
func (ps *pages) begin() { ps.turn++ }

// takes reports whether a page lacks the entry that is being redone, so that it is to be
// changed, and notes that. An entry may change a page several times.
func (ps *pages) takes(n uint32, seq uint64) bool {
	p := &ps.page[n]
	if p.seq >= seq && p.turn != ps.turn {
		return false
	}
	p.seq, p.turn = seq, ps.turn
	if !p.dirty {
		p.dirty = true
		ps.dirty = append(ps.dirty, n)
	}
	return true
}

// of returns the cells of a page other than the header.
func (ps *pages) of(n uint32) []byte {
	i := len(ps.parts) - 1
	for ps.parts[i].first > n {
		i--
	}
	from := int(n-ps.parts[i].first) * pageSize
	cells := ps.parts[i].cells
	return cells[from:min(from+pageSize, len(cells))]
}

// encode is what the snapshot file holds of a paged object: number u | options bytes. It
// is the same forever; what changes is in the pages.
func (ps *pages) encode(options []byte) io.Reader {
	return bytes.NewReader(appendBytes(binary.AppendUvarint(nil, ps.created), options))
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
func (p *partition) beginPages(o object, seq uint64) {
	if o, ok := o.(paged); ok {
		ps := o.inPages()
		ps.created = seq
		ps.begin()
		ps.takes(0, seq)
	}
}

// endPages notes that the pages of an object are to be deleted.
func (p *partition) endPages(o object) {
	if o, ok := o.(paged); ok {
		p.goners = append(p.goners, o.inPages().created)
	}
}

// loadPages reads the pages of the objects that a snapshot has brought. Pages of others
// are to be deleted.
func (p *partition) loadPages(db *persistence.DB) error {
	objects := make(map[uint64]paged)
	for _, c := range p.objects {
		if o, ok := c.object().(paged); ok {
			ps := o.inPages()
			objects[ps.created] = o
			p.pool.used.Add(-int64(o.bytes()))
		}
	}
	err := db.Pages(p.id, func(pg persistence.Page) error {
		o := objects[pg.Object]
		if o == nil {
			if n := len(p.goners); n == 0 || p.goners[n-1] != pg.Object {
				p.goners = append(p.goners, pg.Object)
			}
			return nil
		}
		if err := loadPage(o, pg); err != nil {
			return fmt.Errorf("%w: page %d of object %d: %w", persistence.ErrCorrupt, pg.Number, pg.Object, err)
		}
		return nil
	})
	for _, o := range objects {
		p.pool.used.Add(int64(o.bytes()))
	}
	return err
}

// loadPage puts a page from the disk into an object.
func loadPage(o paged, pg persistence.Page) error {
	ps := o.inPages()
	switch {
	case pg.Seq < ps.created:
		return errors.New("it is older than its object")
	case pg.Number == 0:
		ps.missing = false
		if err := o.open(pg.Content); err != nil {
			return err
		}
	case ps.missing:
		return errors.New("there is no header before it")
	case pg.Number >= uint32(len(ps.page)) || len(pg.Content) != len(ps.of(pg.Number)):
		return errors.New("it is beyond the end")
	default:
		copy(ps.of(pg.Number), pg.Content)
	}
	ps.page[pg.Number] = page{seq: pg.Seq}
	return nil
}

// missesPages returns a key whose object should have had pages on disk; false if there
// is none. After the log is redone nothing excuses that any more.
func (p *partition) missesPages() (key string, yes bool) {
	for _, c := range p.objects {
		if o, ok := c.object().(paged); ok && o.inPages().missing {
			return c.key(), true
		}
	}
	return "", false
}

// dirtyPages are pages of an object that a checkpoint is to write.
type dirtyPages struct {
	c    *counter
	o    paged
	list []uint32
}

// takeDirtyPages takes the lists of dirty pages, sorted. The partition is locked.
func (p *partition) takeDirtyPages() (all []dirtyPages) {
	for _, c := range p.objects {
		o, ok := c.object().(paged)
		if !ok || len(o.inPages().dirty) == 0 {
			continue
		}
		list := o.inPages().dirty
		o.inPages().dirty = nil
		slices.Sort(list)
		all = append(all, dirtyPages{c, o, list})
	}
	return all
}

// isAt reports whether the key still holds the object.
func (d *dirtyPages) isAt() bool { return d.c.object() == object(d.o) }
