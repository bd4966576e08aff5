package store

import (
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// checkOrphans expects each page to belong to an object of the newest snapshot, or to one
// that was created since. To be called before the log is redone.
func (c *partitionCheck) checkOrphans() {
	for _, object := range c.opened.deadObjects {
		if object <= c.opened.marks.filters {
			c.problem("the server deletes them after its next start, nothing is lost",
				"the pages of object %d belong to no key", object)
		}
	}
}

// checkPages expects no page to be newer than the log, each object that exists to have its
// pages, and these to hold what the log makes of the object, if it reaches back to its
// creation.
func (c *partitionCheck) checkPages() error {
	err := c.db.Pages(c.id, func(pg persistence.Page) error {
		c.report.Pages++
		if pg.Seq > c.redone.seq {
			c.problem(doRestore, "page %d of object %d is of entry %d, but the log ends at %d", pg.Number,
				pg.Object, pg.Seq, c.redone.seq)
		}
		return nil
	})
	for key, k := range c.opened.objects {
		is, ok := k.object().(*paged)
		old := c.redone.objects[key]
		if !ok || old == nil {
			continue
		}
		want, ok := old.object().(*paged)
		if ok && is.created == want.created && !is.misses() && !want.misses() &&
			!sketch.Equal(is.Sketch, want.Sketch) {
			c.problem(doRestore, "the pages of key %q and the log contradict each other", key)
		}
	}
	return err
}
