package regions

import (
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// REGION.PULL STATE: a page of the state of a slot range (see the package, and store.StateQuery).

// wordState begins the arguments of a request for a state.
const wordState = "STATE"

const stateArgs = 11

// isWord reports whether arguments begin with a word. Those of a request for logs begin with a number.
func isWord(args [][]byte, word string) bool {
	return len(args) > 0 && strings.EqualFold(string(args[0]), word)
}

// parseState reads the arguments behind the word. The text of its errors is the reply.
func parseState(args [][]byte) (q store.StateQuery, err error) {
	if len(args) != stateArgs {
		return q, errArguments
	}
	if !strings.EqualFold(string(args[3]), "MAX") {
		return q, errSyntax
	}
	a := numbers{rest: args}
	q.Group, q.By, q.Incarnation = a.next("group", 0, 1<<64-1),
		part.Region(a.next("region", 0, part.MaxRegions-1)), a.next("incarnation", 0, 1<<64-1)
	a.rest = a.rest[1:]
	q.Most = int(a.next("MAX", 1, maxMost))
	q.Partition, q.First, q.Last = a.slot("partition"), a.slot("first slot"), a.slot("last slot")
	q.Of = part.Region(a.next("region", 0, part.MaxRegions-1))
	q.Seq = a.next("sequence", 0, 1<<64-1)
	if q.At = a.rest[0]; a.err == nil &&
		(q.Last < q.First || len(q.At) > store.MaxStatePlace || (len(q.At) == 0) != (q.Seq == 0)) {
		return q, errSyntax
	}
	return q, a.err
}

// writeState appends a request as a client sends it.
func writeState(w *resp.Writer, q *store.StateQuery) {
	w.Array(2 + stateArgs)
	w.BulkString(Command)
	w.BulkString(wordState)
	number := func(n uint64) { w.BulkString(strconv.FormatUint(n, 10)) }
	number(q.Group)
	number(uint64(q.By))
	number(q.Incarnation)
	w.BulkString("MAX")
	number(uint64(q.Most))
	number(uint64(q.Partition))
	number(uint64(q.First))
	number(uint64(q.Last))
	number(uint64(q.Of))
	number(q.Seq)
	w.Bulk(q.At)
}

// state answers a request for a page.
func (s *Source) state(args [][]byte, w *resp.Writer) {
	q, err := parseState(args)
	if err == nil {
		var page []byte
		if page, err = s.Store.State(q); err == nil {
			w.Bulk(page)
			return
		}
	}
	w.Error(replyOf(err))
}

// string reads a reply that is a string of at most so many bytes, or an error.
func (r *answerReader) string(most int) (b []byte, failed error, err error) {
	b, text, err := r.bulk(most)
	switch {
	case err != nil:
		return nil, nil, err
	case text != "":
		return nil, errorOf(text), nil
	case b == nil:
		return nil, nil, ErrAnswer
	}
	return b, nil, nil
}
