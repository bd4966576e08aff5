package fbf

import (
	"errors"
	"fmt"
	"math"
)

// Errors of this package. Everything it returns wraps one of them.
var (
	// ErrOptions: an option is outside its documented range.
	ErrOptions = errors.New("fbf: invalid option")
	// ErrEvent: an event does not fit the filter it is applied to, or its encoding is damaged.
	ErrEvent = errors.New("fbf: event does not fit")
	// ErrCorrupt: the bytes given to Decode are not a whole, undamaged encoding.
	ErrCorrupt = errors.New("fbf: corrupt encoding")
	// ErrMemory: the system gave no memory for a segment.
	ErrMemory = errors.New("fbf: out of memory")
)

// Overload says what happens when a filter may not take more memory.
type Overload uint8

const (
	// Refuse keeps the target: Full reports true and the owner refuses new ids, retryably.
	Refuse Overload = iota
	// Degrade keeps accepting ids, and lets the false positive probability rise.
	Degrade
)

// Limits of Options. They keep every product of a time or a count inside 64 bits.
const (
	// MaxWindow is the longest window, in ms: about 34 years.
	MaxWindow = int64(1) << 40
	// MaxCapacity is the largest Capacity hint, in inserts per window.
	MaxCapacity = uint64(1) << 40
	// MaxPast is the largest number of past generations; with future and
	// present it fills the eight lanes of a cache line.
	MaxPast = 6
	// MinError and MaxError bound Options.Error.
	MinError = 1e-15
	MaxError = 0.5
)

// Options is the policy of a filter.
type Options struct {
	// Window is how long an inserted id must be recognised at least, in ms of
	// logged time; 1 to MaxWindow.
	Window int64
	// Error is the highest false positive probability of the whole filter,
	// all generations of all segments together; MinError to MaxError.
	Error float64
	// Capacity is a hint: the inserts per Window the first segment is sized
	// for. 0 starts at the smallest size. At most MaxCapacity.
	Capacity uint64
	// MaxMemory caps the bytes of all segments together; 0 is no cap. At least MinMemory.
	MaxMemory uint64
	// Past is the number of past generations a window is divided into, 1 to
	// MaxPast; 0 means MaxPast. All eight lanes serve as room for early
	// rotations whatever Past is.
	Past int
	// Roles is r, the number of generations an insert writes to: 1 (the
	// newest; also what 0 means), or 2 (future and present, as in the paper's
	// Section III, but each with hash functions of its own).
	Roles int
	// Overload is what happens at the memory cap.
	Overload Overload
	// Tag is opaque to this package: it is stamped on every segment opened
	// while it is in force, and comes back in Match.
	Tag uint8
}

// MinMemory is the least MaxMemory: the smallest segment, and one more to drain into.
const MinMemory = 2 * minLines * lineBytes

// Validate reports, wrapping ErrOptions, the first option outside its range.
func (o Options) Validate() error {
	switch {
	case o.Window < 1 || o.Window > MaxWindow:
		return fmt.Errorf("%w: Window %d ms, want 1 to %d", ErrOptions, o.Window, MaxWindow)
	case math.IsNaN(o.Error) || o.Error < MinError || o.Error > MaxError:
		return fmt.Errorf("%w: Error %g, want %g to %g", ErrOptions, o.Error, float64(MinError),
			float64(MaxError))
	case o.Capacity > MaxCapacity:
		return fmt.Errorf("%w: Capacity %d, want at most %d", ErrOptions, o.Capacity, MaxCapacity)
	case o.MaxMemory != 0 && o.MaxMemory < MinMemory:
		return fmt.Errorf("%w: MaxMemory %d bytes, want 0 or at least %d", ErrOptions, o.MaxMemory, MinMemory)
	case o.Past < 0 || o.Past > MaxPast:
		return fmt.Errorf("%w: Past %d, want 0 to %d", ErrOptions, o.Past, MaxPast)
	case o.Roles < 0 || o.Roles > 2:
		return fmt.Errorf("%w: Roles %d, want 1 or 2", ErrOptions, o.Roles)
	case o.Overload > Degrade:
		return fmt.Errorf("%w: Overload %d", ErrOptions, o.Overload)
	}
	return nil
}

// withDefaults fills the fields whose zero value stands for a default.
func (o Options) withDefaults() Options {
	if o.Past == 0 {
		o.Past = MaxPast
	}
	if o.Roles == 0 {
		o.Roles = 1
	}
	return o
}

// periods is the number of whole refresh periods in a window.
//
// A lane is filled for one period t and must then be kept for a Window. With
// r = 1, Past = 6 and t = W/6 seven lanes would be live while the eighth is being
// cleared. With r = 2 the future takes one lane more, hence W/5.
func (o Options) periods() int64 {
	return int64(max(1, o.Past-o.Roles+1))
}

// refresh is the refresh period t in ms, rounded up so that lanes are not needed
// too soon. Clearing a lane takes a quarter of a period (setClearStep): with all lanes in
// use, half a period is left for it, and the generations are that much smaller.
func (o Options) refresh() int64 {
	p := 2 * o.periods()
	if o.Past == MaxPast {
		p++
	}
	return (2*o.Window + p - 1) / p
}

// latest is after how many ms a generation is sealed at the latest; see sealAt.
func (o Options) latest() int64 {
	t := o.refresh()
	return t + t/4
}

// perPeriod is how many of n inserts per window fall into one refresh period.
func (o Options) perPeriod(n uint64) float64 {
	return float64(n) * float64(o.refresh()) / float64(o.Window)
}

// InitialBytes is the memory New will take for o, in bytes.
func (o Options) InitialBytes() uint64 {
	o = o.withDefaults()
	g := geometryFor(o.Error, o.Roles)
	return g.lines(o.initialStrip(g)) * lineBytes
}

// initialStrip sizes the first segment for the Capacity hint, within MaxMemory.
func (o Options) initialStrip(g geometry) uint64 {
	mu := g.meanFor(laneBudget(o.Error * lastShare))
	strip := g.stripFor(o.perPeriod(o.Capacity), mu, headroom)
	if o.MaxMemory > 0 {
		strip = min(strip, max(g.minStrip(), o.MaxMemory/lineBytes/uint64(g.s)))
	}
	return strip
}
