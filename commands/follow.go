package commands

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

const (
	maxFollowCount = 1 << 16
	maxFollowBytes = 4 << 20
	maxFollowBlock = 60_000 // milliseconds
	// followPace is the least time between two answers of a follower that has had all there was: so one
	// that asks on and on is told many changes at once.
	followPace = 20 * time.Millisecond
)

// following is what a client keeps from one CFOLLOW to the next.
type following struct {
	hadAll time.Time   // when it had all there was
	told   resp.Writer // the changes of an answer, of maxFollowBytes and one more at most
}

// followRequest is CFOLLOW while its options are read.
type followRequest struct {
	store.FollowRequest
	count  int
	block  time.Duration
	prefix []byte
}

var followOptions = []option[followRequest]{
	{token: "COUNT", class: 1, value: func(q *followRequest, v []byte) error {
		n, ok := parseInt(v)
		if !ok || n < 1 {
			return errNotInteger
		}
		q.count = int(min(n, maxFollowCount))
		return nil
	}},
	{token: "BLOCK", class: 2, value: func(q *followRequest, v []byte) error {
		n, ok := parseInt(v)
		if !ok || n < 0 || n > maxFollowBlock {
			return errNotInteger
		}
		q.block = time.Duration(n) * time.Millisecond
		return nil
	}},
	{token: "PREFIX", class: 4, value: func(q *followRequest, v []byte) error {
		q.prefix = v
		return nil
	}},
}

// doFollow is CFOLLOW group <START | NOW | SNAPSHOT | cursor> [option …]. It runs alone, so that nobody
// but its own connection waits for it.
func doFollow(c *Context) {
	q := followRequest{count: 1000}
	q.Group = string(c.Args[1])
	switch at := c.Args[2]; {
	case is(at, "START"):
		q.Start = store.FollowOldest
	case is(at, "NOW"):
		q.Start = store.FollowNow
	case is(at, "SNAPSHOT"):
		q.Start = store.FollowSnapshot
	default:
		q.Cursor = string(at)
	}
	_, err := parseOptions(&q, followOptions, c.Args[3:], "")
	if c.failed(cmp.Or(err, c.Server.Cluster.mayTell(c.routes))) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.block)
	if c.Session.following == nil {
		c.Session.following = new(following)
	}
	told := &c.Session.following.told
	told.Truncate(0)
	told.Proto = c.W.Proto
	n := 0
	q.Wants = func(key []byte) bool { return bytes.HasPrefix(key, q.prefix) && c.Session.mayRead(key) }
	q.Tell = func(f *store.Followed) bool {
		writeFollowed(told, f)
		n++
		return n >= q.count || told.Len() >= maxFollowBytes
	}
	c.watched(ctx, cancel, func() { err = q.follow(ctx, c, &n) })
	if c.failed(err) {
		return
	}
	c.W.Array(2)
	c.W.BulkString(q.Cursor)
	c.W.Array(n)
	c.W.Raw(told.Bytes())
}

// mayTell refuses to be followed on a node that lacks for too long what is committed, or has no shard.
func (c *Cluster) mayTell(v *ClusterView) error {
	switch {
	case c == nil:
	case v.is == stranger:
		return refusal(errNotServed)
	case v.is != leads && c.isStale(v):
		return refusal(errStaleReads)
	}
	return nil
}

// follow reads until something was told, or the time is over.
func (q *followRequest) follow(ctx context.Context, c *Context, told *int) error {
	for {
		if wait := time.Until(c.Session.following.hadAll.Add(followPace)); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		a, err := c.Store.FollowChanges(&q.FollowRequest)
		if err != nil {
			return err
		}
		if q.Start, q.Cursor = store.FollowCursor, a.Cursor; !a.More {
			c.Session.following.hadAll = time.Now()
		}
		if *told > 0 || ctx.Err() != nil {
			return nil
		}
		if a.More {
			continue
		}
		if err := c.Store.AwaitAny(ctx, a.Behind); err != nil {
			return err
		}
	}
}

// writeFollowed answers one change.
func writeFollowed(w *resp.Writer, f *store.Followed) {
	w.Array(10)
	w.Int(int64(f.Partition))
	w.Int(int64(f.Seq))
	w.Int(int64(f.Index))
	w.BulkString(f.Kind.String())
	writeOrNull(w, f.Key)
	writeOrNull(w, f.ID)
	if f.Kind.HasDelta() {
		writeAmount(w, f.Delta, f.Scale)
	} else {
		w.Null()
	}
	if f.Kind.Ends() {
		w.Null()
	} else {
		writeAmount(w, f.Value, f.Scale)
	}
	w.Int(f.Wall)
	if f.Region == "" {
		w.Null()
		return
	}
	w.BulkString(f.Region)
}

func writeOrNull(w *resp.Writer, b []byte) {
	if b == nil {
		w.Null()
		return
	}
	w.Bulk(b)
}

// followCommands let others follow the counters.
var followCommands = []Command{{
	Name: "cfollow", Arity: -3,
	Flags: ReadOnly | NoScript | NoAsyncLoading | NoMulti | SkipSlowlog | unpaused |
		untimed,
	Group: groupCounter, ACL: []string{"@counter", "@keyspace", "@dangerous"}, Since: "0.2.0",
	Complexity: "O(N), where N is the number of bytes of the log that are read", Tips: changingTip,
	Run: doFollow,
	Summary: "Returns a cursor and the changes of counters behind one: START, the oldest that the log has; NOW; " +
		"SNAPSHOT; or the cursor of the reply before. If there are none it waits up to BLOCK milliseconds. A change is partition, " +
		"sequence, index, what (add, set, value, merged, takeback, drained, deleted, expired, flushed or snapshot), key, opid, delta, " +
		"value afterwards, Unix milliseconds, and the region that it was taken from, or that took back; null is what there is not. " +
		"Within a partition sequence and index ascend. Only " +
		"committed changes are returned. merged is what other regions did beside the operations that are named. " +
		"flushed ends all keys of the partition. SNAPSHOT tells all counters first: " +
		"snapshot, before which nothing counts, for each partition, then value for each counter as of the " +
		"sequence, and the changes behind it. The log is kept for the group, " +
		"up to follow-backlog, also beyond what it has read; a group further behind gets LOST and the range. " +
		"Of a cluster each node tells the partitions of its shard: show the cursor to a node of each shard " +
		"in turn. In regions it tells what the region shows.",
	Args: []Arg{strArg("group"), oneOf("from", word("START"), word("NOW"), word("SNAPSHOT"), strArg("cursor")),
		opt(with("COUNT", intArg("count"))), opt(with("BLOCK", intArg("milliseconds"))),
		opt(with("PREFIX", strArg("prefix")))},
}}
