package main

// operation is one that will be sent again.
type operation struct {
	key slot
	due int64 // not before this time, ns of the run's clock
	id  [maxIDLen]byte
}

// slot is a key in flight and what the operation is.
type slot uint32

const (
	duplicate slot = 1 << 31 // a copy: its acknowledgement says nothing about the counter
	keyOf     slot = 1<<31 - 1
)

// ring is a bounded queue of operations.
type ring struct {
	buf         []operation // a power of two
	first, next uint64
}

func newRing(size int) ring { return ring{buf: make([]operation, size)} }

func (r *ring) empty() bool { return r.first == r.next }
func (r *ring) full() bool  { return r.next-r.first == uint64(len(r.buf)) }

// push returns the place for one more, or nil if there is none.
func (r *ring) push() *operation {
	if r.full() {
		return nil
	}
	r.next++
	return &r.buf[(r.next-1)&uint64(len(r.buf)-1)]
}

// due returns the oldest if it may be sent now.
func (r *ring) due(now int64) *operation {
	if r.empty() {
		return nil
	}
	if o := &r.buf[r.first&uint64(len(r.buf)-1)]; o.due <= now {
		return o
	}
	return nil
}

func (r *ring) pop() { r.first++ }

// put patches the operation into an encoded request.
func (o *operation) put(f *frame, b []byte) {
	if f.digits > 0 {
		putDecimal(b[f.keyAt:f.keyAt+f.digits], uint64(o.key&keyOf))
	}
	copy(b[f.idAt:f.idAt+f.idLen], o.id[:])
}
