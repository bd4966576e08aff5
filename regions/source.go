package regions

import (
	"context"
	"fmt"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Source answers other regions. Safe for concurrent use.
type Source struct {
	Store *store.Store
	// Clock is the one that others compare theirs with; nil: the machine's.
	Clock store.Clock
	// known is told of a region that reads this one, and so knows it; nil: nobody is.
	known func(part.Region)
}

// Pull answers REGION.PULL, whose arguments behind its name are args: one reply, perhaps an error. It
// returns when there is something to tell, the request's BLOCK has passed or ctx is done: a server
// ends ctx with the connection, and before it closes the store. What has been told is durable.
// The reply has about as many bytes as the request's MAX and may exceed that by a section of the op log.
func (s *Source) Pull(ctx context.Context, args [][]byte, w *resp.Writer) {
	switch {
	case isWord(args, wordMembers):
		s.members(args[1:], w)
		return
	case isWord(args, wordState):
		s.state(args[1:], w)
		return
	case isWord(args, wordDigest):
		s.digest(args[1:], w)
		return
	}
	q, err := ParseRequest(args)
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	answers, err := s.answer(q)
	if err == nil && s.known != nil {
		s.known(q.By)
	}
	if err == nil && len(answers) == 0 && q.Block > 0 {
		if err = s.wait(ctx, q); err == nil {
			answers, err = s.answer(q)
		}
	}
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	now := time.Now().UnixMilli()
	if s.Clock != nil {
		now, _ = s.Clock()
	}
	set, _ := s.Store.Regions()
	w.Array(answerHead + answerParts*len(answers))
	w.Int(now)
	w.Int(int64(set.Version))
	for i := range answers {
		answers[i].write(w)
	}
}

// wait returns when something follows what was taken.
func (s *Source) wait(ctx context.Context, q *Request) error {
	ctx, cancel := context.WithTimeout(ctx, q.Block)
	defer cancel()
	at := make([]store.Behind, len(q.Ranges))
	for i, r := range q.Ranges {
		at[i] = store.Behind{Partition: r.Partition, Seq: r.After}
	}
	return s.Store.AwaitAny(ctx, at)
}

// answer asks the store for all ranges, so that it learns what is acknowledged also of those of
// which nothing is to be told. It fails if the whole request is refused, as that of a stranger is.
func (s *Source) answer(q *Request) (answers []answer, err error) {
	left, refused := q.Most, 0
	for _, r := range q.Ranges {
		newest := s.Store.CommittedOf(r.Partition)
		if left <= 0 && newest > r.After { // no room for it; the next request begins with it
			answers = append(answers, answer{first: r.First, newest: newest})
			continue
		}
		data, failed := s.Store.Pull(q.pull(r, max(left, 1)))
		switch {
		case failed != nil:
			answers = append(answers, answer{first: r.First, newest: newest, err: replyOf(failed)})
			if err = failed; !isGap(failed) {
				refused++
			}
		case newest > r.After:
			left -= len(data)
			answers = append(answers, answer{first: r.First, newest: newest, data: data})
		}
	}
	if refused < len(q.Ranges) {
		err = nil
	}
	return answers, err
}

// members answers REGION.PULL MEMBERS. It does so also to one that is no member any more: so it
// learns that.
func (s *Source) members(args [][]byte, w *resp.Writer) {
	group, err := parseMembers(args)
	set, ok := s.Store.Regions()
	switch {
	case err != nil:
	case !ok:
		err = store.ErrNoRegions
	case group != set.Group:
		err = fmt.Errorf("%w: group %x, and not %x", store.ErrStream, set.Group, group)
	}
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	w.Bulk(set.Encode())
}
