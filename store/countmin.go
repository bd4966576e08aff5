package store

import (
	"bufio"
	"errors"

	"github.com/fbfkv/fbfkv/store/sketch"
)

// The operations on count-min sketches; see Kind. Package sketch describes the sketches.
const (
	// CMSInit creates the sketch Key. In: Key, Object: *SketchOptions. Here and in CMSIncrBy
	// and CMSMerge it may be a *BadArgument.
	CMSInit Kind = firstCountMinKind + iota
	// CMSIncrBy adds Deltas[i] to the items Keys[i] of the sketch Key, in turn. Out:
	// Values, the estimates; Fulls[i] if the pair would have taken a cell, or the count,
	// beyond its limit, or a cell below 0: then it has changed nothing.
	CMSIncrBy
	// CMSCIncrBy is CMSIncrBy once per ID, all pairs or none. In: Key, ID, Keys, Deltas, At
	// if HasAt. Out: Values, of a duplicate those of now; Applied.
	CMSCIncrBy
	// CMSMerge replaces the sketch Keys[0] by the sum of the other Keys, each times its
	// weight in Deltas.
	CMSMerge
	// CMSQuery estimates the items Keys of the sketch Key. Out: Values.
	CMSQuery
	// CMSInfo describes the sketch Key. Out: Object: *SketchInfo.
	CMSInfo
	// CMSInner multiplies the sketches Keys[0] and Keys[1]. Out: Value.
	CMSInner

	firstCountMinKind = Kind(TypeCountMin) * kindsPerType
)

// The refusals of operations on count-min sketches; see ErrOpIDSize.
var (
	ErrSketchExists  = errors.New("CMS: key already exists")
	ErrNoSketch      = errors.New("CMS: key does not exist")
	ErrSketchSize    = errors.New("CMS: width/depth is not equal")
	ErrSketchCells   = errors.New("CMS: cell_size is not equal")
	ErrSketchMemory  = errors.New("CMS: Insufficient memory to create the key")
	ErrSketchWindow  = errors.New("CMS: a sketch with a window cannot be the destination")
	ErrSketchOver    = errors.New("CMS: INCRBY overflow")
	ErrSketchUnder   = errors.New("CMS: INCRBY underflow")
	ErrInnerProduct  = errors.New("CMS: INNERPROD overflow")
	ErrSketchOptions = sketch.ErrOptions
	ErrSketchMerge   = sketch.ErrMerge
)

// DefaultPast is Past of a sketch with a window that names none.
const DefaultPast = sketch.DefaultPast

// SketchOptions are the parameters of a count-min sketch; SketchInfo describes one.
type (
	SketchOptions = sketch.CountMinOptions
	SketchInfo    = sketch.CountMinInfo
)

// countMinType is the type of count-min sketches.
type countMinType struct{}

func (countMinType) kinds() []kind {
	return []kind{
		// also a tombstone
		CMSInit - firstCountMinKind: {is: writes, entries: 2, fields: sketch.MaxCountMinOptions,
			turn: (*turn).sketchInit},
		CMSIncrBy - firstCountMinKind: {is: writes | logsItems, entries: 1, turn: (*turn).sketchIncrBy},
		// The opid as well.
		CMSCIncrBy - firstCountMinKind: {is: writes | hasID | logsItems, entries: 2,
			turn: (*turn).sketchCIncrBy},
		CMSMerge - firstCountMinKind: {is: writes | manyKeys, entries: 1, turn: (*turn).sketchMerge},
		CMSQuery - firstCountMinKind: {is: ofKeys, turn: (*turn).sketchQuery},
		CMSInfo - firstCountMinKind:  {is: ofKeys, turn: (*turn).sketchInfo},
		CMSInner - firstCountMinKind: {is: manyKeys | ofKeys, turn: (*turn).sketchInner},
	}
}

func (countMinType) create(options []byte, at moment) (object, error) {
	f, err := sketch.NewCountMin(options, at.logged)
	return &paged{Sketch: f}, err
}

func (countMinType) decode(in *bufio.Reader, _ uint64) (object, error) {
	created, options, err := decodePaged(in, sketch.MaxCountMinOptions)
	if err != nil {
		return nil, err
	}
	f, err := sketch.UnloadedCountMin(options)
	return &paged{f, created}, err
}

// sketchAt finds the sketch under a key.
func sketchAt(x *turn, r *ref) (*sketch.CountMin, error) {
	f, err := sketchOf[*sketch.CountMin](x, r, TypeCountMin)
	if err == nil && f == nil {
		err = ErrNoSketch
	}
	return f, err
}

func (x *turn) sketchInit(op *Op) error {
	r := &x.of(op)[0]
	if x.alive(r) {
		return ErrSketchExists
	}
	if err := op.badArgument(1); err != nil {
		return err
	}
	var o SketchOptions
	if p, _ := op.Object.(*SketchOptions); p != nil {
		o = *p
	}
	if err := o.Validate(); err != nil {
		return err
	}
	n, ok := o.Bytes()
	err := ErrOutOfMemory
	if ok {
		err = x.createObject(r, TypeCountMin, n, o.Encode())
	}
	if errors.Is(err, ErrOutOfMemory) {
		err = ErrSketchMemory
	}
	return err
}

func (x *turn) sketchQuery(op *Op) error {
	f, err := sketchAt(x, &x.of(op)[0])
	if err != nil {
		return err
	}
	op.Values = f.AppendEstimates(op.Values, op.Keys)
	return nil
}

func (x *turn) sketchInfo(op *Op) error {
	f, err := sketchAt(x, &x.of(op)[0])
	if err == nil {
		op.Object = f.Info()
	}
	return err
}

// sketchIncrBy logs the pairs that overflow nothing, in their order. Cells are not larger
// than the count, so that usually one look at it is enough for all of them.
func (x *turn) sketchIncrBy(op *Op) error {
	r := &x.of(op)[0]
	f, err := sketchAt(x, r)
	if err == nil {
		err = op.badArgument(1)
	}
	if err != nil {
		return err
	}
	x.beginLarge(r.p)
	if err := x.turnPanes(r, f); err != nil {
		return err
	}
	f.Answers = &op.Values
	defer func() { f.Answers = nil }()
	if f.FitAll(op.Deltas) {
		op.Fulls = append(op.Fulls, make([]bool, len(op.Keys))...)
		return x.logPairs(r, f, op.Keys, op.Deltas)
	}
	for i, item := range op.Keys {
		full := !f.Fits(item, op.Deltas[i])
		if op.Fulls = append(op.Fulls, full); full {
			op.Values = append(op.Values, 0)
			continue
		}
		if err := x.logPairs(r, f, op.Keys[i:i+1], op.Deltas[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// turnPanes is upkeep if an increment must not come before it.
func (x *turn) turnPanes(r *ref, f *sketch.CountMin) error {
	if f.PaneIsOver(x.at(r.p).logged) {
		return r.c.object().upkeep(x, r)
	}
	return nil
}

// SketchRange is why a pair does not fit.
func SketchRange(delta int64) error {
	if delta < 0 {
		return ErrSketchUnder
	}
	return ErrSketchOver
}

// sketchCIncrBy logs all pairs once per opid; its checks come in the order of cIncrBy's.
func (x *turn) sketchCIncrBy(op *Op) error {
	r := &x.of(op)[0]
	r.judgeAgain(op.ID)
	if err := x.checkTime(op, r); err != nil {
		return err
	}
	op.Delta = sketch.Fingerprint(op.Keys, op.Deltas)
	if r.verdict != verdictNew {
		if err := x.duplicateItems(op, r); err != nil {
			return err
		}
		return x.sketchQuery(op)
	}
	f, err := sketchAt(x, r)
	if err != nil {
		return err
	}
	x.beginLarge(r.p)
	if err := x.turnPanes(r, f); err != nil {
		return err
	}
	if at, ok := f.FitTogether(op.Keys, op.Deltas); !ok {
		return SketchRange(op.Deltas[at])
	}
	if err := x.makeRoom(r); err != nil {
		return err
	}
	f.Answers = &op.Values
	err = x.logPairs(r, f, op.Keys, op.Deltas)
	f.Answers = nil
	if err == nil {
		x.rememberOp(op, r, 0)
	}
	return err
}

// logPairs logs pairs that fit.
func (x *turn) logPairs(r *ref, f *sketch.CountMin, items [][]byte, deltas []int64) error {
	x.control = f.AppendPairs(x.control[:0], items, deltas)
	if len(x.control) <= maxChange {
		x.changeObject(r, x.control, 0)
		return nil
	}
	return x.changeLarge(r, x.control)
}

// sketchMerge logs the pages that the sum of the sources changes: the sources may be in
// other partitions, of which redo knows nothing.
func (x *turn) sketchMerge(op *Op) error {
	refs := x.of(op)
	f, err := sketchAt(x, &refs[0])
	if err == nil {
		err = op.badArgument(1)
	}
	if err == nil && f.Windowed() {
		err = ErrSketchWindow
	}
	if err != nil {
		return err
	}
	sources := make([]*sketch.CountMin, len(refs)-1)
	for i := range sources {
		s, err := sketchAt(x, &refs[i+1])
		switch {
		case err != nil:
			return err
		case !f.SameSize(s):
			return ErrSketchSize
		case !f.SameCells(s):
			return ErrSketchCells
		case op.badArgument(i+2) != nil:
			return op.badArgument(i + 2)
		}
		sources[i] = s
	}
	what, err := f.AppendMerge(nil, sources, op.Deltas)
	if err != nil {
		return err
	}
	return x.changeLarge(&refs[0], what)
}

// sketchInner is CMSInner.
func (x *turn) sketchInner(op *Op) error {
	refs := x.of(op)
	a, err := sketchAt(x, &refs[0])
	if err != nil {
		return err
	}
	b, err := sketchAt(x, &refs[1])
	if err != nil {
		return err
	}
	if !a.SameSize(b) {
		return ErrSketchSize
	}
	var ok bool
	if op.Value, ok = a.InnerProduct(b); !ok {
		return ErrInnerProduct
	}
	return nil
}
