package regions

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/resp"
)

// REGION.PULL NEXT: what follows that which the request before was told (see the package). So a
// region asks again before it has the answer.

// wordNext begins the arguments of a request that continues the one before.
const wordNext = "NEXT"

const (
	nextArgs = 4
	maxEvery = time.Second
)

// next is a request that continues the one before.
type next struct {
	block, every time.Duration
	acked        []uint64 // of each range; none: as before
}

// errNothingBefore: who asks must say where it is.
const errNothingBefore = badRequest("ERR nothing was asked before, or not all of it could be told")

// parseNext reads the arguments behind the word. The text of its errors is the reply.
func parseNext(args [][]byte) (*next, error) {
	if len(args) < nextArgs || len(args) > nextArgs+maxRanges {
		return nil, errArguments
	}
	if !strings.EqualFold(string(args[0]), "BLOCK") || !strings.EqualFold(string(args[2]), "EVERY") {
		return nil, errSyntax
	}
	a, n := numbers{rest: args[1:]}, new(next)
	n.block = time.Duration(a.next("BLOCK", 0, uint64(maxBlock.Milliseconds()))) * time.Millisecond
	a.rest = a.rest[1:]
	n.every = time.Duration(a.next("EVERY", 0, uint64(maxEvery.Milliseconds()))) * time.Millisecond
	for len(a.rest) > 0 && a.err == nil {
		n.acked = append(n.acked, a.next("acknowledged", 0, 1<<64-1))
	}
	return n, a.err
}

// write appends the request as a client sends it.
func (n *next) write(w *resp.Writer) {
	w.Array(2 + nextArgs + len(n.acked))
	w.BulkString(Command)
	w.BulkString(wordNext)
	w.BulkString("BLOCK")
	w.BulkString(strconv.FormatInt(n.block.Milliseconds(), 10))
	w.BulkString("EVERY")
	w.BulkString(strconv.FormatInt(n.every.Milliseconds(), 10))
	for _, acked := range n.acked {
		w.BulkString(strconv.FormatUint(acked, 10))
	}
}

// Told is what a source knows of a connection that asks: where the next request goes on. The zero
// value is for a new connection. Not safe for concurrent use.
type Told struct {
	q    *Request  // the last one, with its ranges behind the told part; nil: none, or nothing was told
	at   time.Time // when what that was told was looked for
	more bool      // it was not told all that there was
}

// request returns what is asked, and n if that continues what was asked before. Until it is answered nothing
// continues it. Whether it may be answered is not known yet.
func (t *Told) request(args [][]byte) (q *Request, n *next, err error) {
	q, t.q = t.q, nil
	if !isWord(args, wordNext) {
		q, err = ParseRequest(args)
		return q, nil, err
	}
	n, err = parseNext(args[1:])
	switch {
	case err != nil:
		return nil, nil, err
	case q == nil:
		return nil, nil, errNothingBefore
	case len(n.acked) > 0 && len(n.acked) != len(q.Ranges):
		return nil, nil, errArguments
	}
	for i, acked := range n.acked {
		r := &q.Ranges[i]
		if acked > r.After {
			return nil, nil, badRequest("ERR acknowledged is not an integer or out of range")
		}
		r.Acked = acked
	}
	q.Block = n.block
	return q, n, nil
}

// pace waits until so long after the last answer, unless that was not all: so requests that come at
// the same time are not answered at the same time, each with little.
func (t *Told) pace(ctx context.Context, every time.Duration) {
	wait := time.Until(t.at.Add(every))
	if wait <= 0 || t.more {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// answered notes what a request was told, which was looked for at a time.
func (t *Told) answered(q *Request, answers []answer, looked time.Time) {
	t.at, t.more = looked, false
	at := 0
	for i := range answers {
		a := &answers[i]
		if a.err != "" {
			return
		}
		for q.Ranges[at].First != a.first { // they have the same order
			at++
		}
		q.Ranges[at].After, q.Ranges[at].Code = a.upTo, 0
		t.more = t.more || a.upTo < a.newest
	}
	t.q = q
}
