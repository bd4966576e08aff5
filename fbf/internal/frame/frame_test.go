package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"testing/iotest"
)

var magic = [4]byte{'t', 'e', 's', 't'}

const version = 3

// content is a header and chunks, the middle one of zeros.
var content = [][]byte{[]byte("header"), []byte("first chunk"), make([]byte, 21),
	bytes.Repeat([]byte{7}, 3000)}

// encode is content as a Stream gives it.
func encode(t testing.TB) []byte {
	t.Helper()
	b, err := io.ReadAll(stream(content))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func stream(content [][]byte) *Stream {
	chunks := content[1:]
	return NewStream(magic, version, content[0], func(payload []byte) ([]byte, bool) {
		if len(chunks) == 0 {
			return nil, false
		}
		payload = append(payload, chunks[0]...)
		chunks = chunks[1:]
		return payload, true
	})
}

// decode reads a header and chunks of the lengths that content has.
func decode(r io.Reader) (got [][]byte, err error) {
	header, sum, err := ReadHeader(r, magic, version)
	if err != nil {
		return nil, err
	}
	got = append(got, header)
	for _, c := range content[1:] {
		payload := bytes.Repeat([]byte{0xAA}, len(c))
		if sum, err = ReadChunk(r, sum, payload); err != nil {
			return nil, err
		}
		got = append(got, payload)
	}
	return got, nil
}

func TestRoundTrip(t *testing.T) {
	b := encode(t)
	if again, err := io.ReadAll(iotest.OneByteReader(stream(content))); err != nil || !bytes.Equal(again, b) {
		t.Errorf("read byte by byte the stream differs (%v)", err)
	}
	if err := iotest.TestReader(stream(content), b); err != nil {
		t.Error(err)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(b),
		"byte by byte":             iotest.OneByteReader(bytes.NewReader(b)),
		"error with the last byte": iotest.DataErrReader(bytes.NewReader(b))} {
		got, err := decode(r)
		if err != nil || !slices.EqualFunc(got, content, bytes.Equal) {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

// TestNothingBeyond: what follows an encoding is left to its owner.
func TestNothingBeyond(t *testing.T) {
	r := bytes.NewReader(append(encode(t), "more"...))
	if _, err := decode(r); err != nil || r.Len() != 4 {
		t.Errorf("%v, %d bytes left, want 4", err, r.Len())
	}
}

func TestZerosTakeNoRoom(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 4096} {
		b, _ := AppendChunk(nil, 5, make([]byte, n))
		if len(b) != 5 {
			t.Errorf("%d zeros take %d bytes, want 5", n, len(b))
		}
		for i := range n {
			p := make([]byte, n)
			p[i] = 1
			if b, _ := AppendChunk(nil, 5, p); len(b) != 5+n {
				t.Fatalf("%d bytes with a 1 at %d take %d bytes, want %d", n, i, len(b), 5+n)
			}
		}
	}
}

func TestTruncated(t *testing.T) {
	b := encode(t)
	for n := range b {
		if _, err := decode(bytes.NewReader(b[:n])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(b), err)
		}
	}
}

func TestFlippedBits(t *testing.T) {
	b := encode(t)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		if _, err := decode(bytes.NewReader(b)); !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d of byte %d flipped: %v", i%8, i/8, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

// TestHostileLengths: a length beyond MaxHeader is refused before it is believed.
func TestHostileLengths(t *testing.T) {
	for _, n := range []uint32{MaxHeader + 1, math.MaxInt32, math.MaxUint32 - 3, math.MaxUint32} {
		b := append(magic[:], version)
		b = binary.LittleEndian.AppendUint32(b, n)
		r := io.MultiReader(bytes.NewReader(b), iotest.ErrReader(errors.New("read on")))
		if _, _, err := ReadHeader(r, magic, version); !errors.Is(err, ErrDamaged) {
			t.Errorf("length %d: %v", n, err)
		}
	}
	b, sum := AppendHeader(nil, magic, version, make([]byte, MaxHeader))
	if p, got, err := ReadHeader(bytes.NewReader(b), magic, version); err != nil || len(p) != MaxHeader ||
		got != sum {
		t.Errorf("largest header: %v", err)
	}
}

// TestOthersEncodings: another magic or version is not read, though its checksum is right.
func TestOthersEncodings(t *testing.T) {
	for _, b := range [][]byte{first(AppendHeader(nil, [4]byte{'T'}, version, nil)),
		first(AppendHeader(nil, magic, version+1, nil))} {
		if _, _, err := ReadHeader(bytes.NewReader(b), magic, version); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func first(b []byte, _ uint32) []byte { return b }

// TestChunksInPlace: whole chunks exchanged, left out or from another encoding are noticed.
func TestChunksInPlace(t *testing.T) {
	chunk := []byte("same length")
	encoding := func(header string, chunks ...string) (parts [][]byte) {
		b, sum := AppendHeader(nil, magic, version, []byte(header))
		parts = append(parts, b)
		for _, c := range chunks {
			b, sum = AppendChunk(nil, sum, []byte(c))
			parts = append(parts, b)
		}
		return parts
	}
	read := func(parts ...[]byte) error {
		r := bytes.NewReader(slices.Concat(parts...))
		_, sum, err := ReadHeader(r, magic, version)
		for r.Len() > 0 && err == nil {
			sum, err = ReadChunk(r, sum, chunk)
		}
		return err
	}
	a, b := encoding("a", "chunk one..", "chunk two.."), encoding("b", "chunk one..", "chunk two..")
	if err := read(a...); err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string][][]byte{"exchanged": {a[0], a[2], a[1]}, "left out": {a[0],
		a[2]}, "another's": {a[0], b[1], b[2]}, "doubled": {a[0], a[1], a[1]}} {
		if err := read(parts...); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadersErrors: an error of the reader's own is no damage.
func TestReadersErrors(t *testing.T) {
	b := encode(t)
	verdict := errors.New("corrupt")
	for n := range b {
		_, err := decode(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(io.ErrNoProgress)))
		if err = Verdict(err, verdict); !errors.Is(err, io.ErrNoProgress) || errors.Is(err, ErrDamaged) ||
			errors.Is(err, verdict) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	if err := Verdict(ErrDamaged, verdict); !errors.Is(err, verdict) || !errors.Is(err, ErrDamaged) {
		t.Errorf("verdict on damage: %v", err)
	}
	if Verdict(nil, verdict) != nil {
		t.Error("verdict on no error")
	}
}
