package store

import (
	"github.com/tidwall/btree"
)

// unsavedKeys are the existing keys that rows do not show: counters that are not
// known to have one, and objects. SCAN finds them here, in order of position.
//
// Most new keys get their row before anyone scans. So they wait in a heap until
// someone does, and only then are put in order.
type unsavedKeys struct {
	ordered *btree.BTreeG[unsavedKey]
	// waiting are those not in order yet, and others that are unsaved no longer
	// (without isUnsaved); a key may be there twice.
	waiting []unsavedKey
	count   int
}

// unsavedKey is a key's place. The position stands beside the pointer, so that
// finding a place seldom touches another counter's memory.
type unsavedKey struct {
	pos uint64
	c   *counter
}

func newUnsavedKeys() unsavedKeys {
	return unsavedKeys{ordered: btree.NewBTreeGOptions(func(a, b unsavedKey) bool {
		if a.pos != b.pos {
			return a.pos < b.pos
		}
		return a.c.key() < b.c.key()
	}, btree.Options{NoLocks: true})}
}

// add takes in a key that has just got isUnsaved.
func (u *unsavedKeys) add(c *counter) {
	u.waiting = append(u.waiting, unsavedKey{c.pos, c})
	u.count++
}

// minSweep is how many keys that are unsaved no longer may always wait.
const minSweep = 1024

// remove lets go of a key that has just lost isUnsaved.
func (u *unsavedKeys) remove(c *counter) {
	u.ordered.Delete(unsavedKey{c.pos, c})
	if u.count--; len(u.waiting) > 2*u.count+minSweep {
		u.sweep()
	}
}

// sweep drops from those that wait what is unsaved no longer.
func (u *unsavedKeys) sweep() {
	kept := u.waiting[:0]
	for _, k := range u.waiting {
		if k.c.is&isUnsaved != 0 {
			kept = append(kept, k)
		}
	}
	clear(u.waiting[len(kept):])
	u.waiting = kept
}

// order puts up to n of those that wait in order, and reports whether that were
// all of them.
func (u *unsavedKeys) order(n int) (done bool) {
	for ; n > 0 && len(u.waiting) > 0; n-- {
		last := len(u.waiting) - 1
		if k := u.waiting[last]; k.c.is&isUnsaved != 0 {
			u.ordered.Set(k)
		}
		u.waiting[last] = unsavedKey{}
		u.waiting = u.waiting[:last]
	}
	return len(u.waiting) == 0
}

// orderPiece is how many keys are put in order under one acquisition of the
// partition's lock.
const orderPiece = 1024

// lockOrdered locks the partition with its unsaved keys in order.
func (p *partition) lockOrdered() {
	p.mu.Lock()
	for !p.hot.unsaved.order(orderPiece) {
		p.mu.Unlock()
		p.mu.Lock()
	}
}
