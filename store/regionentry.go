package store

import (
	"bytes"
	"encoding/binary"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// What entries of a member hold beside others.

// regional are the fields of an entry that only members of regions log.
type regional struct {
	note   regionNote // with flagRegional
	merged byte       // of a merge, or what an heir did: mergeEnds, mergeAside or 0
	parts  part.Parts // of these: all parts of the key; of a take-back: the winner's part
	delta  part.Delta // of a merge that was read from the log: what it made of the parts before
	heard  Heard      // where an operation was applied; of a take-back: the winner
	// of a take-back, or of a payment; of an operation heard from another region, Dot alone: the own
	// one that was taken back before, or 0
	back   takeBack
	change int64           // of the counter's value, by a merge, a take-back, a payment or an heir
	cursor RegionCursor    // of a cursor
	spent  part.Settlement // of take-backs
	rights part.RightsChange
	owed   []part.Owed // what is owed, ordered
	what   byte        // … and what becomes of it: owedNew, owedTold or owedSettled

	levelled levelled
}

// regionNote is what an entry of a key that has parts says beside the post-image, or of one that
// gets parts by it. It has what other regions cannot know.
type regionNote struct {
	// HLC is the time of the register or the expiry that is set, or of the expiry that an
	// increment was made under, and By the region that has set it; 0: none.
	HLC uint64
	By  part.Region
	// Absent: a deletion of a key that did not exist any more closes the own part. Of an increment or a
	// drain: the counter does not exist afterwards.
	Absent bool
	Left   int64 // by a drain
	// Bases are what a SET or a deletion has seen of the other regions.
	Bases []part.RegionBase
}

// Heard says where an operation was applied: by the region Origin, as entry Dot of its
// partition, at the wall time Wall there (unix ms). For the operation regionHear it also says what
// was applied; in entries that is with the operation itself.
type Heard struct {
	Origin part.Region
	Dot    uint64
	Wall   int64

	Told   int64  // what the origin's clock was when it told this, unix ms; in no entry
	Table  uint32 // id of the table here
	Delta  int64
	Clip   int64
	Result int64    // what the client was told; in the entry of a take-back, too
	Use    seen.Use // Increment, or one of a drain; in entries with Origin
	// Stated: a state has told it, and all parts of the key before, as they are later than Dot. So if
	// the origin's part is missing, a deletion has removed what was applied.
	Stated bool
}

// takeBack is what an own operation that another region applied first had done here.
type takeBack struct {
	Dot  uint64 // its entry
	Made int64  // what it added
	// Held: it is taken back, as deletions have not removed both it and what counts in its place.
	Held bool
	Owed bool // it would be, but there was no room: it is owed
	// Winner is what counts in its place; of a payment alone, else it is what was heard.
	Winner part.Applied
}

// The states of its key that a merge may tell.
const (
	mergeEnds  = 1 // it existed, and does not any more
	mergeAside = 2 // it holds an object
)

const (
	noteHLC = 1 << iota
	noteAbsent
	noteBases
	noteLeft
	noteAll = noteHLC | noteAbsent | noteBases | noteLeft
)

// maxNote bounds what a note takes in the log, with its length.
const maxNote = 2 + 1 + 2*binary.MaxVarintLen64 + 2 + part.MaxRegions*(1+3*binary.MaxVarintLen64)

// appendTo appends the note: fields u8, the HLC u and the region u8 if bit 0, if bit 2 the
// bases (part.AppendBases), and if bit 3 what is left v. Bit 1 is Absent.
func (n *regionNote) appendTo(b []byte) []byte {
	at := len(b)
	b = append(b, 0)
	if n.HLC != 0 {
		b[at] |= noteHLC
		b = append(binary.AppendUvarint(b, n.HLC), byte(n.By))
	}
	if n.Absent {
		b[at] |= noteAbsent
	}
	if len(n.Bases) > 0 {
		b[at] |= noteBases
		b = part.AppendBases(b, n.Bases)
	}
	if n.Left != 0 {
		b[at] |= noteLeft
		b = binary.AppendVarint(b, n.Left)
	}
	return b
}

// decodeNote reads a note. There is one encoding of each, and no other is accepted.
func decodeNote(b []byte) (n regionNote, err error) {
	r := reader{coding.Reader{Rest: b}}
	fields := r.Byte()
	if fields > noteAll {
		r.Fail()
	}
	if fields&noteHLC != 0 {
		n.HLC = r.UpTo(part.MaxHLC)
		if n.By = part.Region(r.Byte()); n.By >= part.MaxRegions {
			r.Fail()
		}
	}
	n.Absent = fields&noteAbsent != 0
	if fields&noteBases != 0 {
		n.Bases = part.ReadBases(&r.Reader)
	}
	if fields&noteLeft != 0 {
		n.Left = r.Varint()
	}
	r.End()
	var again [maxNote]byte
	if r.err() != nil || !bytes.Equal(n.appendTo(again[:0]), b) {
		return regionNote{}, errCorruptEntry
	}
	return n, nil
}

// regionalEntry returns an entry of a kind that only members log. It is valid until the next call;
// what it refers to may be kept.
func (x *turn) regionalEntry(r *ref, kind entryKind) *entry {
	x.regional = regional{}
	x.entry = entry{kind: kind, key: r.key, c: r.c, r: &x.regional}
	return &x.entry
}

func (h *Heard) appendTo(b []byte) []byte {
	b = append(b, byte(h.Origin)|byte(h.Use)<<useShift)
	b = binary.AppendUvarint(b, h.Dot)
	return binary.AppendUvarint(b, uint64(h.Wall))
}

// useShift is where the byte of an origin has what its operation was.
const useShift = 4 // part.MaxRegions is 16

func (r *reader) heard() Heard {
	origin := r.Byte()
	h := Heard{Origin: part.Region(origin % part.MaxRegions), Use: seen.Use(origin >> useShift),
		Dot: r.Uvarint(), Wall: int64(r.UpTo(1<<63 - 1))}
	if h.Use > seen.DrainNone || h.Dot == 0 {
		r.Fail()
	}
	return h
}

func (a RegionSource) appendTo(b []byte) []byte {
	return binary.AppendUvarint(append(b, byte(a.Region)), uint64(a.Partition))
}

func (r *reader) source() RegionSource {
	a := RegionSource{part.Region(r.Byte()), uint16(r.UpTo(slots - 1))}
	if a.Region >= part.MaxRegions {
		r.Fail()
	}
	return a
}

func appendTaken(b []byte, taken []RegionTaken) []byte {
	b = binary.AppendUvarint(b, uint64(len(taken)))
	for _, t := range taken {
		b = t.RegionSource.appendTo(b)
		b = binary.AppendUvarint(b, t.Seq)
	}
	return b
}

// taken reads what appendTaken wrote: ordered, without repeats.
func (r *reader) taken() (taken []RegionTaken) {
	for n := r.UpTo(uint64(len(r.Rest))); n > 0; n-- {
		t := RegionTaken{r.source(), r.Uvarint()}
		if i := len(taken); i > 0 && t.compare(taken[i-1].RegionSource) <= 0 {
			r.Fail()
		}
		if r.err() != nil {
			return nil
		}
		taken = append(taken, t)
	}
	return taken
}

func (r *reader) parts() part.Parts {
	parts, err := part.Decode(r.Bytes())
	if err != nil {
		r.Fail()
	}
	return parts
}

// bit is a byte that says yes or no.
func bit(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

func (r *reader) bit() bool {
	b := r.Byte()
	if b > 1 {
		r.Fail()
	}
	return b == 1
}
