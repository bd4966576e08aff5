package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/fbf/paper"
	"github.com/fbfkv/fbfkv/store/coding"
)

// FBF keys: an object that is a filter.

// The operations on FBF keys; see Kind.
const (
	// FBFReserve creates the filter Key. In: Key, Object: *FilterOptions, or nil.
	FBFReserve Kind = firstFilterKind + iota
	// FBFAdd adds Keys (items) to the filter Key, creating it unless NoCreate, with
	// Object: *FilterOptions, or nil. Out: Founds[i] is true when item i
	// was present before; Fulls[i] when it was not added because the filter is
	// at the memory cap, as BF.MADD answers item by item.
	FBFAdd
	// FBFRefresh refreshes the filter Key. Out: none.
	FBFRefresh
	// FBFExists tests Keys (items) in the filter Key; a missing filter holds
	// nothing. Out: Founds.
	FBFExists
	// FBFCard counts the items remembered by the filter Key. Out: Value.
	FBFCard
	// FBFInfo describes the filter Key. Out: Object: *FilterInfo.
	FBFInfo

	firstFilterKind = Kind(TypeFilter) * kindsPerType
)

// The refusals of operations on FBF keys; see ErrOpIDSize.
var (
	ErrFilterExists = errors.New("item exists")
	ErrNoFilter     = errors.New("not found")
)

// FilterOptions are the parameters of an FBF key. With Fixed the paper's
// filter is used with exactly Bits, Hashes, Past and Refresh; otherwise the
// adaptive one with Window, Error, Capacity and Past.
type FilterOptions struct {
	Window   time.Duration // default 120 s
	Error    float64       // default 1e-6
	Capacity uint64        // hint: items per window
	Past     int           // adaptive: 1..6, default 6; fixed: 1..64, default 1
	Fixed    bool
	Bits     uint64        // bits of each generation, 64..2^36
	Hashes   int           // 1..32
	Refresh  time.Duration // 10 ms..366 days
}

// Validate reports the first parameter that is out of range, in words ready
// for an "ERR …" reply.
func (o FilterOptions) Validate() error {
	switch {
	case o.Window != 0 && (o.Window < MinWindow || o.Window > MaxWindow):
		return fmt.Errorf("%w: WINDOW must be %s", ErrOption, windowRange)
	case o.Error != 0 && !(o.Error >= MinError && o.Error <= MaxError):
		return fmt.Errorf("%w: ERROR must be %g to %g", ErrOption, MinError, MaxError)
	case o.Capacity > MaxCapacity:
		return fmt.Errorf("%w: CAPACITY must be at most %d", ErrOption, uint64(MaxCapacity))
	case !o.Fixed && (o.Bits != 0 || o.Hashes != 0 || o.Refresh != 0):
		return fmt.Errorf("%w: BITS, HASHES and REFRESH need FIXED", ErrOption)
	case !o.Fixed && (o.Past < 0 || o.Past > 6):
		return fmt.Errorf("%w: PAST must be 1 to 6", ErrOption)
	case !o.Fixed:
		return nil
	case o.Window != 0 || o.Error != 0 || o.Capacity != 0:
		return fmt.Errorf("%w: a FIXED filter takes only BITS, HASHES, REFRESH and PAST", ErrOption)
	case o.Bits < 64 || o.Bits > MaxFixedBits:
		return fmt.Errorf("%w: BITS must be 64 to %d", ErrOption, uint64(MaxFixedBits))
	case o.Hashes < 1 || o.Hashes > 32:
		return fmt.Errorf("%w: HASHES must be 1 to 32", ErrOption)
	case o.Past < 0 || o.Past > 64:
		return fmt.Errorf("%w: PAST must be 1 to 64", ErrOption)
	case o.Refresh < 10*time.Millisecond || o.Refresh > MaxWindow:
		return fmt.Errorf("%w: REFRESH must be 10ms to 366d", ErrOption)
	}
	return nil
}

func (o FilterOptions) withDefaults() FilterOptions {
	if o.Fixed {
		if o.Past == 0 {
			o.Past = 1
		}
		return o
	}
	if o.Window == 0 {
		o.Window = 120 * time.Second
	}
	if o.Error == 0 {
		o.Error = 1e-6
	}
	if o.Past == 0 {
		o.Past = 6
	}
	return o
}

// encode and decodeFilterOptions carry options through log and snapshots.
// The encoding has at most maxFilterOptions bytes.
func (o FilterOptions) encode() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // validated options have finite numbers only
	}
	return b
}

func decodeFilterOptions(b []byte) (FilterOptions, error) {
	var o FilterOptions
	if err := decodeJSON(b, &o); err != nil {
		return o, fmt.Errorf("%w: filter options: %v", errCorruptEntry, err)
	}
	if err := o.Validate(); err != nil {
		return o, fmt.Errorf("%w: %v", errCorruptEntry, err)
	}
	return o, nil
}

// maxFilterOptions bounds encoded FilterOptions, bytes.
const maxFilterOptions = 200

// filterType is the type of FBF keys.
type filterType struct{}

func (filterType) kinds() []kind {
	return []kind{
		// also a tombstone
		FBFReserve - firstFilterKind: {is: writes | unsplit, entries: 2, fields: maxFilterOptions,
			turn: (*turn).filterReserve},
		FBFAdd - firstFilterKind: {is: writes | hashesItems, entries: 2, fields: maxFilterOptions,
			turn: (*turn).filterAdd},
		FBFRefresh - firstFilterKind: {is: writes | unsplit, entries: 1, fields: fbf.MaxEventBytes,
			turn: (*turn).filterRefresh},
		FBFExists - firstFilterKind: {is: hashesItems, turn: (*turn).filterExists},
		FBFCard - firstFilterKind:   {is: unsplit | ofKeys, turn: (*turn).filterCard},
		FBFInfo - firstFilterKind:   {is: unsplit | ofKeys, turn: (*turn).filterInfo},
	}
}

func (x *turn) filterReserve(op *Op) error {
	r, f, err := objectAt[*filterKey](x, op, TypeFilter)
	if err != nil {
		return err
	}
	if f != nil {
		return ErrFilterExists
	}
	return x.reserve(r, op)
}

func (x *turn) filterCard(op *Op) error {
	_, f, err := objectAt[*filterKey](x, op, TypeFilter)
	if f != nil {
		op.Value, op.Found = int64(f.items()), true
	}
	return err
}

func (x *turn) filterInfo(op *Op) error {
	r, f, err := objectAt[*filterKey](x, op, TypeFilter)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	op.Object = f.info(x.at(r.p).logged)
	return nil
}

// reserve logs the creation of a filter, if the memory is there.
func (x *turn) reserve(r *ref, op *Op) error {
	var opts FilterOptions
	if o, _ := op.Object.(*FilterOptions); o != nil {
		opts = *o
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	opts = opts.withDefaults()
	return x.createObject(r, TypeFilter, opts.initialFilterBytes(), opts.encode())
}

// filterAdd adds items in order; an item that is present already, or that the
// filter takes for one, is not added again, and one for which there is no room
// is not added at all.
func (x *turn) filterAdd(op *Op) error {
	r, f, err := objectAt[*filterKey](x, op, TypeFilter)
	if err != nil {
		return err
	}
	x.beginLarge(r.p)
	if f == nil {
		if op.Flags&NoCreate != 0 {
			return ErrNoFilter
		}
		if err := x.reserve(r, op); err != nil {
			return err
		}
		f = r.c.object().(*filterKey)
	}
	hashes := x.items[op.run.firstItem : op.run.firstItem+op.run.items]
	for i, h := range hashes {
		err := f.upkeep(x, r)
		if err != nil && i == 0 {
			return err
		}
		present := f.contains(h)
		full := !present && (f.full() || err != nil) // G5: rather not at all than beyond ERROR
		if !present && !full {
			x.changeObject(r, x.note(filterItem, op.Keys[i]), h)
		}
		op.Founds, op.Fulls = append(op.Founds, present), append(op.Fulls, full)
	}
	return nil
}

func (x *turn) filterExists(op *Op) error {
	_, f, err := objectAt[*filterKey](x, op, TypeFilter)
	if err != nil {
		return err
	}
	for _, h := range x.items[op.run.firstItem : op.run.firstItem+op.run.items] {
		op.Founds = append(op.Founds, f != nil && f.contains(h))
	}
	return nil
}

// filterRefresh is FBF.REFRESH: a FIXED filter drops its oldest generation,
// another seals its newest and forgets nothing early.
func (x *turn) filterRefresh(op *Op) error {
	r, f, err := objectAt[*filterKey](x, op, TypeFilter)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	if f.fixed != nil {
		x.changeObject(r, x.note(filterEvent, nil), 0)
		return nil
	}
	if ev, ok := f.adaptive.PlanSeal(x.at(r.p).logged); ok {
		x.logEvent(r, ev)
	}
	return nil
}

// A logged change of a filter: one of these bytes, then the item, or the event of an
// adaptive filter. A FIXED filter has one event, its refresh, of no bytes.
const (
	filterItem  = 1
	filterEvent = 2
)

// note puts a change of a filter into scratch memory, for changeObject.
func (x *turn) note(what byte, rest []byte) []byte {
	x.control = append(append(x.control[:0], what), rest...)
	return x.control
}

func (x *turn) logEvent(r *ref, ev fbf.Event) {
	x.control = ev.AppendTo(append(x.control[:0], filterEvent))
	x.changeObject(r, x.control, 0)
}

// filterKey is the filter under an FBF key: adaptive, or the paper's when the
// key was reserved with FIXED. Its bits live in snapshots and the op log, not
// in a row.
type filterKey struct {
	opts      FilterOptions
	adaptive  *fbf.Filter
	fixed     *paper.Filter
	refreshed int64 // fixed: logged time of the last refresh
	refreshes uint64
}

// create makes an empty filter.
func (filterType) create(options []byte, at moment) (object, error) {
	o, err := decodeFilterOptions(options)
	if err != nil {
		return nil, err
	}
	return newFilterKey(o, at.logged)
}

// newFilterKey makes an empty filter. It takes at most initialFilterBytes.
func newFilterKey(o FilterOptions, logged int64) (*filterKey, error) {
	f := &filterKey{opts: o, refreshed: logged}
	var err error
	if o.Fixed {
		f.fixed, err = paper.New(o.Bits, o.Hashes, o.Past)
	} else {
		f.adaptive, err = fbf.New(o.adaptive(), logged)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	return f, nil
}

// adaptive are the options of an adaptive filter.
func (o FilterOptions) adaptive() fbf.Options {
	return fbf.Options{
		Window:   o.Window.Milliseconds(),
		Error:    o.Error,
		Capacity: o.Capacity,
		Past:     o.Past,
		Overload: fbf.Refuse,
		Tag:      tagApprox,
	}
}

// initialFilterBytes is the memory that a new filter takes.
func (o FilterOptions) initialFilterBytes() uint64 {
	if o.Fixed {
		return (o.Bits + 7) / 8 * uint64(o.Past+2)
	}
	return o.adaptive().InitialBytes()
}

func (f *filterKey) contains(h uint64) bool {
	if f.fixed != nil {
		return f.fixed.Contains(h)
	}
	return f.adaptive.Contains(h)
}

func (f *filterKey) insert(h uint64, logged int64) {
	if f.fixed != nil {
		f.fixed.Insert(h)
		return
	}
	f.adaptive.Insert(h, logged)
}

func (f *filterKey) bytes() uint64 {
	if f.fixed != nil {
		return f.fixed.Bytes()
	}
	return f.adaptive.Bytes()
}

// full reports whether the filter can take no more items at the memory cap.
func (f *filterKey) full() bool { return f.adaptive != nil && f.adaptive.Full() }

// items is the number of items remembered now.
func (f *filterKey) items() uint64 {
	if f.fixed != nil {
		return f.fixed.Len()
	}
	return f.adaptive.Len()
}

func (f *filterKey) release() {
	if f.adaptive != nil {
		f.adaptive.Release()
	}
}

// due reports whether a refresh or another event must be logged.
func (f *filterKey) due(logged int64) bool {
	if f.fixed != nil {
		return logged-f.refreshed >= f.opts.Refresh.Milliseconds()
	}
	return f.adaptive.Due(logged)
}

// upkeep logs the refreshes and other events that are due.
func (f *filterKey) upkeep(x *turn, r *ref) error {
	for n := 0; n < maxEvents && x.err == nil && f.due(x.at(r.p).logged); n++ {
		if err := x.world.reserveMore(eventRoom + 1 + len(r.key)); err != nil {
			return err
		}
		if f.fixed != nil {
			x.changeObject(r, x.note(filterEvent, nil), 0)
			continue
		}
		pl := planner{memory: r.p.memory, ofObject: true}
		ev, ok := f.adaptive.Plan(x.at(r.p).logged, pl.grant)
		pl.settle()
		if !ok {
			break
		}
		x.logEvent(r, ev)
	}
	return nil
}

// redo inserts an item, or does what an event says.
func (f *filterKey) redo(c change) error {
	if len(c.what) == 0 {
		return fmt.Errorf("%w: nothing happens to a filter", errCorruptEntry)
	}
	switch rest := c.what[1:]; c.what[0] {
	case filterItem:
		if c.hash == 0 {
			c.hash = c.p.hashes.ids.Hash(c.key, rest)
		}
		f.insert(c.hash, c.at.logged)
		return nil
	case filterEvent:
		return f.refresh(rest, c.at.logged)
	}
	return fmt.Errorf("%w: change %d of a filter", errCorruptEntry, c.what[0])
}

// refresh redoes an event: an encoded fbf.Event, or nothing for a FIXED filter.
func (f *filterKey) refresh(event []byte, logged int64) error {
	if f.fixed != nil {
		if len(event) > 0 {
			return fmt.Errorf("%w: a FIXED filter has no events", errCorruptEntry)
		}
		f.refreshes++
		f.fixed.Refresh()
		f.refreshed = logged
		return nil
	}
	ev, err := decodeEvent(event)
	if err != nil {
		return err
	}
	f.refreshes++
	return f.adaptive.Apply(ev)
}

// encode writes a header, which is length-prefixed: options, last refresh, number of
// refreshes. Then comes the encoding of package fbf, or fbf/paper. Bits bear to be set
// again, and the rest is as of now.
func (f *filterKey) encode(*machine) io.Reader {
	h := coding.AppendBytes(nil, f.opts.encode())
	h = binary.AppendVarint(h, f.refreshed)
	h = binary.AppendUvarint(h, f.refreshes)
	header := bytes.NewReader(coding.AppendBytes(nil, h))
	if f.fixed != nil {
		return io.MultiReader(header, f.fixed.NewEncoder())
	}
	return io.MultiReader(header, f.adaptive.NewEncoder())
}

// maxFilterHeader bounds the header of an encoded filter, bytes.
const maxFilterHeader = maxFilterOptions + 3*binary.MaxVarintLen64

func (filterType) decode(in *bufio.Reader, maxBytes uint64) (object, error) {
	size, err := binary.ReadUvarint(in)
	if err == nil && size > maxFilterHeader {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: header of a filter: %w", errCorruptEntry, err)
	}
	header, err := readAll(in, size)
	if err != nil {
		return nil, err
	}
	h := reader{coding.Reader{Rest: header}}
	f := new(filterKey)
	if f.opts, err = decodeFilterOptions(h.Bytes()); err != nil {
		return nil, err
	}
	f.refreshed, f.refreshes = h.Varint(), h.Uvarint()
	if h.End(); h.err() != nil {
		return nil, h.err()
	}
	if f.opts.Fixed {
		f.fixed, err = paper.Decode(in, maxBytes)
	} else {
		f.adaptive, err = fbf.Decode(in, maxBytes)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *filterKey) info(logged int64) *FilterInfo {
	if f.fixed == nil {
		i := adaptiveInfo(f.adaptive, logged)
		i.Options = f.opts
		return i
	}
	period := f.opts.Refresh
	return &FilterInfo{
		Options:       f.opts,
		Generations:   f.opts.Past + 2,
		Segments:      1,
		Bytes:         f.fixed.Bytes(),
		Items:         f.fixed.Len(),
		Inserted:      f.fixed.Inserted(),
		Refreshes:     f.refreshes,
		Fill:          f.fixed.Fill(),
		EffectiveFPP:  f.fixed.EffectiveFPP(),
		Window:        time.Duration(f.opts.Past+1) * period,
		RefreshPeriod: period,
	}
}
