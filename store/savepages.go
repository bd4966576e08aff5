package store

import (
	"errors"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/sketch"
)

const (
	// pagesPiece is how many pages are copied under one acquisition of the partition's
	// lock.
	pagesPiece = 4
	// pagesCommit is how many are written with one commit.
	pagesCommit = 256
)

// pagesWritten is what one commit writes.
type pagesWritten struct {
	upTo        point // of the last entry that may be in it
	pages       []dirtyPages
	deadObjects []uint64
}

// errSpoiled ends a checkpoint whose snapshot has an object that has become unreadable since: its
// pages are not written any more, and the change that was refused may have changed some. A later
// version, which could redo that change, would take them for whole.
var errSpoiled = errors.New("a key has become unreadable while it was saved")

// writePages writes the pages that were dirty when the checkpoint began, and deletes those
// of objects that are gone. A page may be newer than the checkpoint: it carries its own
// sequence. Nothing is written before it is committed (R1, G4).
func (c *checkpoint) writePages() error {
	b := c.s.db.NewChanges()
	for {
		w := c.capturePages(b)
		if c.spoiled {
			c.p.pagesFailed(&w)
			return errSpoiled
		}
		if b.Empty() {
			return nil
		}
		err := w.upTo.wait()
		if err == nil {
			err = c.s.commit(b)
		}
		if err != nil {
			c.p.pagesFailed(&w)
			return err
		}
	}
}

// capturePages puts the next dirty pages into a commit, as they are now.
func (c *checkpoint) capturePages(b *persistence.Changes) (w pagesWritten) {
	p := c.p
	for n := 0; n < pagesCommit; n += pagesPiece {
		p.mu.Lock()
		for _, object := range p.deadObjects {
			b.DropPages(p.id, object, object)
		}
		w.deadObjects, p.deadObjects = append(w.deadObjects, p.deadObjects...), nil
		for range pagesPiece {
			c.capturePage(b, &w)
		}
		w.upTo = p.here()
		p.mu.Unlock()
		if len(c.pages) == 0 {
			break
		}
		c.giveWay()
	}
	return w
}

// capturePage puts the next dirty page into a commit, unless its object is gone. The
// partition is locked.
func (c *checkpoint) capturePage(b *persistence.Changes, w *pagesWritten) {
	for len(c.pages) > 0 {
		d := &c.pages[0]
		if len(d.list) == 0 || !d.isAt() {
			u, is := d.c.object().(*unreadable)
			c.spoiled = c.spoiled || is && len(d.list) > 0 && u.created == d.o.created
			c.pages = c.pages[1:]
			continue
		}
		n := d.list[0]
		d.list = d.list[1:]
		seq, content := sketch.TakePage(d.o.Sketch, n)
		b.PutPage(c.p.id, persistence.Page{Object: d.o.created, Number: n, Seq: seq, Content: content})
		if last := len(w.pages) - 1; last < 0 || w.pages[last].o != d.o {
			w.pages = append(w.pages, dirtyPages{c: d.c, o: d.o})
		}
		at := &w.pages[len(w.pages)-1]
		at.list = append(at.list, n)
		return
	}
}

// pagesFailed makes what a failed commit was to write dirty again.
func (p *partition) pagesFailed(w *pagesWritten) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadObjects = append(w.deadObjects, p.deadObjects...)
	for _, d := range w.pages {
		d.o.Memory().NotWritten(d.list)
	}
}

// giveBackPages lets the next checkpoint write the pages that this one did not. The
// partition is locked.
func (c *checkpoint) giveBackPages() {
	for _, d := range c.pages {
		d.o.Memory().GiveBack(d.list)
	}
	c.pages = nil
}
