package compare

import "runtime"

// Stream drives a window with one new id per millisecond of logged time.
type Stream struct {
	Window
	ids     uint64 // ids per window
	next    uint64 // number of the next new id; also the logged time
	random  uint64
	block   [Block]ID
	present [Block]bool
}

// NewStream drives w, which was sized for so many ids per window.
func NewStream(w Window, ids uint64) *Stream { return &Stream{Window: w, ids: ids, random: 1} }

// Fill inserts new ids for so many windows.
func (s *Stream) Fill(windows float64) {
	for end := s.next + uint64(windows*float64(s.ids)); s.next < end; {
		s.draw()
		s.Insert(s.block[:], int64(s.next))
	}
}

// draw takes the next Block new ids and lets their time pass.
func (s *Stream) draw() {
	for i := range s.block {
		s.block[i] = IDAt(s.next + uint64(i))
	}
	s.next += Block
}

// New checks and inserts Block new ids; it returns how many were taken for
// duplicates, and are therefore not remembered.
func (s *Stream) New() int {
	s.draw()
	s.CheckAndInsert(s.block[:], int64(s.next), s.present[:])
	return s.found()
}

// Duplicate checks Block ids of all ages up to a window; it returns how many were recognised.
func (s *Stream) Duplicate() int {
	for i := range s.block {
		s.block[i] = IDAt(s.past())
	}
	s.CheckAndInsert(s.block[:], int64(s.next), s.present[:])
	return s.found()
}

// past is the number of a random id of the window. Streams shorter than a
// window have only what they inserted.
func (s *Stream) past() uint64 {
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	n := min(s.ids, s.next)
	return s.next - 1 - (s.random>>32)*n>>32
}

func (s *Stream) found() (n int) {
	for _, p := range s.present {
		if p {
			n++
		}
	}
	return n
}

// unknown is the number of the first id no stream inserts.
const unknown = uint64(1) << 48

// Unknown looks for n ids never inserted, numbered from the from-th on, and
// returns how many were taken for known.
func (s *Stream) Unknown(from, n uint64) (hits uint64) {
	for i := range n {
		if s.Contains(IDAt(unknown + from + i)) {
			hits++
		}
	}
	return hits
}

// heap is the Go heap in use after a full collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first may leave what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BitsPerID is the memory really taken by c in steady state, three windows
// after its start, in bits per id of the window.
func BitsPerID(c Contestant, ids uint64) (float64, error) {
	before := heap()
	w, err := c.New(ids)
	if err != nil {
		return 0, err
	}
	defer w.Release()
	s := NewStream(w, ids)
	s.Fill(3)
	bytes := w.Bytes()
	if bytes == 0 {
		bytes = heap() - before
	}
	runtime.KeepAlive(s)
	return float64(bytes) * 8 / float64(ids), nil
}
