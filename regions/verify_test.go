package regions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// answerDigests has a region answer requests for digests with what change makes of the answers. It is told how many slots are asked for.
func (r *region) answerDigests(change func(slots int, reply []byte) []byte) {
	f := func(args [][]byte, reply []byte) []byte {
		if string(args[0]) != wordDigest {
			return reply
		}
		first, _ := strconv.Atoi(string(args[5]))
		last, _ := strconv.Atoi(string(args[6]))
		return change(last-first+1, reply)
	}
	r.server.change.Store(&f)
}

// TestLookNarrows: of slots that are being changed the buckets are asked for, a few groups at once, so that all keys but those that are
// changed are compared.
func TestLookNarrows(t *testing.T) {
	all := newRegions(t, 16, 16)
	a, b := all[0], all[1]
	asked := make(map[int]int) // by slots
	b.answerDigests(func(slots int, reply []byte) []byte {
		asked[slots]++
		return reply
	})
	a.start(map[part.Region]string{1: b.server.address()}, nil)
	eventually(t, "it is read", func() bool { return a.of(1).Connected })
	const partition = slots / 16
	seen := make(map[uint16]bool)
	for i := 0; len(seen) < partition/groupSlots; i++ { // b takes nothing
		key := fmt.Sprint("k", i)
		if slot := store.Slot([]byte(key)); slot < partition && !seen[slot/groupSlots] {
			seen[slot/groupSlots] = true
			a.once(key, "a", 1)
		}
	}
	l, err := a.mesh.look(t.Context(), map[part.Region]bool{1: true})
	must(t, err)
	if differ, missed, buckets, failed := l.of(1); differ.count() > 0 || missed.count() != len(seen) || buckets != len(seen) || failed != nil {
		t.Errorf("%d groups and %d buckets were missed, %v", missed.count(), buckets, failed)
	}
	if asked[partition] != 16 || asked[fineSlots] != lookRounds*partition/fineSlots || len(asked) != 2 {
		t.Errorf("how many slots were asked for, and how often: %v", asked)
	}
}

// TestVerifyConnectsAnew: a connection that does not serve any more is not the end, one that never did is.
func TestVerifyConnectsAnew(t *testing.T) {
	all := newRegions(t, 4, 4)
	a, b := all[0], all[1]
	n := 0
	b.answerDigests(func(_ int, reply []byte) []byte {
		if n++; n%3 == 2 {
			return []byte("-" + replyOf(errNotLeader) + "\r\n")
		}
		return reply
	})
	a.start(map[part.Region]string{1: b.server.address()}, nil)
	eventually(t, "it is read", func() bool { return a.of(1).Connected })
	differ, err := a.mesh.Verify(t.Context())
	must(t, err)
	if len(differ) > 0 || n < 5 {
		t.Errorf("%v; asked %d times", differ, n)
	}
	b.answerDigests(func(int, []byte) []byte { return []byte("-" + replyOf(errNotLeader) + "\r\n") })
	differ, err = a.mesh.Verify(t.Context())
	must(t, err)
	if len(differ) != 1 || !strings.Contains(fmt.Sprint(differ[0].Err), "it cannot be asked at "+b.server.address()) {
		t.Errorf("%v", differ)
	}
}

// TestVerifyWhileRemoved: until all have what a removed region had told, nothing is compared, and why is said.
func TestVerifyWhileRemoved(t *testing.T) {
	all := newRegions(t, 1, 1, 1)
	for i, r := range all[:2] {
		set, err := setOf(all, i).Remove(1, 2)
		must(t, err)
		must(t, r.s.SetRegions(set))
		r.start(map[part.Region]string{part.Region(1 - i): all[1-i].server.address()}, nil)
	}
	differ, err := all[0].mesh.Verify(t.Context())
	must(t, err)
	if len(differ) != 1 || !errors.Is(differ[0].Err, ErrLevelling) {
		t.Errorf("%v", differ)
	}
}

// TestDigestIsGivenUp: who has gone does not make a region read its counters.
func TestDigestIsGivenUp(t *testing.T) {
	b := newRegions(t, 1, 1)[1]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var w resp.Writer
	b.server.source.Pull(ctx, new(Told), [][]byte{[]byte(wordDigest), []byte("77"), []byte("0"), fmt.Append(nil, b.s.Meta().Incarnation), []byte("0"),
		[]byte("0"), []byte("16383"), []byte("0"), []byte("0")}, &w)
	if !strings.Contains(string(w.Bytes()), context.Canceled.Error()) {
		t.Errorf("%q", w.Bytes())
	}
}

// TestSuspects: what differs is a mismatch as soon as it has differed twice, also if it could not be compared in between; what has been
// found equal in between is none.
func TestSuspects(t *testing.T) {
	a := newRegions(t, 1, 1, 1)[0]
	a.start(map[part.Region]string{1: "127.0.0.1:1", 2: "127.0.0.1:1"}, nil)
	first, second := store.SlotRange{First: 0, Last: 15}, store.SlotRange{First: 16, Last: 31}
	var suspects map[part.Region]groups
	for i, c := range []struct {
		asked     part.Region
		found     []Difference
		suspects  []int // how many, of the regions 1 and 2
		mismatch  int   // of region 1
		cannotSay bool
	}{
		{1, []Difference{{1, first, nil, 0}, {1, second, nil, 0}}, []int{2, 0}, 0, false},
		{2, []Difference{{2, first, nil, 0}}, []int{2, 1}, 0, false},
		{1, []Difference{{1, first, ErrBusy, 1}}, []int{1, 1}, 0, false},
		{1, []Difference{{1, store.SlotRange{Last: slots - 1}, fmt.Errorf("%w: damaged", errHere), slots / groupSlots * store.DigestBuckets}}, []int{1, 1}, 0, true},
		{1, []Difference{{1, store.SlotRange{Last: slots - 1}, fmt.Errorf("%w: damaged", errHere), slots / groupSlots * store.DigestBuckets}}, []int{1, 1}, 0, true},
		{1, []Difference{{1, first, nil, 0}, {1, second, nil, 0}}, []int{1, 1}, 1, false},
		{1, nil, []int{0, 1}, 0, false},
	} {
		suspects = a.mesh.note(&look{[]part.Region{c.asked}, c.found}, suspects)
		for r, want := range c.suspects {
			known := suspects[part.Region(r+1)]
			if got := known.count(); got != want {
				t.Errorf("%d: %d groups of region %d are suspects, want %d", i, got, r+1, want)
			}
		}
		if s := a.of(1); s.DigestMismatch != c.mismatch || errors.Is(s.digestErr, errHere) != c.cannotSay {
			t.Errorf("%d: %+v", i, s)
		}
	}
	if n := a.logged("could not compare itself"); n != 1 {
		t.Errorf("%d lines: %s", n, a.log.String())
	}
}
