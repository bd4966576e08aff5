package sketch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
)

func newBloom(t testing.TB, o BloomOptions) *Bloom {
	t.Helper()
	header, ok := AppendBloom(nil, o)
	if !ok {
		t.Fatal("too large")
	}
	f, err := NewBloom(header)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// addTo adds items as the caller of this package is to; it returns how many were new.
func addTo(t testing.TB, f *Bloom, seq uint64, items ...string) (added int) {
	t.Helper()
	for _, item := range items {
		a, b := HashItem([]byte(item))
		if f.Contains(a, b) {
			continue
		}
		if f.Room() == 0 {
			next, _, ok := f.Next(1)
			if !ok {
				t.Fatal("no room")
			}
			if err := f.Redo(AppendGrowth(nil, next[0]), seq); err != nil {
				t.Fatal(err)
			}
			seq++
		}
		if err := f.Redo(AppendItem(f.AppendItems(nil), a, b), seq); err != nil {
			t.Fatal(err)
		}
		seq++
		added++
	}
	return added
}

// TestBloomChunks: a filter's dump is RedisBloom's (sketch-vectors.txt, filter C), and loads.
func TestBloomChunks(t *testing.T) {
	f := newBloom(t, BloomOptions{Error: 0.001, Capacity: 3, Expansion: 3})
	for i := range uint64(20) {
		addTo(t, f, 10*i+1, fmt.Sprint("i", i))
	}
	for i, want := range []string{
		"140000000000000003000000050000000300000008000000000000004000000000000000" +
			"0300000000000000fca9f1d24d62403f2e92f414fca32f400b0000000300000000000000001800000000000000c000000000000000" +
			"0900000000000000fca9f1d24d62303f4701cd80524331400c00000009000000000000000040000000000000000002000000000000" +
			"0800000000000000fca9f1d24d62203f77b91ff7a6b432400d0000001b0000000000000000",
		"8503b1ba0ee5407d",
		"b0f4d1521b31b03ab9196a89182c1ac654b6531eb4808af8",
		"02020040300340000282001240034020004a0908c2220bc23008aa2048020043040020a000320860c4024208a1c202022836100000c220004123106001001012",
	} {
		at := []int64{0, 1, 9, 33, 97}
		if next, data := f.Chunk(at[i], 1<<20); next != at[i+1] || hex.EncodeToString(data) != want {
			t.Errorf("chunk %d is %x, then %d", i, data, next)
		}
	}
	for _, behind := range []int64{97, -1, 1 << 62} {
		if next, data := f.Chunk(behind, 5); next != 0 || len(data) > 0 {
			t.Error(next, data)
		}
	}
	next, header := f.Chunk(0, 5)
	g, err := NewBloom(header)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); next != 0; seq++ {
		var data, change []byte
		if next, data = f.Chunk(next, 5); next == 0 {
			break
		}
		if change, err = g.AppendChunk(nil, next, data); err == nil {
			err = g.Redo(change, seq)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !Equal(f, g) {
		t.Error("not the same filter")
	}
	for _, c := range []struct {
		next int64
		data string
		want error
	}{{0, "", ErrCorrupt}, {1, "x", ErrCorrupt}, {99, "x", ErrChunkOffset},
		{10, "123456789", ErrChunkLength}} {
		if _, err := g.AppendChunk(nil, c.next, []byte(c.data)); !errors.Is(err, c.want) {
			t.Errorf("%d %q: %v", c.next, c.data, err)
		}
	}
}

// TestBloomError: a filter holds its error, growing or not, and forgets nothing.
func TestBloomError(t *testing.T) {
	f := newBloom(t, BloomOptions{Error: 0.01, Capacity: 1000, Expansion: 2})
	for i := range 10_000 {
		addTo(t, f, uint64(2*i+1), fmt.Sprint("in", i))
	}
	wrong := 0
	for i := range 10_000 {
		if !f.Contains(HashItem(fmt.Append(nil, "in", i))) {
			t.Fatalf("in%d is lost", i)
		}
		if f.Contains(HashItem(fmt.Append(nil, "out", i))) {
			wrong++
		}
	}
	if info := f.Info(); wrong > 100 || len(info.Filters) != 4 || info.Size < 9900 {
		t.Errorf("%d of 10000 are taken for known, %+v", wrong, info)
	}
}

// FuzzBloom: a header and a change that anybody may have made are refused, or harmless, and
// what is accepted is encoded as it came, and accepted again after the change.
func FuzzBloom(f *testing.F) {
	b := newBloom(f, BloomOptions{Error: 0.01, Capacity: 3, Expansion: 1})
	addTo(f, b, 1, "a", "b", "c", "d")
	next, _, _ := b.Next(b.Room() + 1)
	f.Add(b.header(), AppendGrowth(nil, next[0]))
	f.Add(b.header(), AppendItem(b.AppendItems(nil), 1, 2))
	chunk, _ := b.AppendChunk(nil, 9, []byte("01234567"))
	f.Add(b.header(), chunk)
	f.Fuzz(func(t *testing.T, header, change []byte) {
		u, err := UnloadedBloom(header)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		n := u.Needs()
		if n > 1<<22 {
			return
		}
		g, err := NewBloom(header)
		if err != nil || g.Bytes() != n || !bytes.Equal(g.header(), header) {
			t.Fatalf("%d bytes instead of %d, %v", g.Bytes(), n, err)
		}
		if len(change) > bloomSub && change[0] == bloomGrows {
			if sub, ok := decodeSubFilter(change[1 : 1+bloomSub]); ok && sub.Bytes > 1<<22 {
				return
			}
		}
		if err := g.Redo(change, 1); err == nil {
			if _, err := UnloadedBloom(g.header()); err != nil {
				t.Fatalf("after a change that was accepted the header is refused: %v", err)
			}
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		g.Contains(HashItem([]byte("a")))
		for _, next := range []int64{int64(len(change)) + 1, int64(len(header)) + 1, -1} {
			if what, err := g.AppendChunk(nil, next, change); err == nil && len(change) > 0 {
				if err := g.Redo(what, 2); err != nil {
					t.Fatal(err)
				}
				if _, got := g.Chunk(next-int64(len(change)), uint64(len(change))); !bytes.Equal(got,
					change) {
					t.Errorf("%x was loaded, %x is dumped", change, got)
				}
			}
		}
	})
}
