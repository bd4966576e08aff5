package compare

import (
	"fmt"

	"github.com/fbfkv/fbfkv/fbf"
)

// forgetfulWindow is package fbf with its controller at work.
type forgetfulWindow struct {
	f     *fbf.Filter
	batch bool
	hs    [Block]uint64
	seen  [Block]bool
}

// forgetful is package fbf, id by id or in batches.
func forgetful(name string, target float64, batch bool) Contestant {
	options := func(ids uint64) fbf.Options {
		return fbf.Options{Window: int64(ids), Error: target, Capacity: ids}
	}
	return Contestant{
		Name:  name,
		Bytes: func(ids uint64) uint64 { return options(ids).InitialBytes() },
		New: func(ids uint64) (Window, error) {
			f, err := fbf.New(options(ids), 0)
			if err != nil {
				return nil, fmt.Errorf("window of %d ids: %w", ids, err)
			}
			return &forgetfulWindow{f: f, batch: batch}, nil
		},
	}
}

// plan carries out what the controller decides before a block.
func (w *forgetfulWindow) plan(n int, now int64) {
	if !w.f.Due(now) && w.f.Room() >= uint64(n) {
		return
	}
	for {
		e, ok := w.f.Plan(now, func(uint64) bool { return true })
		if !ok {
			return
		}
		if err := w.f.Apply(e); err != nil {
			panic(err) // Plan's own event: a defect of the library
		}
	}
}

func (w *forgetfulWindow) CheckAndInsert(ids []ID, now int64, present []bool) {
	w.plan(len(ids), now)
	if w.batch {
		for i, id := range ids {
			w.hs[i] = id[0]
		}
		w.f.CheckAndInsertBatch(w.hs[:len(ids)], now, present)
		return
	}
	for i, id := range ids {
		present[i] = w.f.CheckAndInsert(id[0], now)
	}
}

// Insert goes through the batch, which is faster than inserting without a look id by id.
func (w *forgetfulWindow) Insert(ids []ID, now int64) {
	w.plan(len(ids), now)
	for i, id := range ids {
		w.hs[i] = id[0]
	}
	w.f.CheckAndInsertBatch(w.hs[:len(ids)], now, w.seen[:])
}

func (w *forgetfulWindow) Contains(id ID) bool { return w.f.Contains(id[0]) }

func (w *forgetfulWindow) Bytes() uint64 { return w.f.Bytes() }

func (w *forgetfulWindow) Release() { w.f.Release() }
