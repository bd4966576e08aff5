package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// vectorWords splits a request into words; those in quotes have escapes.
func vectorWords(t *testing.T, line string) (words []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] == '"' {
			q, err := strconv.QuotedPrefix(line)
			must(t, err)
			w, err := strconv.Unquote(q)
			must(t, err)
			words, line = append(words, w), line[len(q):]
			continue
		}
		w, rest, _ := strings.Cut(line, " ")
		words, line = append(words, w), rest
	}
	return words
}

// dumpBloom returns the header and the bits of a filter.
func dumpBloom(t *testing.T, s *Store, key string) (header, bits []byte) {
	t.Helper()
	const chunk = 1007
	op := do(s, Op{Kind: BFDump, Key: []byte(key), Deltas: []int64{chunk}})
	must(t, op.Err)
	header = op.Object.([]byte)
	for op.Value != 0 {
		op = do(s, Op{Kind: BFDump, Key: []byte(key), Delta: op.Value, Deltas: []int64{chunk}})
		bits = append(bits, op.Object.([]byte)...)
	}
	return header, bits
}

// TestBloomVectors: answers, header and bits are RedisBloom's (section 3 of the vectors), and
// a filter that is loaded from them is the same.
func TestBloomVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/bloom-vectors.txt")
	must(t, err)
	for _, block := range strings.Split(string(text), "### ")[1:] {
		name, block, _ := strings.Cut(block, "\n")
		s := testStore(t, nil)
		key := []byte("f")
		var answers string
		var dump strings.Builder
		dumped := 0
		for _, line := range strings.Split(block, "\n") {
			trimmed := strings.TrimSpace(line)
			request, reply, _ := strings.Cut(trimmed, " -> ")
			switch w := strings.Fields(request); {
			case len(w) == 0:
			case w[0] == "BF.RESERVE":
				o := BloomOptions{Expansion: 2}
				o.Error, _ = strconv.ParseFloat(w[2], 64)
				o.Capacity, _ = strconv.ParseUint(w[3], 10, 64)
				if len(w) == 6 {
					n, _ := strconv.Atoi(w[5])
					o.Expansion = uint32(n)
				}
				o.NonScaling = len(w) == 5
				must(t, do(s, Op{Kind: BFReserve, Key: key, Object: &o}).Err)
			case w[0] == "BF.ADD" || w[0] == "BF.MADD":
				op := Op{Kind: BFAdd, Key: key}
				for _, item := range vectorWords(t, request)[2:] {
					op.Keys = append(op.Keys, []byte(item))
				}
				op = do(s, op)
				must(t, op.Err)
				var out []string
				for i, found := range op.Founds {
					switch {
					case op.Fulls[i]:
						out = append(out, "-ERR non scaling filter is full")
					case found:
						out = append(out, "0")
					default:
						out = append(out, "1")
					}
				}
				if answers = "[" + strings.Join(out, ", ") + "]"; reply != "" && answers != "["+reply+"]" {
					t.Errorf("%s: %s answered %s", name, request, answers)
				}
			case w[0] == "->":
				if want := strings.TrimPrefix(trimmed, "-> "); want != answers {
					t.Errorf("%s: answered %s instead of %s", name, answers, want)
				}
			case w[0] == "SCANDUMP":
				dumped++
			case dumped > 0 && len(w) == 1 && strings.Trim(w[0], "0123456789abcdef") == "":
				dump.WriteString(w[0])
			}
		}
		want, err := hex.DecodeString(dump.String())
		must(t, err)
		header, bits := dumpBloom(t, s, "f")
		if dumped < 3 || !bytes.Equal(append(bytes.Clone(header), bits...), want) {
			t.Errorf("%s: dumped %x %x", name, header, bits)
		}
		must(t, do(s, Op{Kind: BFLoad, Key: []byte("g"), Delta: 1, Keys: [][]byte{header}}).Err)
		end := 0
		for _, sub := range do(s, Op{Kind: BFInfo, Key: key}).Object.(*BloomInfo).Filters {
			chunk := bits[end : end+int(sub.Bytes)]
			end += len(chunk)
			must(t, do(s,
				Op{Kind: BFLoad, Key: []byte("g"), Delta: int64(end) + 1, Keys: [][]byte{chunk}}).Err)
		}
		h, b := dumpBloom(t, s, "g")
		if !bytes.Equal(h, header) || !bytes.Equal(b, bits) {
			t.Errorf("%s: not the same when it was loaded", name)
		}
	}
}

// TestBloomRefusals: what is refused changes nothing (G6).
func TestBloomRefusals(t *testing.T) {
	s := testStore(t, nil)
	add := func(items ...string) Op {
		op := Op{Kind: BFAdd, Key: []byte("f"), Object: &BloomOptions{Error: 0.01, Capacity: 3, Expansion: 1}}
		for _, i := range items {
			op.Keys = append(op.Keys, []byte(i))
		}
		return do(s, op)
	}
	must(t, add("a", "b").Err)
	must(t, do(s, Op{Kind: Set, Key: []byte("c")}).Err)
	header, bits := dumpBloom(t, s, "f")
	for i, c := range []struct {
		want error
		op   Op
	}{
		{ErrFilterExists, Op{Kind: BFReserve, Key: []byte("f")}},
		{ErrWrongType, Op{Kind: BFReserve, Key: []byte("c")}},
		{ErrWrongType, Op{Kind: BFAdd, Key: []byte("c"), Keys: [][]byte{{1}}}},
		{ErrNoFilter, Op{Kind: BFAdd, Key: []byte("n"), Keys: [][]byte{{1}}, Flags: NoCreate}},
		{ErrNoFilter, Op{Kind: BFLoad, Key: []byte("n"), Delta: 2, Keys: [][]byte{{1}}}},
		{ErrBloomData, Op{Kind: BFLoad, Key: []byte("n"), Delta: 1, Keys: [][]byte{header[:72]}}},
		{ErrBloomData, Op{Kind: BFLoad, Key: []byte("f"), Delta: 1, Keys: [][]byte{header}}},
		{ErrBloomData, Op{Kind: BFLoad, Key: []byte("f"), Delta: 0, Keys: [][]byte{{1}}}},
		{ErrBloomOffset, Op{Kind: BFLoad, Key: []byte("f"), Delta: 100, Keys: [][]byte{{1}}}},
		{ErrBloomChunk,
			Op{Kind: BFLoad, Key: []byte("f"), Delta: int64(len(bits)) + 2, Keys: [][]byte{bits}}},
	} {
		if op := do(s, c.op); !errors.Is(op.Err, c.want) {
			t.Errorf("%d: %v instead of %v", i, op.Err, c.want)
		}
	}
	for _, at := range []int{0, 8, 12, 20, 28, 36, 60, 72} { // fields of the header
		bad := bytes.Clone(header)
		bad[at] ^= 0x42
		if op := do(s, Op{Kind: BFLoad, Key: []byte("n"), Delta: 1, Keys: [][]byte{bad}}); !errors.Is(op.Err,
			ErrBloomData) {
			t.Errorf("a header with another byte %d: %v", at, op.Err)
		}
	}
	used := s.Stats().FilterBytes
	s.SetFilterMaxMemory(used + 10)
	if op := add("a", "c", "d", "e", "a"); op.Err != nil ||
		fmt.Sprint(op.Founds, op.Fulls, op.Found) != "[true false false false true] [false false true "+
			"true false] false" {
		t.Error(op.Founds, op.Fulls, op.Err)
	}
	if err := do(s, Op{Kind: BFReserve, Key: []byte("n")}).Err; !errors.Is(err, ErrBloomMemory) {
		t.Error(err)
	}
	if now := s.Stats().FilterBytes; now != used {
		t.Errorf("%d bytes instead of %d", now, used)
	}
	s.SetFilterMaxMemory(0)
	if op := add("d"); op.Err != nil || op.Fulls[0] {
		t.Error(op)
	}
	if op := do(s, Op{Kind: BFInfo, Key: []byte("f")}); op.Object.(*BloomInfo).Size != 4 ||
		len(op.Object.(*BloomInfo).Filters) != 2 {
		t.Error(op.Object)
	}
	for _, key := range []string{"c", "none"} {
		if op := do(s, Op{Kind: BFExists, Key: []byte(key), Keys: [][]byte{{1}, {2}}}); op.Err != nil ||
			len(op.Founds) != 2 || op.Founds[0] {
			t.Error(op.Founds, op.Err)
		}
	}
}

// TestBloomModel plays what happens to filters, with checkpoints, kills and orderly restarts
// in between, against a filter in a store that nothing happens to.
func TestBloomModel(t *testing.T) {
	for seed := uint64(0); seed < 10; seed += raced.Step {
		rnd := rand.New(rand.NewPCG(seed, 2))
		fs := vfs.NewMem()
		open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 2 }) }
		s, plain := open(), testStore(t, nil)
		n := 0
		for step := range 100 {
			key := []byte(fmt.Sprint("f", rnd.IntN(2)))
			op := Op{Key: key}
			switch rnd.IntN(12) {
			case 0, 1:
				must(t, s.Snapshot())
				continue
			case 2, 3:
				must(t, s.CloseNow())
				s = open()
			case 4:
				must(t, s.Close())
				checkSound(t, fs, "data")
				s = open()
			case 5:
				if op.Kind = FlushAll; rnd.IntN(3) > 0 {
					op = Op{Kind: Del, Keys: [][]byte{key}}
				}
			case 6: // bits from elsewhere, in fragments
				info := do(plain, Op{Kind: BFInfo, Key: key})
				if i, _ := info.Object.(*BloomInfo); i != nil {
					first := i.Filters[0].Bytes
					chunk := make([]byte, min(first, 1+rnd.Uint64N(40_000)))
					for j := range chunk {
						chunk[j] = byte(rnd.Uint32())
					}
					size := uint64(len(chunk))
					op.Kind, op.Delta = BFLoad, int64(size+1+rnd.Uint64N(first-size+1))
					op.Keys = [][]byte{chunk}
				}
			default:
				op.Kind, op.Object = BFAdd, &BloomOptions{Error: 0.01, Capacity: 1 + seed*7000, Expansion: 2}
				for range 1 + rnd.IntN(30) {
					n++
					op.Keys = append(op.Keys, []byte(fmt.Sprint("item", n-rnd.IntN(3))))
				}
			}
			if op.Kind != Nop {
				a, b := do(s, op), do(plain, op)
				if fmt.Sprint(a.Founds, a.Fulls, a.Err) != fmt.Sprint(b.Founds, b.Fulls, b.Err) {
					t.Fatalf("seed %d, step %d, kind %d: %v %v %v", seed, step, op.Kind, a.Founds, a.Fulls,
						a.Err)
				}
			}
			for _, key := range []string{"f0", "f1"} {
				if do(plain, Op{Kind: BFInfo, Key: []byte(key)}).Err != nil {
					if err := do(s, Op{Kind: BFInfo, Key: []byte(key)}).Err; !errors.Is(err, ErrNoFilter) {
						t.Fatal(err)
					}
					continue
				}
				header, bits := dumpBloom(t, s, key)
				if h, b := dumpBloom(t, plain, key); !bytes.Equal(h, header) || !bytes.Equal(b, bits) {
					t.Fatalf("seed %d, step %d: another filter, header %x instead of %x", seed, step, header,
						h)
				}
			}
		}
	}
}

// TestItemsOfOldSubFilters: the header on disk knows sub-filters that an item, which is
// redone, did not know yet; it is redone where it was.
func TestItemsOfOldSubFilters(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
	s := open()
	add := func(from, to int) {
		op := Op{Kind: BFAdd, Key: []byte("f"),
			Object: &BloomOptions{Error: 0.01, Capacity: 20, Expansion: 2}}
		for ; from < to; from++ {
			op.Keys = append(op.Keys, []byte(fmt.Sprint("item", from)))
		}
		must(t, do(s, op).Err)
	}
	add(0, 5)
	must(t, s.Snapshot())
	add(5, 100)
	// The pages reach the disk, the snapshot does not.
	p := s.partitions[0]
	c := checkpoint{s: s, p: p, pages: p.takeDirtyPages()}
	c.pages[0].list = c.pages[0].list[:1] // the header alone
	must(t, c.writePages())
	must(t, s.db.Flush())
	header, bits := dumpBloom(t, s, "f")
	must(t, s.CloseNow())
	s = open()
	if h, b := dumpBloom(t, s, "f"); !bytes.Equal(h, header) || !bytes.Equal(b, bits) {
		t.Errorf("another filter: %x instead of %x", b, bits)
	}
}
