package store

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
)

// tableState is what one partition holds of one table: its filter and what
// belongs to it. It is guarded by the partition's lock.
type tableState struct {
	def    *tableDef
	filter *fbf.Filter
	// tests divides the table's ERROR: a CMINCRBY of n keys makes n tests, of
	// which none may err more often than ERROR together. A power of two.
	tests   uint32
	horizon horizon
	figures Figures
	held    heldFigures // as of holdings.counted
}

// Tags of filter segments: how the ids inserted while a mode was in force are
// to be confirmed. A table that changes its mode opens a new segment.
const (
	tagApprox uint8 = 1 << iota
	tagExact
)

// filterOptions are the options of a table's filter in one of n partitions.
func (d *tableDef) filterOptions(tests uint32, n int) fbf.Options {
	o := fbf.Options{
		Window:    (d.Window + d.Skew).Milliseconds(),
		Error:     d.Error,
		MaxMemory: d.MaxMemory / uint64(n),
		Overload:  fbf.Degrade, // a positive costs only a look-up
		Tag:       tagExact,
	}
	if d.Mode == Approx {
		o.Tag, o.Overload = tagApprox, fbf.Refuse
		o.Error = max(d.Error/float64(max(tests, baseTests)), fbfMinError)
	}
	return o
}

// baseTests is the number of keys of a CMINCRBY that an APPROX table's filter is
// made for from the start. One of more keys makes the filter stricter, which
// holds for its tests once what was remembered before has drained.
const baseTests = 16

// fbfMinError keeps ERROR divided by many tests within what fbf accepts.
const fbfMinError = MinError / 4096

// testsFor is the divisor that a multi-key operation of n keys needs.
func testsFor(n int) uint32 {
	return uint32(1) << bits.Len(uint(n-1))
}

// horizon finds the time before which operations may have been forgotten. Ids
// age by logged time while operations are STALE by wall time; should the wall
// clock step back, the latest client time among the forgotten ids is the line
// that keeps them out (G7). It holds the largest client time seen in each
// eighth of the remembering time.
type horizon struct {
	forgotten int64 // largest client time of a forgotten id, ms; 0: none
	buckets   []horizonBucket
}

type horizonBucket struct {
	end int64 // logged time of the last id
	max int64 // largest client time
}

// add notes that an id with a client time was applied at a logged time.
func (h *horizon) add(logged, time, keep int64) {
	n := len(h.buckets)
	if n > 0 && h.buckets[n-1].end == logged { // of the same batch, most often
		h.buckets[n-1].max = max(h.buckets[n-1].max, time)
		return
	}
	if n == 0 || logged/max(keep/8, 1) != h.buckets[n-1].end/max(keep/8, 1) {
		h.advance(logged, keep)
		h.buckets = append(h.buckets, horizonBucket{end: logged, max: time})
		return
	}
	b := &h.buckets[n-1]
	b.end, b.max = logged, max(b.max, time)
}

// advance moves the ids that have been forgotten by a logged time behind the
// horizon.
func (h *horizon) advance(logged, keep int64) {
	n := 0
	for n < len(h.buckets) && h.buckets[n].end+keep <= logged {
		h.forgotten = max(h.forgotten, h.buckets[n].max)
		n++
	}
	if n > 0 {
		h.buckets = append(h.buckets[:0], h.buckets[n:]...)
	}
}

// before returns the time before which operations may have been forgotten by
// a logged time.
func (h *horizon) before(logged, keep int64) int64 {
	t := h.forgotten
	for _, b := range h.buckets {
		if b.end+keep > logged {
			break
		}
		t = max(t, b.max)
	}
	return t + 1
}

// forget moves everything behind the horizon, which is at least at a wall time.
func (h *horizon) forget(before int64) {
	for _, b := range h.buckets {
		h.forgotten = max(h.forgotten, b.max)
	}
	h.buckets, h.forgotten = nil, max(h.forgotten, before-1)
}

func (h *horizon) appendTo(dst []byte) []byte {
	dst = binary.AppendVarint(dst, h.forgotten)
	dst = binary.AppendUvarint(dst, uint64(len(h.buckets)))
	for _, b := range h.buckets {
		dst = binary.AppendVarint(dst, b.end)
		dst = binary.AppendVarint(dst, b.max)
	}
	return dst
}

func (r *reader) horizon() (h horizon) {
	h.forgotten = r.Varint()
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.Fail()
		return horizon{}
	}
	for range n {
		h.buckets = append(h.buckets, horizonBucket{end: r.Varint(), max: r.Varint()})
	}
	return h
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

// Figures count operations since start.
type Figures struct {
	Applied    uint64 // once
	Duplicates uint64 // absorbed
	Confirmed  uint64 // duplicates found in the EXACT records
	Dismissed  uint64 // positives of an EXACT filter without a record: new after all
	Stale      uint64 // refused with STALE
	Refused    uint64 // refused with OOM
	Twins      uint64 // applied in two regions: one application of each is taken back
}

func (f *Figures) add(o Figures) {
	f.Applied += o.Applied
	f.Duplicates += o.Duplicates
	f.Confirmed += o.Confirmed
	f.Dismissed += o.Dismissed
	f.Stale += o.Stale
	f.Refused += o.Refused
	f.Twins += o.Twins
}
