package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestLogFromBeforeFlush: what a store deleted with FLUSHALL before it was a region is not told.
func TestLogFromBeforeFlush(t *testing.T) {
	w := &testRegions{t: t, gaps: true}
	for i := range 2 {
		r := &testRegion{n: i, fs: vfs.NewMem(), clock: newFakeClock(), parts: 1}
		w.r = append(w.r, r)
		w.open(r)
	}
	a, b := w.r[0], w.r[1]
	w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	w.do(a, Op{Kind: FlushAll})
	w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	if _, err := w.pull(b, a, 0, 0, 1<<20); !errors.Is(err, ErrGap) {
		t.Errorf("the log of before the FLUSHALL: %v", err)
	}
}

// TestEntriesOfMember: what a member of regions logs of an operation on a counter that only it has
// touched has the very bytes that a server alone logs.
func TestEntriesOfMember(t *testing.T) {
	var logs [2][]byte
	for i := range logs {
		w := &testRegions{t: t}
		for n := range 2 {
			w.r = append(w.r, &testRegion{n: n, fs: vfs.NewMem(), clock: newFakeClock(), parts: 1})
			w.open(w.r[n])
		}
		r := w.r[0]
		if i == 1 {
			must(t, r.s.SetRegions(w.set(0)))
		}
		first := r.s.partitions[0].seq + 1
		w.do(r, Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("one"), Delta: 5})
		w.do(r, Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("two"), Delta: -7})
		must(t, r.s.db.Log().Tail(0, first, func(_ uint64, content []byte) error {
			rd, err := newSectionReader(content)
			if err != nil {
				return err
			}
			logs[i] = append(logs[i], rd.Rest...)
			return nil
		}))
	}
	if len(logs[0]) == 0 || !bytes.Equal(logs[0], logs[1]) {
		t.Errorf("a member logs\n%x, and alone it is\n%x", logs[1], logs[0])
	}
}

// TestTakeFollows: an answer that leaves out so little as one entry is not taken.
func TestTakeFollows(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	w.drain()
	before := a.s.partitions[0].seq
	for range 2 {
		w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	}
	q := Pull{By: 1, Group: 77, Incarnation: a.s.Meta().Incarnation, Last: slots - 1}
	for _, c := range []struct {
		after uint64
		err   error
		value int64
	}{{before + 1, ErrStream, 0}, {before, nil, 2}, {before + 1, nil, 2}} {
		q.After = c.after
		answer, err := a.s.Pull(q)
		must(t, err)
		if _, err = b.s.Take(answer); !errors.Is(err, c.err) {
			t.Fatalf("what follows %d: %v, want %v", c.after, err, c.err)
		}
		if v, _ := get(b.s, "k"); v != c.value {
			t.Fatalf("after what follows %d the value is %d, want %d", c.after, v, c.value)
		}
	}
}
