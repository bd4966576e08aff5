package regions

import (
	"context"
	"errors"
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
	// doubted is told why a range is refused; nil: nobody is.
	doubted func(error)
	cluster *Cluster // of whose shard the store is a replica; nil: it is all of the region
}

// Members returns the members; false: this is no region.
func (s *Source) Members() (store.RegionSet, bool) {
	if s.cluster != nil {
		return s.cluster.Members()
	}
	return s.Store.Regions()
}

// leads reports whether this node can answer questions about this region. A node of a shard knows
// less than its leader.
func (s *Source) leads() bool { return s.cluster == nil || s.cluster.Leads() }

// errNotLeader: only the leader of a shard knows.
var errNotLeader = errors.New("this node does not lead its shard")

// errRemovedHere: the asking region does not know it yet.
var errRemovedHere = fmt.Errorf("%w: this region was removed", store.ErrStream)

// Pull answers REGION.PULL, whose arguments behind its name are args: one reply, perhaps an error. It
// returns when there is something to tell, the request's BLOCK has passed or ctx is done: a server
// ends ctx with the connection, and before it closes the store. Everything that was told is
// durable. The reply has about as many bytes as the request's MAX and may exceed that by a section
// of the op log. told is the connection's.
func (s *Source) Pull(ctx context.Context, told *Told, args [][]byte, w *resp.Writer) {
	if set, _ := s.Members(); set.Removed {
		w.Error(replyOf(errRemovedHere))
		return
	}
	switch {
	case isWord(args, wordMembers):
		s.members(args[1:], w)
		return
	case isWord(args, wordShards):
		s.shards(args[1:], w)
		return
	case isWord(args, wordTables):
		s.tables(args[1:], w)
		return
	case isWord(args, wordState):
		s.state(args[1:], w)
		return
	case isWord(args, wordDigest):
		s.digest(ctx, args[1:], w)
		return
	case isWord(args, wordPositions):
		s.positions(args[1:], w)
		return
	}
	q, n, err := told.request(args)
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	if n != nil {
		told.pace(ctx, n.every)
	}
	ctx, cancel := context.WithTimeout(ctx, q.Block)
	defer cancel()
	looked := time.Now()
	answers, behind, err := s.answer(q, n != nil)
	if err == nil && s.known != nil {
		s.known(q.By)
	}
	for err == nil && len(behind) > 0 && ctx.Err() == nil {
		if err = s.Store.AwaitAny(ctx, behind); err == nil {
			looked = time.Now()
			answers, behind, err = s.answer(q, n != nil)
		}
	}
	set, _ := s.Members()
	if err == nil && set.Removed { // meanwhile: its version is not that of its members
		err = errRemovedHere
	}
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	told.answered(q, answers, looked)
	now := time.Now().UnixMilli()
	if s.Clock != nil {
		now, _ = s.Clock()
	}
	if n != nil { // all of it is packed as one
		out := w
		w = new(resp.Writer)
		defer func() { out.Bulk(store.Pack(w.Bytes())) }()
	}
	w.Array(answerHead + answerParts*len(answers))
	w.Int(now)
	w.Int(int64(set.Version))
	for i := range answers {
		answers[i].write(w)
	}
}

// answer asks the store for all ranges, so that it learns all acknowledgements, also of ranges
// without news. It fails if the whole request is refused, as when its sender is no member. If there
// is nothing to tell, behind is what to wait for. Plain answers are not packed.
func (s *Source) answer(q *Request, plain bool) (answers []answer, behind []store.Behind, err error) {
	pulls := make([]store.Pull, len(q.Ranges))
	for i, r := range q.Ranges {
		pulls[i] = q.pull(r)
	}
	all, behind := s.Store.PullAll(pulls, q.Most, plain)
	if len(behind) > 0 {
		return nil, behind, nil
	}
	refused := 0
	for i, a := range all {
		switch r := q.Ranges[i]; {
		case a.Err != nil:
			answers = append(answers, answer{first: r.First, newest: a.Newest, err: replyOf(a.Err)})
			if err = a.Err; !isGap(err) {
				refused++
			}
			if s.doubted != nil {
				s.doubted(err)
			}
		case a.Newest > r.After:
			answers = append(answers, answer{first: r.First, newest: a.Newest, data: a.Data, upTo: a.UpTo})
		}
	}
	if refused < len(q.Ranges) {
		err = nil
	}
	return answers, nil, err
}

// members answers REGION.PULL MEMBERS. It does so also for a region that was removed from them,
// which so learns that.
func (s *Source) members(args [][]byte, w *resp.Writer) {
	set, err := s.asMember(args)
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	w.Bulk(set.Encode())
}

// asMember returns the members to whoever names their group.
func (s *Source) asMember(args [][]byte) (store.RegionSet, error) {
	group, err := parseMembers(args)
	set, ok := s.Members()
	switch {
	case err != nil:
	case !ok:
		err = store.ErrNoRegions
	case group != set.Group:
		err = fmt.Errorf("%w: group %x, and not %x", store.ErrStream, set.Group, group)
	}
	return set, err
}
