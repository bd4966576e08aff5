package store

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// fakeClock is a Clock that tests move.
type fakeClock struct {
	mu         sync.Mutex
	wall, mono int64
}

func newFakeClock() *fakeClock { return &fakeClock{wall: 1_700_000_000_000} }

func (c *fakeClock) now() (wall, mono int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall, c.mono
}

// advance lets time pass.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d.Milliseconds()
	c.mono += d.Milliseconds()
}

// step moves the wall clock alone.
func (c *fakeClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d.Milliseconds()
}

// testStore opens a store on an in-memory file system.
func testStore(t testing.TB, change func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: "data", FS: vfs.NewMem(), Partitions: 4, SnapshotInterval: -1, LogFileSize: 8 << 10,
		MinFreeDisk: -1,
		Fatal:       func(err error) { t.Error(err) }}
	if change != nil {
		change(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			s.CloseNow()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(testwait.Limit): // a panic that is yet to be seen has left a lock behind
			t.Error("the store does not close")
		}
	})
	return s
}

// eventually waits for a condition that other goroutines bring about.
var eventually = testwait.Until

// do executes one operation.
func do(s *Store, op Op) Op {
	var b Batch
	o := b.Add(op.Kind)
	run := o.run
	*o = op
	o.run = run
	s.Execute(&b)
	return b.Ops[0]
}

func cincr(s *Store, key, id string, delta int64) Op {
	return do(s, Op{Kind: CIncrBy, Key: []byte(key), ID: []byte(id), Delta: delta})
}

func get(s *Store, key string) (int64, bool) {
	op := do(s, Op{Kind: Get, Key: []byte(key)})
	return op.Value, op.Found
}

func wantOp(t *testing.T, op Op, value int64, applied bool) {
	t.Helper()
	if op.Err != nil || op.Value != value || op.Applied != applied {
		t.Fatalf("got (%d, applied %v, %v), want (%d, applied %v)", op.Value, op.Applied, op.Err, value,
			applied)
	}
}

func TestRetryIsAbsorbed(t *testing.T) {
	for _, mode := range []Mode{Exact, Approx} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			s := testStore(t, nil)
			if err := s.AlterTable(DefaultTable, TableChange{Mode: &mode}); err != nil {
				t.Fatal(err)
			}
			wantOp(t, cincr(s, "k", "a", 5), 5, true)
			wantOp(t, cincr(s, "k", "b", 2), 7, true)
			retry := cincr(s, "k", "a", 5)
			if mode == Exact {
				wantOp(t, retry, 5, false) // the original result
			} else {
				wantOp(t, retry, 7, false) // the present value
			}
			if mode == Exact {
				if op := cincr(s, "k", "a", 6); !errors.Is(op.Err, ErrMismatch) {
					t.Fatalf("another delta: %v", op.Err)
				}
			}
			wantOp(t, cincr(s, "other", "a", 1), 1, true)
			if v, _ := get(s, "k"); v != 7 {
				t.Fatalf("k = %d", v)
			}
		})
	}
}

func TestReopen(t *testing.T) {
	for _, how := range []string{"close", "no snapshot", "older snapshot"} {
		for _, mode := range []Mode{Exact, Approx} {
			t.Run(fmt.Sprint(how, mode), func(t *testing.T) {
				fs := vfs.NewMem()
				s := testStore(t, func(o *Options) { o.FS, o.Seed = fs, [16]byte{7} })
				if s.Seed() != [16]byte{7} {
					t.Fatal("the seed is not the one that was given")
				}
				if err := s.AlterTable(DefaultTable, TableChange{Mode: &mode}); err != nil {
					t.Fatal(err)
				}
				for i := range 500 {
					cincr(s, "k"+strconv.Itoa(i%50), strconv.Itoa(i), 1)
					if how == "older snapshot" && i%100 == 50 {
						if err := s.Snapshot(); err != nil {
							t.Fatal(err)
						}
					}
				}
				do(s, Op{Kind: Del, Keys: [][]byte{[]byte("k7")}})
				if how == "close" {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				} else {
					s.CloseNow()
				}
				s = testStore(t, func(o *Options) { o.FS = fs })
				for i := range 500 {
					if op := cincr(s, "k"+strconv.Itoa(i%50), strconv.Itoa(i), 1); op.Applied ||
						op.Err != nil {
						t.Fatalf("operation %d applied again (%v)", i, op.Err)
					}
				}
				for i := range 50 {
					v, ok := get(s, "k"+strconv.Itoa(i))
					if i == 7 {
						if ok {
							t.Fatal("deleted key is back")
						}
					} else if v != 10 {
						t.Fatalf("k%d = %d", i, v)
					}
				}
				if n, _ := s.DBSize(); n != 49 {
					t.Fatalf("DBSIZE %d", n)
				}
			})
		}
	}
}
