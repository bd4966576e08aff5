package regions

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// talker asks a source as one connection does.
type talker struct {
	t    *testing.T
	told Told
	s    *Source
}

func (k *talker) ask(args [][]byte) string {
	var w resp.Writer
	k.s.Pull(context.Background(), &k.told, args, &w)
	if b := w.Bytes(); b[0] == '$' {
		r := answerReader{r: bufio.NewReader(bytes.NewReader(b))}
		packed, _, err := r.bulk(1 << 20)
		must(k.t, err)
		reply, err := store.Unpack(nil, packed)
		must(k.t, err)
		return string(reply)
	}
	return string(w.Bytes())
}

func (k *talker) next(words string) string {
	args := [][]byte{[]byte("next")}
	for _, word := range strings.Fields(words) {
		args = append(args, []byte(word))
	}
	return k.ask(args)
}

// expect fails unless a reply begins so.
func (k *talker) expect(what, reply, want string) {
	k.t.Helper()
	if !strings.HasPrefix(reply, want) {
		k.t.Errorf("%s: %.100q, want %q", what, reply, want)
	}
}

// behindAll asks, without waiting, for the news behind everything in two partitions.
func behindAll(t *testing.T, r *region) *Request {
	q := &Request{Group: 77, By: 1, Incarnation: r.s.Meta().Incarnation, Most: 1 << 20}
	for p := range uint16(2) {
		at := r.s.CommittedOf(p)
		q.Ranges = append(q.Ranges, Range{p, p * slots / 2, (p+1)*(slots/2) - 1, at, 0, at})
	}
	return q
}

// TestNext: a request continues one that was answered, and goes on behind the told part. It is
// checked like the first one.
func TestNext(t *testing.T) {
	const nothing, plain = "*2\r\n", "BLOCK 0 EVERY 0"
	all := newRegions(t, 2, 2)
	a := all[0]
	k := &talker{t: t, s: &a.server.source}
	first := func() [][]byte { return argsOf(t, behindAll(t, a)) }
	k.expect("nothing was asked", k.next(plain), "-ERR nothing was asked")
	k.expect("asked", k.ask(first()), nothing)
	for i := range 6 {
		a.once("k", fmt.Sprint(i), 1)
		k.expect("something follows", k.next(plain), "*5\r\n")
		k.expect("it was told", k.next(plain), nothing)
	}
	k.expect("acknowledged", k.next(plain+fmt.Sprintf(" %d %d", a.s.CommittedOf(0), a.s.CommittedOf(1))),
		nothing)
	for _, bad := range []string{"", "BLOCK 0", "BLOCK 0 EVERY", "BLOCK 0 EVER 0", "MAX 0 EVERY 0",
		"BLOCK 60001 EVERY 0", "BLOCK 0 EVERY 1001",
		"BLOCK 01 EVERY 0", "BLOCK 0 EVERY -1", plain + " 0", plain + " 0 0 0", plain + " 0 00", plain +
			fmt.Sprintf(" 0 %d", uint64(1)<<40)} {
		k.expect("before what is bad", k.ask(first()), nothing)
		k.expect(bad, k.next(bad), "-ERR ")
		k.expect("behind "+bad, k.next(plain), "-ERR nothing was asked")
	}
	stranger := behindAll(t, a)
	stranger.Group++
	k.expect("a stranger", k.ask(argsOf(t, stranger)), "-REFUSED")
	k.expect("behind that", k.next(plain), "-ERR nothing was asked")
	half := behindAll(t, a)
	half.Ranges[1].After += 1 << 40
	k.expect("one range is refused", k.ask(argsOf(t, half)), "*5\r\n")
	k.expect("behind that", k.next(plain), "-ERR nothing was asked")
	k.expect("asked", k.ask(first()), nothing)
	gone := setOf(all, 0)
	gone.Version, gone.Members[1].Gone, gone.Members[1].Since = 1, true, 1
	must(t, a.s.SetRegions(gone))
	k.expect("removed", k.next(plain), "-REFUSED")
	k.expect("behind that", k.next(plain), "-ERR nothing was asked")
}

// TestEvery: answers are so far apart, but for those to one that has not been told all.
func TestEvery(t *testing.T) {
	a := newRegions(t, 2, 2)[0]
	k := &talker{t: t, s: &a.server.source}
	k.expect("asked", k.ask(argsOf(t, behindAll(t, a))), "*2\r\n")
	for i := range 3 {
		a.once("k", fmt.Sprint("x", i), 1)
		before := k.told.at
		k.expect("something follows", k.next("BLOCK 60000 EVERY 50"), "*5\r\n")
		if took := k.told.at.Sub(before); took < 50*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
	}
	q := behindAll(t, a)
	q.Most = 1 // each record is more
	k.expect("asked", k.ask(argsOf(t, q)), "*2\r\n")
	for i := range 100 {
		a.once("k", fmt.Sprint("y", i), 1)
	}
	paced := 0
	for range 40 {
		before := k.told.at
		k.expect("one follows", k.next("BLOCK 60000 EVERY 1000"), "*5\r\n")
		if k.told.at.Sub(before) >= time.Second {
			paced++
		}
	}
	if paced == 40 { // a busy machine may take as long for some
		t.Error("each answer to one that catches up waits for a second")
	}
}
