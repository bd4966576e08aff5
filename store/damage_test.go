package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// flipByte damages a file in the middle.
func flipByte(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	info, err := fs.Stat(path)
	must(t, err)
	flipByteAt(t, fs, path, info.Size()/2)
}

// flipByteAt flips a bit of a byte of a file.
func flipByteAt(t *testing.T, fs vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, err)
	must(t, f.Close())
	b[at] ^= 0x10
	w, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = w.Write(b)
	must(t, err)
	must(t, w.Close())
}

// damageSnapshots flips a byte in the newest n snapshots of each partition.
func damageSnapshots(t *testing.T, s *Store, fs vfs.FS, n int) {
	t.Helper()
	for _, p := range s.partitions {
		list, err := s.db.Snapshots(p.id)
		must(t, err)
		if len(list) < 2 {
			t.Fatalf("partition %d has %d snapshots", p.id, len(list))
		}
		for _, snap := range list[:n] {
			flipByte(t, fs, snap.Path)
		}
	}
}

// TestDamagedSnapshots: the older snapshot serves when the newest is damaged;
// when both are, EXACT tables are rebuilt from their records and APPROX ones
// make the server refuse to start. Never is anything silently forgotten.
func TestDamagedSnapshots(t *testing.T) {
	for _, tc := range []struct {
		name    string
		mode    Mode
		damaged int
		accept  bool
		other   bool // an APPROX table beside the tested one
		want    error
	}{
		{"exact, newest", Exact, 1, false, false, nil},
		{"approx, newest", Approx, 1, false, false, nil},
		{"exact, both", Exact, 2, false, false, nil},
		{"approx, both", Approx, 2, false, false, ErrForgotten},
		{"exact beside approx, both, accepted", Exact, 2, true, true, nil},
		{"approx, both, accepted", Approx, 2, true, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newFakeClock()
			s := testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
			if tc.other {
				must(t, s.CreateTable(TableOptions{Name: "other", Prefix: "x", Mode: Approx}))
			}
			must(t, s.AlterTable(DefaultTable, TableChange{Mode: &tc.mode}))
			key := func(i int) string { return "k" + strconv.Itoa(i%40) }
			for i := range 2000 {
				cincr(s, key(i), strconv.Itoa(i), 1)
				clock.advance(20 * time.Millisecond)
				if i == 500 || i == 1000 || i == 1500 {
					must(t, s.Snapshot())
				}
			}
			s.CloseNow()
			damageSnapshots(t, s, fs, tc.damaged)
			o := Options{Dir: "data", FS: fs, SnapshotInterval: -1, MinFreeDisk: -1,
				AcceptForgottenWindow: tc.accept, Clock: clock.now}
			s, err := Open(o)
			if !errors.Is(err, tc.want) {
				t.Fatalf("Open: %v, want %v", err, tc.want)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "--accept-forgotten-window") {
					t.Errorf("the error does not say what to do: %v", err)
				}
				return
			}
			r := s.Stats().Recovery
			if len(r.Problems) == 0 || tc.damaged == 1 && r.Older == 0 || tc.damaged == 2 && r.Rebuilt == 0 {
				t.Errorf("recovery says %+v", r)
			}
			for range 2 {
				again := 0
				for i := range 2000 {
					if op := cincr(s, key(i), strconv.Itoa(i), 1); op.Err != nil {
						t.Fatal(op.Err)
					} else if op.Applied {
						again++
					}
				}
				if again > 0 && tc.mode == Exact {
					t.Fatalf("%d operations were applied again", again)
				}
				must(t, s.CloseNow())
				s, err = Open(o)
				must(t, err)
			}
			must(t, s.CloseNow())
		})
	}
}

// TestRebuiltAfterFlush loses all snapshots after a FLUSHALL: what came after it
// is remembered, what came before stays out, and keys are counted right.
func TestRebuiltAfterFlush(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	s := testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
	t0, _ := clock.now()
	if op := cincrAt(s, "k", "before", t0); !op.Applied {
		t.Fatal(op.Err)
	}
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	must(t, s.Snapshot())
	clock.advance(10 * time.Second)
	if op := do(s, Op{Kind: FlushAll}); op.Err != nil {
		t.Fatal(op.Err)
	}
	wantOp(t, cincr(s, "k", "after", 5), 5, true)
	do(s, Op{Kind: FBFReserve, Key: []byte("lost")})
	must(t, s.Snapshot())
	cincr(s, "z", "1", 1)
	must(t, s.Snapshot())
	s.CloseNow()
	damageSnapshots(t, s, fs, 2)
	s = testStore(t, func(o *Options) { o.FS, o.Clock, o.AcceptForgottenWindow = fs, clock.now, true })
	wantOp(t, cincr(s, "k", "after", 5), 5, false)
	if op := cincrAt(s, "k", "before", t0); !errors.Is(op.Err, ErrStale) {
		t.Errorf("what FLUSHALL forgot: %+v", op)
	}
	keys := int64(0)
	_, err := s.Scan(0, 100, func([]byte, Type) { keys++ })
	must(t, err)
	if n, _ := s.DBSize(); n != keys {
		t.Errorf("DBSIZE %d, SCAN finds %d", n, keys)
	}
}

// TestDamagedSnapshotIsNotKept: the snapshot that recovery had to use stays
// until two good ones are there.
func TestDamagedSnapshotIsNotKept(t *testing.T) {
	fs := vfs.NewMem()
	with := func(o *Options) { o.FS, o.Partitions = fs, 1 }
	s := testStore(t, with)
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Approx)}))
	for i := range 3 {
		cincr(s, "k", strconv.Itoa(i), 1)
		must(t, s.Snapshot())
	}
	for i := 3; i < 6; i++ { // again and again the newest one is damaged
		s.CloseNow()
		damageSnapshots(t, s, fs, 1)
		s = testStore(t, with)
		cincr(s, "k", strconv.Itoa(i), 1)
		must(t, s.Snapshot())
	}
	for i := range 6 {
		if op := cincr(s, "k", strconv.Itoa(i), 1); op.Applied || op.Err != nil {
			t.Fatalf("operation %d: %+v", i, op)
		}
	}
}

// TestForgedKeys: keys that hold chunks as Pebble's log has them, in files of the op
// log that are used again, delete nothing when a crash ends the log in front of one.
func TestForgedKeys(t *testing.T) {
	const batch = "\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0f\x01r\x01s" // DeleteRange of all rows
	section := append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(batch))), batch...)
	chunk := append([]byte{0, 0, 0, 0, byte(len(section)), 0, 1}, section...)
	sum := crc32.Checksum(chunk[6:], crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(chunk, (sum>>15|sum<<17)+0xa282ead8)

	mem := vfs.NewCrashableMem()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions = mem, 1 })
	victim := Op{Kind: CIncrBy, Key: []byte("victim"), ID: []byte("id"), Delta: 7}
	must(t, do(s, victim).Err)
	for range 4 {
		must(t, do(s, Op{Kind: Set, Key: bytes.Repeat(chunk, 7000/len(chunk)), Delta: 1}).Err)
	}
	again := func() bool { // a file of the log holds what it held before
		names, err := mem.List("data/log")
		must(t, err)
		return slices.ContainsFunc(names, func(name string) bool {
			if !strings.HasSuffix(name, ".log") {
				return false
			}
			f, err := mem.Open("data/log/" + name)
			must(t, err)
			b, err := io.ReadAll(f)
			must(t, errors.Join(err, f.Close()))
			return bytes.Contains(b, chunk)
		})
	}
	for i := 0; i < 3 || !again(); i++ { // the rows are written, the files given up and used again
		if i == 100 {
			t.Fatal("no file of the log holds the chunk")
		}
		must(t, s.Snapshot())
		for range 4 {
			must(t, do(s, Op{Kind: Set, Key: bytes.Repeat([]byte("x"), 3000), Delta: 1}).Err)
		}
	}
	for i := range 2 * len(chunk) {
		must(t, do(s, Op{Kind: Set, Key: bytes.Repeat([]byte("x"), i+1), Delta: 1}).Err)
		if i%raced.Step > 0 {
			continue
		}
		clone := crashtest.Clone(mem, 100, rand.New(rand.NewPCG(1, 1)))
		again, err := Open(Options{Dir: "data", FS: clone, SnapshotInterval: -1, MinFreeDisk: -1})
		must(t, err)
		if got := do(again, Op{Kind: Get, Key: victim.Key}); got.Err != nil || got.Value != 7 {
			t.Fatalf("after %d more operations: %d, %v", i, got.Value, got.Err)
		}
		if got := do(again, victim); got.Applied || got.Value != 7 {
			t.Fatalf("after %d more operations its retry is %+v", i, got)
		}
		must(t, again.CloseNow())
	}
}
