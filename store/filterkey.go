package store

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/fbf/paper"
)

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
		return nil, fmt.Errorf("%w: %v", ErrOption, err)
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

// due reports whether a refresh or another event is to be logged.
func (f *filterKey) due(logged int64) bool {
	if f.fixed != nil {
		return logged-f.refreshed >= f.opts.Refresh.Milliseconds()
	}
	return f.adaptive.Due(logged)
}

// refresh redoes a logged refresh: an encoded fbf.Event, or nothing for a
// FIXED filter.
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

// adaptiveInfo describes an adaptive filter.
func adaptiveInfo(f *fbf.Filter, logged int64) *FilterInfo {
	st := f.Stats(logged)
	i := &FilterInfo{
		Segments:      st.Segments,
		Bytes:         st.Bytes,
		Items:         st.Items,
		Inserted:      st.Inserted,
		Refreshes:     st.Refreshes,
		Opened:        st.Opened,
		EffectiveFPP:  st.EffectiveFPP,
		Window:        time.Duration(st.GuaranteedWindow) * time.Millisecond,
		RefreshPeriod: time.Duration(st.RefreshPeriod) * time.Millisecond,
		Generations:   len(st.Generations),
	}
	for _, g := range st.Generations {
		i.Fill = append(i.Fill, g.Fill)
	}
	return i
}

// add sums the figures of the same table's filter in another partition.
func (i *FilterInfo) add(o *FilterInfo) {
	i.Generations = max(i.Generations, o.Generations)
	i.Segments += o.Segments
	i.Bytes += o.Bytes
	i.Items += o.Items
	i.Inserted += o.Inserted
	i.Refreshes += o.Refreshes
	i.Opened += o.Opened
	// A key is tested in its own partition, so the table's FPP is the worst
	// any key meets.
	i.EffectiveFPP = max(i.EffectiveFPP, o.EffectiveFPP)
	if i.Window == 0 || o.Window < i.Window {
		i.Window = o.Window
	}
	i.RefreshPeriod = max(i.RefreshPeriod, o.RefreshPeriod)
	for n, f := range o.Fill {
		if n < len(i.Fill) {
			i.Fill[n] = max(i.Fill[n], f)
		} else {
			i.Fill = append(i.Fill, f)
		}
	}
}

// encodeOptions and decodeFilterOptions carry a reserve through the log.
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

// encoder streams the filter's bits for a snapshot.
func (f *filterKey) encoder() io.Reader {
	if f.fixed != nil {
		return f.fixed.NewEncoder()
	}
	return f.adaptive.NewEncoder()
}
