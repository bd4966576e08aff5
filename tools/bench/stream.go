package main

// stream is the endless sequence of a connection's new operations. Its keys,
// and its ids if they are client-seq, follow from the seed, the connection's
// number and the position alone, so that a later run can send the same again.
type stream struct {
	keys   *keys
	format idFormat
	client uint64 // the seed and the connection's number, mixed
	next   uint64 // position
	// Of keys in turn this connection's operations reach every step-th, from its own number on.
	number, step uint64
}

// newStream returns the stream of one of a run's connections.
func newStream(seed uint64, connection, connections int, k *keys, f idFormat) stream {
	return stream{keys: k, format: f, client: mix(mix(seed) + uint64(connection)), number: uint64(connection), step: uint64(connections)}
}

// put patches the next operation into an encoded request, and returns its key.
// ms is the present time, ms since 1970.
func (s *stream) put(f *frame, b []byte, ms uint64) uint32 {
	seq := s.next
	s.next++
	random := mix(s.client + seq*golden)
	key := s.keys.pick(random)
	if s.keys.inTurn {
		key = uint32((s.number + seq*s.step) % uint64(s.keys.n))
	}
	for i, at := range f.keyAt {
		which := uint64(key)
		if i > 0 {
			which = uint64(s.keys.pick(mix(random + uint64(i-1))))
		}
		putDecimal(b[at:at+f.digits], which)
	}
	switch {
	case f.idAt == 0:
	case s.format == clientSeq:
		putClientSeq(b[f.idAt:f.idAt+f.idLen], s.client, seq)
	default:
		putUUIDv7(b[f.idAt:f.idAt+f.idLen], ms, uint16(seq&0xfff), random)
	}
	return key
}

const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64, a bijection in which every bit of the
// argument changes every bit of the result with probability one half.
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
