package regions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// answerDigests lets change edit a region's answers to requests for digests. slots is the number of
// requested slots.
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

// TestLookNarrows: of slots that are being changed the buckets are asked for, a few groups at once,
// so that all keys but those that are changed are compared.
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
	must(t, a.mesh.look(t.Context(), map[part.Region]bool{1: true}, func(o *outcome) {
		if o.differ.count() > 0 || o.missed.groups() != len(seen) || o.missed.count() != len(seen) ||
			o.failed() != nil {
			t.Errorf("%d buckets of %d groups were missed, %v", o.missed.count(), o.missed.groups(),
				o.failed())
		}
	}))
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
	n = 0
	b.answerDigests(func(_ int, reply []byte) []byte { // for longer: the slots are asked for once more
		if n++; n == 2 || n == 3 {
			return []byte("-" + replyOf(errNotLeader) + "\r\n")
		}
		return reply
	})
	if differ, err = a.mesh.Verify(t.Context()); err != nil || len(differ) > 0 || n < 6 {
		t.Errorf("%v, %v; asked %d times", differ, err, n)
	}
	b.answerDigests(func(int, []byte) []byte { return []byte("-" + replyOf(errNotLeader) + "\r\n") })
	differ, err = a.mesh.Verify(t.Context())
	must(t, err)
	if len(differ) != 1 ||
		!strings.Contains(fmt.Sprint(differ[0].Err), "it cannot be asked at "+b.server.address()) {
		t.Errorf("%v", differ)
	}
}

// TestVerifyWhileRemoved: until all have what a removed region had told, nothing is compared, and
// why is said.
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
	b.server.source.Pull(ctx, new(Told), [][]byte{[]byte(wordDigest), []byte("77"), []byte("0"),
		fmt.Append(nil, b.s.Meta().Incarnation), []byte("0"),
		[]byte("0"), []byte("16383"), []byte("0"), []byte("0")}, &w)
	if !strings.Contains(string(w.Bytes()), context.Canceled.Error()) {
		t.Errorf("%q", w.Bytes())
	}
}

// everything is all buckets of all groups.
func everything() (all buckets) {
	for i := range all {
		all[i] = allBuckets
	}
	return all
}

// TestSuspects: a bucket is a mismatch as soon as it has differed twice, also if it could not be
// compared in between. A bucket that was equal in between is no mismatch, and a bucket that is
// never comparable hides no other mismatch.
func TestSuspects(t *testing.T) {
	a := newRegions(t, 1, 1, 1)[0]
	a.start(map[part.Region]string{1: "127.0.0.1:1", 2: "127.0.0.1:1"}, nil)
	damaged := fmt.Errorf("%w: damaged", errHere)
	none, everything := buckets{}, everything()
	suspects := map[part.Region]*buckets{}
	for i, c := range []struct {
		asked          part.Region
		differ, missed buckets
		why            error
		suspects       []int // how many, of the regions 1 and 2
		mismatch       int   // groups of region 1
		shown          int   // missed
		cannotSay      bool
	}{
		{1, buckets{0: 1, 1: 3}, buckets{1: 4}, ErrBusy, []int{3, 0}, 0, 1, false},
		{2, buckets{0: 1}, none, nil, []int{3, 1}, 0, 1, false},
		{1, none, buckets{0: 1, 1: 5}, ErrBusy, []int{2, 1}, 0, 3, false},
		{1, none, everything, damaged, []int{2, 1}, 0, 65536, true},
		{1, none, everything, damaged, []int{2, 1}, 0, 65536, true},
		{1, buckets{0: 1, 1: 2}, buckets{1: 4}, ErrBusy, []int{1, 1}, 1, 1, false},
		{1, buckets{1: 2}, buckets{0: 1, 1: 4}, ErrBusy, []int{0, 1}, 2, 2, false},
		{1, buckets{1: 2}, buckets{1: 4}, ErrBusy, []int{0, 1}, 1, 1, false},
		{1, none, buckets{1: 4}, ErrBusy, []int{0, 1}, 0, 1, false},
	} {
		suspects[c.asked] = a.mesh.note(&outcome{c.asked, time.Now(), c.differ, c.missed, c.why},
			suspects[c.asked])
		for r, want := range c.suspects {
			if known := suspects[part.Region(r+1)]; known != nil && known.count() != want || known == nil &&
				want > 0 {
				t.Errorf("%d: of region %d so many are not suspects: %d", i, r+1, want)
			}
		}
		if s := a.of(1); s.DigestMismatch != c.mismatch || s.DigestMissed != c.shown ||
			errors.Is(s.digestErr, errHere) != c.cannotSay {
			t.Errorf("%d: %+v", i, s)
		}
	}
	if n := a.logged("could not compare itself"); n != 1 {
		t.Errorf("%d lines: %s", n, a.log.String())
	}
	if a.mesh.note(&outcome{1, time.Now().Add(-time.Hour), everything, none, nil},
		&everything); a.of(1).DigestMismatch != 0 {
		t.Error("a look that began before the last one is believed")
	}
}
