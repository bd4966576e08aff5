package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// TestMoveReceivedStays: what a replica has received it keeps, over a start too, and when the same
// file comes once more: others count on it. Only a damaged file is replaced; those of a move
// that came to nothing go, though a copy of the directory is being made.
func TestMoveReceivedStays(t *testing.T) {
	m := newMoveToTry(t)
	in, err := m.b.Receive(1, m.path)
	must(t, err)
	must(t, in.Append(m.piece))
	in.Close()
	for _, start := range []bool{false, true} {
		if start {
			must(t, m.b.CloseNow())
			m.b, _ = testReplica(t, m.fsB, newFakeClock().now)
			must(t, m.b.Lead())
		}
		if in, err = m.b.Receive(1, m.path); err != nil || in.Last() != m.last {
			t.Fatalf("it comes once more, start %v: %d of %d, %v", start, in.Last(), m.last, err)
		}
		in.Close()
	}
	must(t, crashtest.Flip(m.fsB, "data/snapshots/"+m.out.Name, 100))
	m.give(t, m.path)
	if in, err = m.b.Receive(1, m.path); err != nil || in.Last() != m.out.From {
		t.Fatalf("in the place of a damaged one: %v", err)
	}
	in.Close()
	again, err := m.a.Export(1, "aside", 0, 1<<30) // which has the tail, too
	must(t, err)
	must(t, copyBetween(m.fsA, "aside/"+again.Name, m.fsB, "aside/"+again.Name))
	if in, err = m.b.Receive(1, m.path); err != nil || again.Name != m.out.Name || in.Last() != again.From ||
		again.From < m.last {
		t.Fatalf("a file as of entry %d, which follows %d, ends at %d: %v", again.From, m.out.From, in.Last(),
			err)
	}
	in.Close()
	again, err = m.a.Export(1, "aside", m.out.To, 1<<30)
	must(t, err)
	defer again.Close()
	must(t, copyBetween(m.fsA, "aside/"+again.Name, m.fsB, "aside/"+again.Name))
	in, err = m.b.Receive(1, "aside/"+again.Name)
	must(t, err)
	if seqs, err := m.b.db.Moved(1); err != nil || !slices.Equal(seqs, []uint64{again.To}) {
		t.Errorf("behind a later move there are %v: %v", seqs, err)
	}
	hold := m.b.db.Hold("copy", math.MaxUint64)
	defer hold.Release()
	must(t, in.Discard())
	if seqs, err := m.b.db.Moved(1); err != nil || len(seqs) != 0 {
		t.Errorf("discarded, there are %v: %v", seqs, err)
	}
}

// TestMoveCut: a replica that lags takes the files of another one, which has received a
// partition and not redone its adoption. So the first has received it as well.
func TestMoveCut(t *testing.T) {
	m := newMoveToTry(t)
	in, err := m.b.Receive(1, m.path)
	must(t, err)
	must(t, in.Append(m.piece))
	must(t, m.b.Snapshot()) // of the others
	must(t, m.b.Cut())
	fs := vfs.NewMem()
	_, err = vfs.Clone(m.fsB, fs, m.b.CutDir(), "data")
	must(t, err)
	must(t, adopt(m.b, 1, m.out.To, m.last))
	c, l := testReplica(t, fs, newFakeClock().now)
	records, _ := m.bLog.records(0)
	receive(t, c, l, records)
	must(t, c.Lead())
	wantOp(t, cincr(c, "{"+m.key+"}tail", "tail", 1), 1, false)
	wantOp(t, cincr(c, "{"+m.key+"}7", "7", 1), 1, false)
}

// TestMoveAdoptedMeanwhile: the adoption comes while a replica that has received all of the
// partition begins to receive it once more. The adoption's files are not touched.
func TestMoveAdoptedMeanwhile(t *testing.T) {
	clock := newFakeClock()
	fsA, fsB, fsC := vfs.NewMem(), vfs.NewMem(), vfs.NewMem()
	a, _ := testReplica(t, fsA, clock.now)
	b, logged := testReplica(t, fsB, clock.now)
	c, l := testReplica(t, fsC, clock.now)
	must(t, a.Lead())
	must(t, b.Lead())
	must(t, b.Vacate(1, 0))
	before, n := logged.records(0)
	receive(t, c, l, before)
	key := "{" + keysIn(a)[1] + "}"
	for i := range 20 {
		must(t, cincr(a, fmt.Sprint(key, i), "1", 1).Err)
	}
	out, err := a.Export(1, "aside", b.LastOf(1), 1<<30)
	must(t, err)
	defer out.Close()
	must(t, cincr(a, key, "tail", 1).Err)
	ins := []*Incoming{receiveFile(t, fsA, out, b, fsB), receiveFile(t, fsA, out, c, fsC)}
	last := sameTails(t, a, 1, out, ins...)
	must(t, adopt(b, 1, out.To, last))
	ins[1].Close()
	once, err := c.expect(c.partitions[1], out.To)
	must(t, err)
	behind, _ := logged.records(n)
	receive(t, c, l, behind)
	if err := once.load(func() error { return c.db.RemoveMoved(1, out.To) }); !errors.Is(err, ErrMove) {
		t.Errorf("it comes behind its adoption: %v", err)
	}
	must(t, once.Discard())
	must(t, c.CloseNow())
	c, _ = testReplica(t, fsC, clock.now) // which redoes the adoption
	must(t, c.Lead())
	for i := range 20 {
		wantOp(t, cincr(c, fmt.Sprint(key, i), "1", 1), 1, false)
	}
	wantOp(t, cincr(c, key, "tail", 1), 1, false)
}
