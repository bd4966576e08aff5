package store

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// overfullHeader is a header that says that 2^64-1 items were added to a filter for 10.
const overfullHeader = "ffffffffffffffff010000000500000002000000" +
	"10000000000000008000000000000000ffffffffffffffff7b14ae47e17a843f88168ac58c2b23400700000" +
	"00a0000000000000000"

// TestOverfullHeaderIsRefused: a header that a client has made must not stop the next start.
func TestOverfullHeaderIsRefused(t *testing.T) {
	header, err := hex.DecodeString(overfullHeader)
	must(t, err)
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	wantOp(t, cincr(s, "counter", "id", 1), 1, true)
	if op := do(s, Op{Kind: BFLoad, Key: []byte("k"), Delta: 1, Keys: [][]byte{header}}); !errors.Is(op.Err,
		ErrBloomData) {
		t.Errorf("LOADCHUNK answered %v", op.Err)
	}
	do(s, Op{Kind: BFAdd, Key: []byte("k"), Keys: [][]byte{[]byte("x")}})
	must(t, s.Close())
	s = testStore(t, func(o *Options) { o.FS = fs })
	if v, _ := get(s, "counter"); v != 1 {
		t.Error(v)
	}
}

// TestAcceptedObjectsLoad: whatever options and headers operations accept, and whatever follows,
// each object can be read again and is the same, and the store can be opened again.
func TestAcceptedObjectsLoad(t *testing.T) {
	created := make(map[Type]int)
	for seed := range uint64(40 / raced.Step) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		fs, clock := vfs.NewMem(), newFakeClock()
		options := func(o *Options) { o.FS, o.Partitions, o.Clock = fs, 1, clock.now }
		s := testStore(t, options)
		var loaded []byte
		for n := range 150 {
			clock.advance(time.Duration(rnd.Int64N(900)) * time.Millisecond)
			op := randomObjectOp(rnd, n, loaded)
			if op = do(s, op); op.Kind == BFDump {
				loaded, _ = op.Object.([]byte)
			}
			if n%10 == 0 {
				s.refreshDue(s.partitions[0])
				mustLoad(t, s.partitions[0], created)
			}
		}
		must(t, s.Close())
		s = testStore(t, options)
		mustLoad(t, s.partitions[0], created)
	}
	for typ := firstObject; typ <= TypeCountMin; typ++ {
		if created[typ] < 100/raced.Step {
			t.Errorf("of type %d only %d objects were read: the test tries too little", typ, created[typ])
		}
	}
}

// randomObjectOp returns an operation whose arguments may be anything.
func randomObjectOp(rnd *rand.Rand, n int, header []byte) Op {
	key := func(of string) []byte { return fmt.Append(nil, of, rnd.IntN(4)) }
	var items [][]byte
	var deltas []int64
	for range 1 + rnd.IntN(20) {
		items = append(items, fmt.Append(nil, rnd.IntN(500)))
		deltas = append(deltas, (rnd.Int64()-math.MaxInt64/4)>>rnd.IntN(63))
	}
	float := func() float64 { return []float64{rnd.Float64(), 1e-6, 0.5, 1e-15, 5e-324, 1e-300}[rnd.IntN(6)] }
	switch rnd.IntN(10) {
	case 0:
		return Op{Kind: BFReserve, Key: key("b"), Object: &BloomOptions{Error: float(), Capacity: 1 +
			rnd.Uint64N(100), Expansion: rnd.Uint32N(5), NonScaling: rnd.IntN(5) == 0}}
	case 1, 2:
		return Op{Kind: BFAdd, Key: key("b"), Keys: items,
			Object: &BloomOptions{Error: float(), Capacity: 1 + rnd.Uint64N(9), Expansion: rnd.Uint32N(3)}}
	case 3:
		return Op{Kind: BFDump, Key: key("b"), Deltas: []int64{100}}
	case 4:
		header = bytes.Clone(header)
		if len(header) > 0 && rnd.IntN(2) == 0 {
			header[rnd.IntN(len(header))] ^= 1 << rnd.IntN(8)
		}
		return Op{Kind: BFLoad, Key: fmt.Append(nil, "b", 10+n), Delta: 1, Keys: [][]byte{header}}
	case 5:
		return Op{Kind: CMSInit, Key: key("c"),
			Object: &SketchOptions{Width: 1 + rnd.Uint64N(100), Depth: 1 + rnd.Uint64N(9),
				Cell: rnd.Uint64N(10), Window: rnd.Int64N(2) * rnd.Int64N(5000), Past: rnd.Uint64N(9)}}
	case 6:
		if rnd.IntN(4) == 0 {
			return Op{Kind: CMSMerge, Keys: [][]byte{key("c"), key("c"), key("c")},
				Deltas: []int64{rnd.Int64N(9) - 2, deltas[0]}}
		}
		return Op{Kind: CMSIncrBy, Key: key("c"), Keys: items, Deltas: deltas[:len(items)]}
	case 7:
		o := &FilterOptions{Window: time.Duration(rnd.Int64N(1 << 45)), Error: float(),
			Capacity: rnd.Uint64N(5000), Past: rnd.IntN(8)}
		if rnd.IntN(2) == 0 {
			o = &FilterOptions{Fixed: true, Bits: 60 + rnd.Uint64N(5000), Hashes: rnd.IntN(34),
				Past: rnd.IntN(70), Refresh: time.Duration(rnd.Int64N(1e9))}
		}
		return Op{Kind: FBFReserve, Key: key("f"), Object: o}
	case 8:
		return Op{Kind: FBFAdd, Key: key("f"), Keys: items}
	}
	return Op{Kind: FBFRefresh, Key: key("f")}
}

// mustLoad reads every object anew of what a checkpoint writes of it.
func mustLoad(t *testing.T, p *partition, created map[Type]int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	encoded := func(o object) []byte {
		b, err := io.ReadAll(o.encode(&p.machine))
		must(t, err)
		return b
	}
	for key, c := range p.objects {
		o := c.object()
		again, err := objectTypes[c.kind].decode(bufio.NewReader(bytes.NewReader(encoded(o))), math.MaxInt64)
		if err != nil {
			t.Fatalf("%q cannot be read again: %v", key, err)
		}
		if is, ok := o.(*paged); ok {
			f := again.(*paged).Sketch
			sketch.Unsaved(is.Sketch)
			list := is.Memory().TakeDirty()
			for _, n := range list {
				seq, content := sketch.TakePage(is.Sketch, n)
				if err := sketch.LoadPage(f, n, seq, content); err != nil {
					t.Fatalf("page %d of %q cannot be loaded: %v", n, key, err)
				}
			}
			if is.Memory().NotWritten(list); !sketch.Equal(is.Sketch, f) {
				t.Fatalf("%q is not the same", key)
			}
		}
		if !bytes.Equal(encoded(again), encoded(o)) {
			t.Fatalf("%q is not the same", key)
		}
		again.release()
		created[c.kind]++
	}
}
