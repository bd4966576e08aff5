package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// In a cluster one node of each shard is asked in turn, with one cursor for all: its leader, or another node
// while that does not answer. The other nodes are asked now and then, so that they keep their logs.

const (
	lookPeriod = 5 * time.Second
	keepPeriod = 30 * time.Second
	askTime    = 5 * time.Second // of nodes about the cluster
	failPeriod = 3 * lookPeriod  // for which one that has failed is asked last: a leader comes back
)

// nodes are the nodes that can be asked.
type nodes struct {
	login   connect.Flags
	first   string     // HOST:PORT, as the user has said.
	shards  [][]string // Addresses. Those that are likely to answer come first.
	cluster bool
	looked  time.Time // When the shards were found out.
	kept    time.Time // When other nodes were asked to keep their logs.
	keeping sync.WaitGroup
	clients map[string]*connect.Client
	failed  map[string]time.Time // when those did not answer
	lost    map[string]bool      // those that do not have what follows
}

func (n *nodes) client(addr string) (*connect.Client, error) {
	c := n.clients[addr]
	if c == nil {
		var err error
		if c, err = n.login.Client(addr, timeout); err != nil {
			return nil, err
		}
		n.clients[addr] = c
	}
	return c, nil
}

func (n *nodes) close() {
	n.keeping.Wait()
	for _, c := range n.clients {
		c.Close()
	}
}

// look finds out which shards there are, if it is time for that. While no node says so, those that are known
// are asked.
func (n *nodes) look(ctx context.Context) error {
	if len(n.shards) > 0 && (!n.cluster || time.Since(n.looked) < lookPeriod) {
		return nil
	}
	n.looked = time.Now()
	answers, fails := []string{}, []string{}
	for _, addr := range append(slices.Concat(n.shards...), n.first) {
		if n.fails(addr) {
			fails = append(fails, addr)
		} else {
			answers = append(answers, addr)
		}
	}
	var err error
	for _, addr := range append(answers, fails...) {
		if err = n.askAbout(ctx, addr); err == nil {
			return nil
		}
	}
	if len(n.shards) > 0 {
		return nil
	}
	return err
}

// askAbout asks a node for the shards.
func (n *nodes) askAbout(ctx context.Context, addr string) error {
	c, err := n.client(addr)
	if err != nil {
		return err
	}
	all, err := c.Shards(ctx)
	if err != nil {
		return err
	}
	if n.cluster = len(all) > 0; !n.cluster {
		n.shards = [][]string{{n.first}}
		return nil
	}
	n.shards = nil
	for _, shard := range all {
		n.shards = append(n.shards, n.order(shard.Nodes))
	}
	return nil
}

// order returns the addresses of a shard's nodes: its leader, those that follow, and those that have failed.
func (n *nodes) order(shard []connect.Node) []string {
	var leader, others, failed []string
	for _, node := range shard {
		switch {
		case !node.Healthy || n.fails(node.Addr):
			failed = append(failed, node.Addr)
		case node.Leads:
			leader = append(leader, node.Addr)
		default:
			others = append(others, node.Addr)
		}
	}
	return slices.Concat(leader, others, failed)
}

// fails reports whether a node has not answered of late.
func (n *nodes) fails(addr string) bool { return time.Since(n.failed[addr]) < failPeriod }

// answered notes that the first node of a shard has answered.
func (n *nodes) answered(shard []string) {
	delete(n.failed, shard[0])
	for _, addr := range shard {
		delete(n.lost, addr)
	}
}

// next makes another node of a shard the one that is asked, and reports whether the first one's failure is
// news.
func (n *nodes) next(shard []string) (news bool) {
	addr := shard[0]
	news = n.failed[addr].IsZero()
	n.failed[addr] = time.Now()
	copy(shard, shard[1:])
	shard[len(shard)-1] = addr
	return news
}

// allLost notes that the first node of a shard does not have what follows, and reports whether none has.
func (n *nodes) allLost(shard []string) bool {
	n.lost[shard[0]] = true
	return !slices.ContainsFunc(shard, func(addr string) bool { return !n.lost[addr] })
}

// keep has the nodes that are not asked keep their logs for a group.
func (n *nodes) keep(ctx context.Context, group string) error {
	if !n.cluster || time.Since(n.kept) < keepPeriod {
		return nil
	}
	n.kept = time.Now()
	for _, shard := range n.shards {
		for _, addr := range shard[1:] {
			c, err := n.client(addr)
			if err != nil {
				return err
			}
			n.keeping.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, askTime)
				defer cancel()
				c.Do(ctx, "CFOLLOW", group, "NOW") // one that does not answer is asked again
			})
		}
	}
	return nil
}

// block is how long a node is waited for that has nothing new: others may have.
func (n *nodes) block() time.Duration {
	if len(n.shards) == 1 {
		return block
	}
	return max(blockAll/time.Duration(len(n.shards)), 10*time.Millisecond)
}
