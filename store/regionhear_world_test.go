package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store/part"
)

// hearWorld is three regions, each with the store of one, that read each other's logs. Each
// partition is a world of its own, with a key of its own.
type hearWorld struct {
	t      *testing.T
	stores [3]*Store
	fs     [3]*vfs.MemFS
	clocks [3]*fakeClock
	keys   []string // by partition
	taken  map[[2]part.Region][]uint64
}

func newHearWorld(t *testing.T, partitions int) *hearWorld {
	w := &hearWorld{t: t, keys: make([]string, partitions), taken: make(map[[2]part.Region][]uint64)}
	for i := range w.stores {
		w.fs[i], w.clocks[i] = vfs.NewMem(), newFakeClock()
		w.open(i, partitions)
		must(t, w.stores[i].SetRegions(threeRegions(part.Region(i), partitions)))
	}
	for n, i := 0, 0; n < partitions; i++ {
		key := fmt.Sprint("k", i)
		if p := int(Slot([]byte(key))) >> partitionShift(partitions); w.keys[p] == "" {
			w.keys[p] = key
			n++
		}
	}
	for _, pair := range w.pairs() {
		w.taken[pair] = make([]uint64, partitions)
	}
	return w
}

func (w *hearWorld) open(i, partitions int) {
	w.stores[i] = testStore(w.t, func(o *Options) {
		o.FS, o.Clock, o.Partitions = w.fs[i], w.clocks[i].now, partitions
		o.LogFileSize = 64 << 20 // nothing is trimmed
	})
}

// pairs are who reads whose log.
func (w *hearWorld) pairs() (pairs [][2]part.Region) {
	for to := range part.Region(3) {
		for from := range part.Region(3) {
			if to != from {
				pairs = append(pairs, [2]part.Region{to, from})
			}
		}
	}
	return pairs
}

// pull has one region take what another's log has of a partition, up to so many sections that
// it has not taken yet, in one batch. It reports whether they brought anything.
func (w *hearWorld) pull(pair [2]part.Region, partition, sections int) bool {
	w.t.Helper()
	to, from, after := w.stores[pair[0]], w.stores[pair[1]], &w.taken[pair][partition]
	changes, heard, wall := []Change(nil), []Op(nil), int64(0)
	read := from.db.Log().Tail(uint16(partition), *after+1, func(seq uint64, content []byte) error {
		if sections == 0 {
			return errEnough
		}
		sections--
		rd, err := newSectionReader(content)
		if err != nil {
			return err
		}
		wall = rd.at.wall
		for ; ; seq++ {
			e := new(entry)
			if rd.id = nil; !rd.next(e) {
				break
			}
			*after = seq
			if ch, ok := e.change(pair[1], seq); ok && e.told(pair[1]) {
				changes = append(changes, ch)
			}
			if e.kind == entryApply {
				heard = append(heard, Op{Kind: regionHear, ID: append([]byte(nil), e.id...), Object: &Heard{
					Origin: pair[1], Dot: seq, Wall: rd.at.wall, Delta: e.delta, Clip: e.clip,
					Result: e.value,
				}})
			}
		}
		return rd.err()
	})
	if !errors.Is(read, errEnough) {
		must(w.t, read)
	}
	if len(changes)+len(heard) == 0 {
		return false // cursors of a region that took something: who logs its own for that never ends
	}
	b := Batch{Atomic: true}
	key := []byte(w.keys[partition])
	if len(changes) > 0 {
		op := b.Add(regionMerge)
		op.Key, op.Object = key, changes
	}
	for _, h := range heard {
		op := b.Add(regionHear)
		op.Key, op.ID, op.Object = key, h.ID, h.Object
	}
	op := b.Add(regionCursor)
	op.Delta = int64(partition)
	op.Object = &RegionCursor{RegionTaken: RegionTaken{RegionSource{pair[1], uint16(partition)}, *after},
		Wall: wall}
	to.Execute(&b)
	for _, op := range b.Ops {
		must(w.t, op.Err)
	}
	return true
}

// TestTwinsConverge has up to three regions apply one opid, with all orders of their times,
// equal ones too, and different increments, and exchange what they did in orders of which some
// hundred are drawn: wholly, or a section at a time, with a store opened again in between. In the end
// each of them shows the increment of the one that applied it first, and knows only that, each
// other application was taken back once, and no store ever changes again.
func TestTwinsConverge(t *testing.T) {
	const partitions = 64
	for round := range uint64(3) {
		rnd := rand.New(rand.NewPCG(20, round))
		w := newHearWorld(t, partitions)
		start := int64(1_700_000_000_000)
		// walls are when each region applies; -1: it does not.
		walls, deltas := make([][3]int, partitions), [3]int64{3, 50, 700}
		for p := range walls {
			for r := range walls[p] {
				walls[p][r] = rnd.IntN(4) - 1
			}
		}
		for now := range 3 {
			for r, s := range w.stores {
				w.clocks[r].advance(time.Millisecond)
				for p, key := range w.keys {
					if walls[p][r] == now {
						wantOp(t, cincr(s, key, "x", deltas[r]), deltas[r], true)
					}
				}
			}
		}
		for p := range partitions {
			for n := range 2 + rnd.IntN(16) {
				w.pull(w.pairs()[rnd.IntN(6)], p, 1+rnd.IntN(3))
				if n == 3 && p%16 == 0 {
					i := rnd.IntN(3)
					w.stores[i].CloseNow()
					w.open(i, partitions)
				}
			}
		}
		for more := true; more; {
			more = false
			for _, pair := range w.pairs() {
				for p := range partitions {
					more = w.pull(pair, p, math.MaxInt) || more
				}
			}
		}
		for p, key := range w.keys {
			first, n := -1, uint64(0)
			for r, at := range walls[p] {
				if at >= 0 {
					if n++; first < 0 || at < walls[p][first] {
						first = r
					}
				}
			}
			for r, s := range w.stores {
				v, found := get(s, key)
				op := s.cseenOf(key)
				if first < 0 {
					if found || op.Found {
						t.Fatalf("%v: region %d has %d", walls[p], r, v)
					}
					continue
				}
				seen := op.Seen
				if !seen.Other {
					seen.Region = part.Region(r)
				}
				if v != deltas[first] || seen.Delta != deltas[first] || seen.Result != deltas[first] ||
					seen.Region != part.Region(first) || seen.UnixMs != start+1+int64(walls[p][first]) {
					t.Fatalf("round %d, partition %d: regions applied at %v; region %d shows %d and knows %+v", round, p, walls[p], r, v, seen)
				}
				if lost := walls[p][r] >= 0 && r != first; lost != (seen.Taken != 0) {
					t.Fatalf("partition %d: regions applied at %v; region %d has taken back: %v", p, walls[p],
						r, !lost)
				}
			}
		}
	}
}

func (s *Store) cseenOf(key string) Op {
	return do(s, Op{Kind: CSeen, Key: []byte(key), ID: []byte("x")})
}
