package store

import (
	"bufio"
	"errors"

	"github.com/fbfkv/fbfkv/store/sketch"
)

// The operations on Bloom filters; see Kind. What a filter is, package sketch says.
const (
	// BFReserve creates the filter Key. In: Key, Object: *BloomOptions.
	BFReserve Kind = firstBloomKind + iota
	// BFAdd adds Keys (items) to the filter Key in turn, creating it unless NoCreate, with
	// Object: *BloomOptions. Out: Founds[i] if item i was present before; Fulls[i] if it
	// was not added: the filter is NONSCALING and full (then Found is set, and the answers
	// end with this item), or cannot grow.
	BFAdd
	// BFLoad is LOADCHUNK: it creates the filter Key if Delta, the iterator, is 1 and there
	// is none, and otherwise writes into it. In: Key, Delta, Keys[0]: header or bits.
	BFLoad
	// BFExists tests Keys (items); a key that holds no filter has none. Out: Founds.
	BFExists
	// BFDump is SCANDUMP. In: Key, Delta: the iterator; Deltas[0]: bytes at most. Out:
	// Value: the next iterator; Object: []byte.
	BFDump
	// BFInfo describes the filter Key. Out: Object: *BloomInfo.
	BFInfo

	firstBloomKind = Kind(TypeBloom) * kindsPerType
)

// The refusals of operations on Bloom filters; see ErrOpIDSize. ErrFilterExists and
// ErrNoFilter are those of FBF keys.
var (
	ErrBloomData   = errors.New("received bad data")
	ErrBloomOffset = sketch.ErrChunkOffset
	ErrBloomChunk  = sketch.ErrChunkLength
)

// BloomOptions are the parameters of a Bloom filter; BloomInfo describes one.
type (
	BloomOptions = sketch.BloomOptions
	BloomInfo    = sketch.BloomInfo
)

// bloomType is the type of Bloom filters.
type bloomType struct{}

func (bloomType) kinds() []kind {
	return []kind{
		BFReserve - firstBloomKind: {is: writes, entries: 2, fields: sketch.NewBloomBytes, turn: (*decider).bloomReserve}, // also a tombstone
		// An item may need a sub-filter, too.
		BFAdd - firstBloomKind:    {is: writes | logsItems, entries: 2, fields: sketch.NewBloomBytes, turn: (*decider).bloomAdd},
		BFLoad - firstBloomKind:   {is: writes, entries: 1, turn: (*decider).bloomLoad},
		BFExists - firstBloomKind: {is: ofKeys, turn: (*decider).bloomExists},
		BFDump - firstBloomKind:   {is: ofKeys, turn: (*decider).bloomDump},
		BFInfo - firstBloomKind:   {is: ofKeys, turn: (*decider).bloomInfo},
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
func (x *decider) bloomOf(op *Op) (r *ref, f *sketch.Bloom, err error) {
	r = &x.of(op)[0]
	f, err = sketchOf[*sketch.Bloom](x, r, TypeBloom)
	return r, f, err
}

func (x *decider) bloomReserve(op *Op) error {
	r, f, err := x.bloomOf(op)
	if err != nil {
		return err
	}
	if f != nil {
		return ErrFilterExists
	}
	return x.reserveBloom(r, op)
}

// reserveBloom logs the creation of a filter, if the memory is there.
func (x *decider) reserveBloom(r *ref, op *Op) error {
	o := BloomOptions{Error: 0.01, Capacity: 100, Expansion: 2}
	if p, _ := op.Object.(*BloomOptions); p != nil {
		o = *p
	}
	header, ok := sketch.AppendBloom(nil, o)
	if !ok {
		return ErrOutOfMemory
	}
	bytes, err := sketch.BloomBytes(header)
	if err != nil {
		return err
	}
	return x.createObject(r, TypeBloom, bytes, header)
}

// bloomAdd adds the items that are new, one after another.
func (x *decider) bloomAdd(op *Op) error {
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
	for _, item := range op.Keys {
		a, b := sketch.HashItem(item)
		present := f.Contains(a, b)
		full := !present && f.Room() == 0 && !x.growBloom(r, f)
		if !present && !full {
			x.control = f.AppendItem(x.control[:0], a, b)
			x.changeObject(r, x.control, 0)
		}
		op.Founds, op.Fulls = append(op.Founds, present), append(op.Fulls, full)
		if full && f.NonScaling() {
			op.Found = true
			return nil
		}
	}
	return nil
}

// growBloom logs that a sub-filter is added; false if there cannot be one.
func (x *decider) growBloom(r *ref, f *sketch.Bloom) bool {
	next, bytes, ok := f.Next()
	if !ok || x.reserveMore(entryRoom+len(r.key)+sketch.GrowthBytes) != nil {
		return false
	}
	pl := planner{pool: r.p.pool}
	if !pl.grant(bytes) {
		return false
	}
	pl.settle()
	x.control = sketch.AppendGrowth(x.control[:0], next)
	x.changeObject(r, x.control, 0)
	return true
}

func (x *decider) bloomExists(op *Op) error {
	_, f, err := x.bloomOf(op)
	for _, item := range op.Keys {
		op.Founds = append(op.Founds, err == nil && f != nil && f.Contains(sketch.HashItem(item)))
	}
	return nil
}

func (x *decider) bloomInfo(op *Op) error {
	_, f, err := x.bloomOf(op)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	op.Object = f.Info()
	return nil
}

func (x *decider) bloomDump(op *Op) error {
	_, f, err := x.bloomOf(op)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	op.Value, op.Object = f.Chunk(op.Delta, uint64(max(op.Deltas[0], 1)))
	return nil
}

// bloomLoad is LOADCHUNK.
func (x *decider) bloomLoad(op *Op) error {
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

func (x *decider) loadBloomHeader(r *ref, header []byte) error {
	bytes, err := sketch.BloomBytes(header)
	if err != nil {
		return bloomRefusal(err)
	}
	if err := x.reserveMore(2 * (entryRoom + len(header) + len(r.key))); err != nil {
		return err
	}
	if err = x.createObject(r, TypeBloom, bytes, header); err == ErrOutOfMemory {
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
