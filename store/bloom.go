package store

import (
	"bufio"
	"errors"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/store/sketch"
)

// The operations on Bloom filters; see Kind. Package sketch describes the filters.
const (
	// BFReserve creates the filter Key. In: Key, Object: *BloomOptions.
	BFReserve Kind = firstBloomKind + iota
	// BFAdd adds Keys (items) to the filter Key in turn, creating it unless NoCreate, with
	// Object: *BloomOptions. Out: Founds[i] if item i was present before; Fulls[i] if it
	// was not added: the filter is NONSCALING and full (then Found is set, and the answers
	// end with this item), or cannot grow.
	BFAdd
	// BFCAdd is BFAdd of at most MaxCAdd items, all or none, once per ID, in an EXACT
	// table. In: Key, ID, Keys, Object as BFAdd, At if HasAt. Out: Founds, of a duplicate
	// the first ones; Applied.
	BFCAdd
	// BFLoad is LOADCHUNK. It creates the filter Key if Delta, the iterator, is 1 and there is
	// no such filter, and otherwise writes into it. In: Key, Delta, Keys[0]: header or bits.
	BFLoad
	// BFExists tests Keys (items); a key that holds no filter has none. Out: Founds.
	BFExists
	// BFDump is SCANDUMP. In: Key, Delta: the iterator; Deltas[0]: bytes at most. Out:
	// Value: the next iterator; Object: []byte. BadArgument as BFInfo.
	BFDump
	// BFCard counts the items that were new to the filter Key. Out: Value.
	BFCard
	// BFInfo describes the filter Key. Out: Object: *BloomInfo. An Object that is a
	// *BadArgument is answered if there is a filter.
	BFInfo

	firstBloomKind = Kind(TypeBloom) * kindsPerType
)

// The refusals of operations on Bloom filters; see ErrOpIDSize. FBF keys share
// ErrFilterExists and ErrNoFilter.
var (
	ErrBloomData   = errors.New("received bad data")
	ErrBloomFull   = errors.New("non scaling filter is full")
	ErrBloomGrowth = errors.New("problem inserting into filter")
	ErrBloomMemory = errors.New("Insufficient memory to create filter")
	ErrNeedsExact  = errors.New("BF.CADD needs a table of MODE EXACT")
	ErrManyCAdd    = fmt.Errorf("BF.CADD takes at most %d items", MaxCAdd)
	ErrBloomOffset = sketch.ErrChunkOffset
	ErrBloomChunk  = sketch.ErrChunkLength
)

// MaxCAdd is how many items BFCAdd takes: what it answers is a bit for each in a record.
const MaxCAdd = 64

// BloomOptions are the parameters of a Bloom filter; BloomInfo describes one.
type (
	BloomOptions = sketch.BloomOptions
	BloomInfo    = sketch.BloomInfo
)

// bloomType is the type of Bloom filters.
type bloomType struct{}

func (bloomType) kinds() []kind {
	return []kind{
		// also a tombstone
		BFReserve - firstBloomKind: {is: writes, entries: 2, fields: sketch.NewBloomBytes,
			turn: (*turn).bloomReserve},
		// An item may also need a sub-filter.
		BFAdd - firstBloomKind: {is: writes | logsItems, entries: 2, fields: sketch.NewBloomBytes,
			turn: (*turn).bloomAdd},
		// and the opid
		BFCAdd - firstBloomKind: {is: writes | hasID | logsItems, entries: 3, fields: sketch.NewBloomBytes,
			turn: (*turn).bloomCAdd},
		BFLoad - firstBloomKind:   {is: writes, entries: 1, turn: (*turn).bloomLoad},
		BFExists - firstBloomKind: {is: ofKeys, turn: (*turn).bloomExists},
		BFDump - firstBloomKind:   {is: ofKeys, turn: (*turn).bloomDump},
		BFCard - firstBloomKind:   {is: ofKeys, turn: (*turn).bloomInfo},
		BFInfo - firstBloomKind:   {is: ofKeys, turn: (*turn).bloomInfo},
	}
}

// create makes the filter that a header describes, without its bits.
func (bloomType) create(header []byte, _ moment) (object, error) {
	f, err := sketch.NewBloom(header)
	return &paged{Sketch: f}, err
}

func (bloomType) decode(in *bufio.Reader, _ uint64) (object, error) {
	created, _, err := decodePaged(in, 0)
	return &paged{new(sketch.Bloom), created}, err
}

// bloomOf finds the operation's filter; nil if its key does not exist.
func (x *turn) bloomOf(op *Op) (r *ref, f *sketch.Bloom, err error) {
	r = &x.of(op)[0]
	f, err = sketchOf[*sketch.Bloom](x, r, TypeBloom)
	return r, f, err
}

func (x *turn) bloomReserve(op *Op) error {
	r, f, err := x.bloomOf(op)
	if err != nil {
		return err
	}
	if f != nil {
		return ErrFilterExists
	}
	return x.reserveBloom(r, op)
}

// newBloom returns the filter that the operation would create, without its bits.
func newBloom(op *Op) (header []byte, f *sketch.Bloom, err error) {
	o := BloomOptions{Error: 0.01, Capacity: 100, Expansion: 2}
	if p, _ := op.Object.(*BloomOptions); p != nil {
		o = *p
	}
	header, ok := sketch.AppendBloom(nil, o)
	if !ok {
		return nil, nil, ErrBloomMemory
	}
	f, err = sketch.UnloadedBloom(header)
	return header, f, err
}

// reserveBloom logs the creation of a filter, if the memory is there.
func (x *turn) reserveBloom(r *ref, op *Op) error {
	header, f, err := newBloom(op)
	if err != nil {
		return err
	}
	if err = x.createObject(r, TypeBloom, f.Needs(), header); errors.Is(err, ErrOutOfMemory) {
		err = ErrBloomMemory
	}
	return err
}

// bloomAdd adds the items that are new, one after another.
func (x *turn) bloomAdd(op *Op) error {
	r, f, err := x.bloomOf(op)
	if err != nil {
		return err
	}
	x.beginLarge(r.p)
	if f == nil {
		if op.Flags&NoCreate != 0 {
			return ErrNoFilter
		}
		if err := x.reserveBloom(r, op); err != nil {
			return err
		}
		_, f, _ = x.bloomOf(op)
	}
	var added uint64 // since the last entry, to the last sub-filter
	for _, item := range op.Keys {
		a, b := sketch.HashItem(item)
		present, full := f.Contains(a, b), false
		if !present && (f.Room() == added || len(x.control) > maxChange) {
			added = x.logItems(r, added)
			full = f.Room() == 0 && !x.growBloom(r, f)
		}
		if !present && !full {
			if added == 0 {
				x.control = f.AppendItems(x.control[:0])
			}
			f.SetAhead(a, b)
			x.control = sketch.AppendItem(x.control, a, b)
			added++
		}
		op.Founds, op.Fulls = append(op.Founds, present), append(op.Fulls, full)
		if full && f.NonScaling() {
			op.Found = true
			break
		}
	}
	x.logItems(r, added)
	return nil
}

// logItems logs the items in x.control, unless there are none, of which there are none now.
func (x *turn) logItems(r *ref, n uint64) uint64 {
	if n > 0 {
		x.changeObject(r, x.control, 0)
	}
	x.control = x.control[:0]
	return 0
}

// growBloom logs that a sub-filter is added; false if there cannot be one.
func (x *turn) growBloom(r *ref, f *sketch.Bloom) bool {
	next, err := x.roomForItems(r, f, 1, 0)
	if err == nil {
		x.control = sketch.AppendGrowth(x.control[:0], next[0])
		x.changeObject(r, x.control, 0)
	}
	return err == nil
}

// roomForItems returns the sub-filters to be added so that n more items have room, if the
// memory for them is there, and the space in the log. create is the memory that it takes to
// create the filter, if there is none yet.
func (x *turn) roomForItems(r *ref, f *sketch.Bloom, n int, create uint64) ([]sketch.SubFilter, error) {
	next, bytes, ok := f.Next(uint64(n))
	if !ok && f.NonScaling() {
		return nil, ErrBloomFull
	}
	if !ok {
		return nil, ErrBloomGrowth
	}
	if err := x.world.reserveMore(len(next) * (entryRoom + len(r.key) + sketch.GrowthBytes)); err != nil {
		return nil, err
	}
	pl := planner{memory: r.p.memory, ofObject: true}
	switch {
	case pl.grant(bytes + create):
	case create > 0:
		return nil, ErrBloomMemory
	default:
		return nil, ErrBloomGrowth
	}
	pl.settle()
	return next, nil
}

// bloomCAdd adds items once per opid, all or none; its checks come in the order of cIncrBy's.
func (x *turn) bloomCAdd(op *Op) error {
	r, f, wrong := x.bloomOf(op)
	if len(op.Keys) > MaxCAdd {
		return ErrManyCAdd
	}
	if r.t.def.Mode != Exact {
		return ErrNeedsExact // there would be no record of the answers
	}
	r.judgeAgain(op.ID)
	if err := x.checkTime(op, r); err != nil {
		return err
	}
	op.Delta = sketch.Fingerprint(op.Keys, nil)
	if r.verdict == verdictSeen { // a filter of times when the table was APPROX knows no BFCAdd
		err := x.duplicateItems(op, r)
		for i := range op.Keys {
			op.Founds = append(op.Founds, op.Value>>i&1 == 0)
		}
		return err
	}
	if wrong != nil {
		return wrong
	}
	var header []byte
	var create uint64
	exists := f != nil
	if !exists {
		var err error
		if header, f, err = newBloom(op); err != nil {
			return err
		}
		create = f.Needs()
	}
	var items [MaxCAdd][2]uint64
	n, answer := 0, int64(0)
	for i, item := range op.Keys {
		a, b := sketch.HashItem(item)
		found := exists && f.Contains(a, b) || slices.Contains(items[:n], [2]uint64{a, b})
		if op.Founds = append(op.Founds, found); !found {
			items[n] = [2]uint64{a, b}
			n, answer = n+1, answer|1<<i
		}
	}
	next, err := x.roomForItems(r, f, n, create)
	if err == nil {
		err = x.makeRoom(r)
	}
	if err == nil && !exists {
		if err = x.createObject(r, TypeBloom, create, header); err == nil {
			_, f, err = x.bloomOf(op)
		}
	}
	if err != nil {
		return err
	}
	x.addToBloom(r, f, items[:n], next)
	x.rememberOp(op, r, answer)
	return nil
}

// addToBloom logs items that are new, and the sub-filters that they need.
func (x *turn) addToBloom(r *ref, f *sketch.Bloom, items [][2]uint64, next []sketch.SubFilter) {
	for len(items) > 0 && x.err == nil {
		if n := min(uint64(len(items)), f.Room()); n > 0 {
			x.control = f.AppendItems(x.control[:0])
			for _, item := range items[:n] {
				x.control = sketch.AppendItem(x.control, item[0], item[1])
			}
			items = items[n:]
		} else {
			x.control, next = sketch.AppendGrowth(x.control[:0], next[0]), next[1:]
		}
		x.changeObject(r, x.control, 0)
	}
}

func (x *turn) bloomExists(op *Op) error {
	_, f, err := x.bloomOf(op)
	for _, item := range op.Keys {
		op.Founds = append(op.Founds, err == nil && f != nil && f.Contains(sketch.HashItem(item)))
	}
	return nil
}

// bloomInfo is BFInfo and BFCard.
func (x *turn) bloomInfo(op *Op) error {
	_, f, err := x.bloomOf(op)
	switch {
	case err != nil:
		return err
	case f == nil && op.Kind == BFCard:
		return nil
	case f == nil:
		return ErrNoFilter
	case op.badArgument(1) != nil:
		return op.badArgument(1)
	}
	info := f.Info()
	op.Value, op.Object = int64(info.Size), info
	return nil
}

func (x *turn) bloomDump(op *Op) error {
	_, f, err := x.bloomOf(op)
	switch {
	case err != nil:
		return err
	case f == nil:
		return ErrNoFilter
	case op.badArgument(1) != nil:
		return op.badArgument(1)
	}
	op.Value, op.Object = f.Chunk(op.Delta, uint64(max(op.Deltas[0], 1)))
	return nil
}

// bloomLoad is LOADCHUNK.
func (x *turn) bloomLoad(op *Op) error {
	r, f, err := x.bloomOf(op)
	switch {
	case err != nil:
		return err
	case f == nil && op.Delta != 1:
		return ErrNoFilter
	case f == nil:
		return x.loadBloomHeader(r, op.Keys[0])
	}
	what, err := f.AppendChunk(nil, op.Delta, op.Keys[0])
	if err != nil {
		return bloomRefusal(err)
	}
	return x.changeLarge(r, what)
}

func (x *turn) loadBloomHeader(r *ref, header []byte) error {
	f, err := sketch.UnloadedBloom(header)
	if err != nil {
		return bloomRefusal(err)
	}
	if err := x.world.reserveMore(2 * (entryRoom + len(header) + len(r.key))); err != nil {
		return err
	}
	if err = x.createObject(r, TypeBloom, f.Needs(), header); errors.Is(err, ErrOutOfMemory) {
		err = ErrBloomData
	}
	return err
}

// bloomRefusal is what a client is told of an error of package sketch.
func bloomRefusal(err error) error {
	if errors.Is(err, sketch.ErrCorrupt) {
		return ErrBloomData
	}
	return err
}
