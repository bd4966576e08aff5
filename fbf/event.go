package fbf

import (
	"encoding/binary"
	"fmt"
)

// EventKind says what an Event does.
type EventKind uint8

const (
	// Expire masks the generations whose time is over, and drops segments that hold no others.
	Expire EventKind = iota + 1
	// Rotate seals the present generation; the next one takes the inserts.
	Rotate
	// Open adds a segment that takes the inserts; the others drain.
	Open
	// Deny records that memory was refused, and until when it is not asked for again.
	Deny
)

// String names the kind.
func (k EventKind) String() string {
	switch k {
	case Expire:
		return "expire"
	case Rotate:
		return "rotate"
	case Open:
		return "open"
	case Deny:
		return "deny"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is one outcome of the controller. Applied in the same order among the
// same inserts it has the same effect on every copy of the filter.
type Event struct {
	Kind    EventKind
	Time    int64  // logged time of the decision, ms
	Segment uint32 // Rotate: the segment rotated; Open: the new one's id
	Lines   uint64 // Open: its lines
	Limit   uint64 // Rotate, Open: ids the generation that begins may take
	Until   int64  // Deny: no further attempt before this logged time
	Shrink  bool   // Deny: what was denied is a smaller segment
}

// MaxEventBytes bounds an event's encoding.
const MaxEventBytes = 2 + 5*binary.MaxVarintLen64

// AppendTo appends e's encoding: kind, flags, then time, segment, lines, limit and until as varints.
func (e Event) AppendTo(dst []byte) []byte {
	flags := byte(0)
	if e.Shrink {
		flags = 1
	}
	dst = append(dst, byte(e.Kind), flags)
	dst = binary.AppendUvarint(dst, uint64(e.Time))
	dst = binary.AppendUvarint(dst, uint64(e.Segment))
	dst = binary.AppendUvarint(dst, e.Lines)
	dst = binary.AppendUvarint(dst, e.Limit)
	return binary.AppendUvarint(dst, uint64(e.Until))
}

// DecodeEvent reads the event at the start of p and returns how many bytes it took.
func DecodeEvent(p []byte) (e Event, n int, err error) {
	if len(p) < 2 {
		return Event{}, 0, fmt.Errorf("%w: truncated", ErrEvent)
	}
	var v [5]uint64
	n = 2
	for i := range v {
		x, w := binary.Uvarint(p[n:])
		if w <= 0 || w > 1 && p[n+w-1] == 0 {
			return Event{}, 0, fmt.Errorf("%w: truncated or malformed field %d", ErrEvent, i)
		}
		v[i] = x
		n += w
	}
	e = Event{Kind: EventKind(p[0]), Time: int64(v[0]), Segment: uint32(v[1]), Lines: v[2], Limit: v[3],
		Until: int64(v[4]), Shrink: p[1] == 1}
	if p[1] > 1 || v[1] > 1<<32-1 {
		return Event{}, 0, fmt.Errorf("%w: field out of range", ErrEvent)
	}
	if err := e.validate(); err != nil {
		return Event{}, 0, err
	}
	return e, n, nil
}

// validate checks what can be checked without the filter.
func (e Event) validate() error {
	ok := e.Time >= 0 && e.Until >= 0
	switch e.Kind {
	case Expire:
		ok = ok && e.Segment == 0 && e.Lines == 0 && e.Limit == 0 && e.Until == 0 && !e.Shrink
	case Rotate:
		ok = ok && e.Segment > 0 && e.Lines == 0 && e.Limit > 0 && e.Until == 0 && !e.Shrink
	case Open:
		ok = ok && e.Segment > 0 && e.Lines > 0 && e.Lines <= maxProbes*maxStrip && e.Limit > 0 &&
			e.Until == 0 && !e.Shrink
	case Deny:
		ok = ok && e.Segment == 0 && e.Lines == 0 && e.Limit == 0 && e.Until > e.Time
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("%w: %v %+v", ErrEvent, e.Kind, e)
	}
	return nil
}
