package store

import (
	"fmt"

	"github.com/fbfkv/fbfkv/persistence"
)

// checkPages examines the pages: each belongs to an object of the snapshot, and fits it, or to
// one that was created since; none is newer than the log; and an object that the log has
// not replaced since has pages.
func (p *partitionCheck) checkPages() error {
	objects := make(map[uint64]paged)
	var since uint64
	if p.snapshot != nil {
		since = p.snapshot.seq
		for _, c := range p.snapshot.keys {
			if o, ok := c.object().(paged); ok {
				o.inPages().missing = true
				objects[o.inPages().created] = o
			}
		}
	}
	err := p.db.Pages(p.id, func(pg persistence.Page) error {
		p.report.Pages++
		o := objects[pg.Object]
		if pg.Seq > p.last {
			p.problem(fmt.Sprintf("page %d of object %d is as of entry %d, but the log ends at %d", pg.Number, pg.Object, pg.Seq, p.last), doRestore)
		} else if o != nil {
			if err := loadPage(o, pg); err != nil {
				p.problem(fmt.Sprintf("page %d of object %d is damaged: %v", pg.Number, pg.Object, err), doRestore)
			}
		} else if pg.Object <= since {
			p.problem(fmt.Sprintf("page %d of object %d belongs to no key", pg.Number, pg.Object), "the server deletes it after its next start, nothing is lost")
		}
		return nil
	})
	if err != nil || p.flushed > since || p.snapshot == nil {
		return err
	}
	for _, c := range p.snapshot.keys {
		o, ok := c.object().(paged)
		if k := p.keys[c.key()]; ok && o.inPages().missing && (k == nil || k.last().seq <= since) {
			p.problem(fmt.Sprintf("the pages of key %q are missing", c.key()), doRestore)
		}
	}
	return nil
}
