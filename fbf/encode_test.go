package fbf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/fbfkv/fbfkv/fbf/internal/frame"
)

// sample is a filter with two segments, and its encoding.
func sample(t testing.TB, roles int) (*sim, []byte) {
	s := newSim(t, Options{Window: minute, Error: 1e-2, Roles: roles, Tag: 2}, 1)
	s.run(minute, steady(100))
	s.alter(Options{Window: minute, Error: 1e-3, Roles: roles, Tag: 1})
	s.run(s.now+500, steady(100))
	b, err := io.ReadAll(s.f.NewEncoder())
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

func TestRoundTrip(t *testing.T) {
	for roles := 1; roles <= 2; roles++ {
		s, b := sample(t, roles)
		f, err := Decode(iotest.OneByteReader(bytes.NewReader(b)), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		s.sameState(f)
		for _, id := range s.ids {
			a, _ := s.f.Match(id.h)
			if m, ok := f.Match(id.h); !ok || m != a {
				t.Fatalf("Match %+v after decoding, %+v before", m, a)
			}
		}
		again, err := io.ReadAll(iotest.OneByteReader(f.NewEncoder()))
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("encoding of the decoded filter differs (%v)", err)
		}
		f.Release()
	}
}

// TestTruncated: an encoding cut anywhere is an error, never a filter.
func TestTruncated(t *testing.T) {
	_, b := sample(t, 1)
	for n := range b {
		if f, err := Decode(bytes.NewReader(b[:n]), 1<<20); !errors.Is(err, ErrCorrupt) || f != nil {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(b), err)
		}
	}
}

// TestFlipped: any flipped bit is noticed.
func TestFlipped(t *testing.T) {
	_, b := sample(t, 1)
	for i := 0; i < len(b); i += 1 + i/600 {
		b[i] ^= 1 << (i % 8)
		if _, err := Decode(bytes.NewReader(b), 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit flipped in byte %d: %v", i, err)
		}
		b[i] ^= 1 << (i % 8)
	}
}

func TestReaderErrorsPassThrough(t *testing.T) {
	_, b := sample(t, 1)
	for _, n := range []int{3, 50, 400, 9000} {
		r := io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(io.ErrNoProgress))
		if _, err := Decode(r, 1<<20); !errors.Is(err, io.ErrNoProgress) || errors.Is(err, ErrCorrupt) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// TestHostileHeaders: headers with a right checksum and wrong contents.
func TestHostileHeaders(t *testing.T) {
	s, _ := sample(t, 1)
	good := s.f.appendHeader(nil)
	le := binary.LittleEndian
	// Offsets of fields, see encode.go.
	const roles, nextID, clock, count, segment = 33, 36, 40, 81, 82
	for name, damage := range map[string]func(b []byte) []byte{
		"window 0": func(b []byte) []byte { le.PutUint64(b, 0); return b },
		"error NaN": func(b []byte) []byte {
			le.PutUint64(b[8:], math.Float64bits(math.NaN()))
			return b
		},
		"roles 3":           func(b []byte) []byte { b[roles] = 3; return b },
		"next id":           func(b []byte) []byte { le.PutUint32(b[nextID:], 1); return b },
		"clock":             func(b []byte) []byte { le.PutUint64(b[clock:], 1); return b },
		"no segments":       func(b []byte) []byte { b[count] = 0; return b[:segment] },
		"too many segments": func(b []byte) []byte { b[count] = 200; return b },
		"huge strip":        func(b []byte) []byte { le.PutUint64(b[segment+8:], 1<<31); return b },
		"overflowing strip": func(b []byte) []byte {
			le.PutUint64(b[segment+8:], math.MaxUint64/256)
			return b
		},
		"strip 0":       func(b []byte) []byte { le.PutUint64(b[segment+8:], 0); return b },
		"S 9":           func(b []byte) []byte { b[segment+5] = 9; return b },
		"J 6":           func(b []byte) []byte { b[segment+6] = 6; return b },
		"R 2 of odd S":  func(b []byte) []byte { b[segment+5], b[segment+7] = 3, 2; return b },
		"used 7":        func(b []byte) []byte { b[segment+24] = 7; return b },
		"head 8":        func(b []byte) []byte { b[segment+33] = 8; return b },
		"live 0":        func(b []byte) []byte { b[segment+34] = 0; return b },
		"one byte more": func(b []byte) []byte { return append(b, 0) },
		"one byte less": func(b []byte) []byte { return b[:len(b)-1] },
	} {
		p := damage(append([]byte(nil), good...))
		enc, _ := frame.AppendHeader(nil, magic, encodingVersion, p)
		enc = append(enc, make([]byte, 1<<20)...)
		if f, err := Decode(bytes.NewReader(enc), 1<<30); !errors.Is(err, ErrCorrupt) || f != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecodeLimit: maxBytes is kept before anything is allocated.
func TestDecodeLimit(t *testing.T) {
	s, b := sample(t, 1)
	if _, err := Decode(bytes.NewReader(b), s.f.Bytes()-1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("limit below the size: %v", err)
	}
	f, err := Decode(bytes.NewReader(b), s.f.Bytes())
	if err != nil {
		t.Errorf("limit of the size: %v", err)
	} else {
		f.Release()
	}
}

// TestEncoderOutlivesSegments: segments may go while an encoder still reads them.
func TestEncoderOutlivesSegments(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3, Capacity: 1_000_000}, 1)
	if s.f.newest().mem.mapped == nil {
		t.Log("segment not mapped on this system")
	}
	s.run(1000, steady(1000))
	e := s.f.NewEncoder()
	var out bytes.Buffer
	if _, err := io.CopyN(&out, e, 100_000); err != nil {
		t.Fatal(err)
	}
	s.f.Release()
	if _, err := io.Copy(&out, e); err != nil {
		t.Fatal(err)
	}
	f, err := Decode(&out, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	f.Release()
	s.f = newSim(t, Options{Window: 1, Error: .1}, 1).f // for the cleanup
}

func FuzzDecode(f *testing.F) {
	for roles := 1; roles <= 2; roles++ {
		_, b := sample(f, roles)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := Decode(bytes.NewReader(b), 1<<20)
		if err != nil {
			if g != nil || !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v", err)
			}
			return
		}
		defer g.Release()
		exercise(t, g)
	})
}

// FuzzHeader skips the checksums, which fuzzing cannot guess: whatever header
// is accepted must make a filter that can be used.
func FuzzHeader(f *testing.F) {
	for roles := 1; roles <= 2; roles++ {
		s, _ := sample(f, roles)
		f.Add(s.f.appendHeader(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := decodeHeader(b, 1<<18)
		if err != nil {
			if g != nil || !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v", err)
			}
			return
		}
		if !bytes.Equal(g.appendHeader(nil), b) {
			t.Fatal("header read is not the header written")
		}
		for _, s := range g.segs {
			if err := g.take(s); err != nil {
				t.Fatal(err)
			}
		}
		defer g.Release()
		g.schedule()
		exercise(t, g)
	})
}

// exercise uses a decoded filter in every way; whatever its state it must not panic.
func exercise(t *testing.T, f *Filter) {
	now := max(0, f.clock)
	for i := range uint64(100) {
		for n := 0; ; n++ {
			if n > 400 {
				t.Fatal("Plan does not come to an end")
			}
			if !f.Due(now) {
				break
			}
			e, ok := f.Plan(now, func(n uint64) bool { return n < 1<<20 })
			if !ok {
				break
			}
			if err := f.Apply(e); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
		}
		f.Insert(i*0x9E3779B97F4A7C15, now)
		if !f.Contains(i * 0x9E3779B97F4A7C15) {
			t.Fatal("not found after insert")
		}
		now += int64(i)
	}
	f.Stats(now)
	if _, err := io.Copy(io.Discard, f.NewEncoder()); err != nil {
		t.Fatal(err)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range sampleEvents {
		f.Add(e.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, n, err := DecodeEvent(b)
		if err != nil {
			if !errors.Is(err, ErrEvent) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(e.AppendTo(nil), b[:n]) {
			t.Fatalf("%x decodes to %+v which encodes as %x", b[:n], e, e.AppendTo(nil))
		}
		g, err := New(Options{Window: 1000, Error: 1e-3}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Release()
		if e.Kind == Open && e.Lines > 1<<16 {
			return
		}
		if err := g.Apply(e); err != nil && !errors.Is(err, ErrEvent) {
			t.Fatal(err)
		}
	})
}

var sampleEvents = []Event{
	{Kind: Expire, Time: 5},
	{Kind: Rotate, Time: 1 << 40, Segment: 1, Limit: 77},
	{Kind: Open, Time: 3, Segment: 2, Lines: 300, Limit: 1000},
	{Kind: Deny, Time: 3, Until: 1000},
	{Kind: Deny, Time: 3, Until: 1000, Shrink: true},
}

func TestEvents(t *testing.T) {
	for _, e := range sampleEvents {
		b := e.AppendTo([]byte("x"))
		got, n, err := DecodeEvent(append(b[1:len(b):len(b)], "rest"...))
		if err != nil || got != e || n != len(b)-1 || n > MaxEventBytes {
			t.Errorf("%+v: got %+v, %d bytes, %v", e, got, n, err)
		}
		for cut := range n {
			if _, _, err := DecodeEvent(b[1 : 1+cut]); !errors.Is(err, ErrEvent) {
				t.Errorf("%v cut to %d: %v", e.Kind, cut, err)
			}
		}
	}
	for _, e := range []Event{{}, {Kind: 9, Time: 1}, {Kind: Rotate, Segment: 1}, {Kind: Open, Segment: 1,
		Limit: 1}, {Kind: Deny, Time: 5, Until: 5}, {Kind: Expire, Time: -1}} {
		if _, _, err := DecodeEvent(e.AppendTo(nil)); !errors.Is(err, ErrEvent) {
			t.Errorf("%+v decodes: %v", e, err)
		}
	}
}

// TestApplyMisfits: events of another filter are refused and change nothing.
func TestApplyMisfits(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3}, 1)
	before := s.f.appendHeader(nil)
	for _, e := range []Event{
		{Kind: Rotate, Segment: 2, Limit: 1},
		{Kind: Open, Segment: 1, Lines: 300, Limit: 1},
		{Kind: Open, Segment: 2, Lines: 301, Limit: 1},
		{Kind: Open, Segment: 2, Lines: 3, Limit: 1},
		{Kind: 77},
	} {
		if err := s.f.Apply(e); !errors.Is(err, ErrEvent) || !bytes.Equal(before, s.f.appendHeader(nil)) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// TestChunkOrder: exchanged chunks are noticed although each is whole.
func TestChunkOrder(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3, Capacity: 200_000}, 1)
	s.run(2000, steady(1000))
	b, err := io.ReadAll(s.f.NewEncoder())
	if err != nil {
		t.Fatal(err)
	}
	head := 9 + len(s.f.appendHeader(nil)) + 4
	size := 1 + 8*chunkLines + 4
	if len(b) < head+2*size {
		t.Fatalf("encoding of %d bytes holds no two chunks", len(b))
	}
	swapped := append([]byte(nil), b...)
	copy(swapped[head:], b[head+size:head+2*size])
	copy(swapped[head+size:], b[head:head+size])
	if _, err := Decode(bytes.NewReader(swapped), 1<<30); !errors.Is(err, ErrCorrupt) {
		t.Errorf("exchanged chunks: %v", err)
	}
}
