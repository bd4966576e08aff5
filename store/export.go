package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// ExportOptions configure an Export.
type ExportOptions struct {
	FS  vfs.FS // nil: the operating system's
	Dir string
}

// Exported is a counter that Export has found.
type Exported struct {
	Key    []byte // borrowed
	Value  int64  // in steps of its table's scale, as AppendDecimal takes them
	Scale  uint8
	Expire int64 // unix ms; 0: never
}

// Export gives fn the counters of a data directory that no server has open, in no order, and
// changes nothing there. It reads a damaged op log up to the damage; damage says where that is. The
// counters are then as they were there, or as a later checkpoint has saved them. err says why
// Export ended early; it may be an error of fn.
func Export(o ExportOptions, fn func(c Exported) error) (damage []error, err error) {
	db, err := persistence.OpenReadOnly(persistence.Options{FS: o.FS, Dir: o.Dir, Salvage: true,
		Fatal: func(error) {}})
	if err != nil {
		return nil, err
	}
	if err := db.Log().Damage(); err != nil {
		damage = append(damage, err)
	}
	for i := range db.Meta().Partitions {
		found, failed := exportPartition(db, uint16(i), fn)
		if found != nil {
			damage = append(damage, fmt.Errorf("partition %d: %w", i, found))
		}
		if err = failed; err != nil {
			break
		}
	}
	return damage, errors.Join(err, db.Close())
}

// exportPartition redoes the log behind the last checkpoint in memory. Rows have all else.
func exportPartition(db *persistence.DB, id uint16, fn func(c Exported) error) (damage, err error) {
	meta := db.Meta()
	p := newPartition(id, meta.Partitions, newHashes(meta.Seed), 0, new(memoryPool), db)
	defer p.release()
	state, err := p.loadState(db)
	if err != nil {
		return err, nil
	}
	p.forgoFilters()
	p.catalog, p.marks.catalog = state.catalog, state.seq // whose scales count
	p.logIsWhole, p.marks.records = state.seq == 0, 1<<64-1
	g := newRedoGroup(&p.machine, group)
	damage = db.Log().Read(id, p.seq+1, func(seq uint64, content []byte) error {
		_, err := g.addAll(seq, content)
		return err
	})
	if p.gone || p.marks.adopt > 0 {
		return damage, nil // another shard has it, or its files are still to be taken
	}
	now := time.Now().UnixMilli()
	give := func(key []byte, value, expire int64) {
		if err == nil && (expire == 0 || expire > now) {
			c := Exported{Key: key, Value: value, Expire: expire}
			if p.catalog != nil { // damage may be before it
				c.Scale = p.scaleOf(key)
			}
			err = fn(c)
		}
	}
	for c := range p.hot.table.all {
		if c.kind == TypeCounter {
			give([]byte(c.key()), c.value, c.expire)
		}
	}
	var bad, later error
	from, to := p.rowRange()
	failed := db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
		var r row
		if r, bad = decodeRow(value); bad != nil {
			return false
		}
		if r.kind == TypeCounter && r.seq > p.floor && p.hot.peek(string(k.Key)) == nil {
			if r.seq > p.seq && later == nil {
				later = fmt.Errorf("counters such as %q were saved after what can be read of the log: if a SCALE "+
					"was set meanwhile, their values are in its steps", k.Key)
			}
			give(k.Key, r.value, r.expire)
		}
		return err == nil
	})
	return errors.Join(damage, later, bad), errors.Join(err, failed)
}
