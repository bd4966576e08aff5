package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/cluster/wire"
)

// Leader is the leader of a shard, as it tells all other nodes itself. It is no part of
// the configuration: a node that does not know a new leader yet sends clients to the former one,
// which sends them on. Of two, the one with the higher term counts.
type Leader struct {
	// Shard and Node are ids.
	Shard string `json:"shard"`
	Node  string `json:"node"`
	Term  uint64 `json:"term"`
	// Failed are nodes of the shard that do not answer it.
	Failed []string `json:"failed,omitempty"`
	// Tables is the version of the cluster's tables that the shard has logged, Refusal why it cannot log
	// the newest, at most maxRefusal bytes; "": it can.
	Tables  uint64 `json:"tables,omitempty"`
	Refusal string `json:"refusal,omitempty"`
	// heard is when it said so last.
	heard time.Time
}

func (l Leader) equal(o Leader) bool {
	return l.Shard == o.Shard && l.Node == o.Node && l.Term == o.Term && slices.Equal(l.Failed, o.Failed) &&
		l.Tables == o.Tables && l.Refusal == o.Refusal
}

// Leaders tells all other nodes that this one leads its shard, and knows who leads each shard.
// Safe for concurrent use.
type Leaders struct {
	net           *Net
	configuration func() Configuration
	period        time.Duration

	mu      sync.Mutex
	own     Leader // term 0: this node does not lead
	others  map[string]Leader
	telling map[string]context.CancelFunc // by the ids of the nodes that are told
	news    chan struct{}                 // closed when own changes
	onNews  func()
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// verbLeader says who leads the asking node's shard.
const verbLeader = "leader"

// NewLeaders returns the Leaders of a node. Every leader says so each period, and at once when
// something has changed; then onNews is called, at the nodes that hear of it.
func NewLeaders(n *Net, configuration func() Configuration, period time.Duration, onNews func()) *Leaders {
	l := &Leaders{net: n, configuration: configuration, period: period, onNews: onNews,
		others:  map[string]Leader{},
		telling: map[string]context.CancelFunc{}, news: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	n.Answer(verbLeader, wire.Answer(0, l.hear))
	return l
}

// Close tells nobody any more.
func (l *Leaders) Close() {
	l.net.Answer(verbLeader, wire.Verb{})
	l.cancel()
	l.running.Wait()
}

// Of returns the other node that leads a shard and when that was heard last; false: none has said so.
func (l *Leaders) Of(shard string) (leader Leader, heard time.Time, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leader, known = l.others[shard]
	return leader, leader.heard, known
}

// Tell has all other nodes know what this one is in its shard; a zero Term: it does not lead.
func (l *Leaders) Tell(own Leader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.own.equal(own) {
		l.own = own
		close(l.news)
		l.news = make(chan struct{})
	}
	c := l.configuration()
	for id, stop := range l.telling {
		if own.Term == 0 || c.Member(id) == nil {
			stop()
			delete(l.telling, id)
		}
	}
	for _, m := range c.Members {
		if own.Term == 0 || m.ID == own.Node || l.telling[m.ID] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(l.ctx)
		l.telling[m.ID] = cancel
		l.running.Go(func() { l.tell(ctx, m) })
	}
}

// tell tells one node, until that is not wanted any more.
func (l *Leaders) tell(ctx context.Context, to Member) {
	var conn *wire.Caller
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for {
		l.mu.Lock()
		own, news := l.own, l.news
		l.mu.Unlock()
		if conn == nil {
			conn, _ = l.net.Caller(ctx, to.ID, to.ClusterAddress()) // else it is tried again
		}
		if conn != nil && own.Term > 0 {
			if _, err := conn.Do(wire.Ask{Verb: verbLeader, Ask: own, Within: adminTime}); err != nil {
				conn.Close()
				conn = nil
			}
		}
		select {
		case <-news:
		case <-time.After(l.period):
		case <-ctx.Done():
			return
		}
	}
}

// hear takes in what the leader of a shard says. It is believed of its own shard only.
func (l *Leaders) hear(call *wire.Call, said Leader) (any, []byte, error) {
	c := l.configuration()
	if m := c.Member(call.From); m == nil || said.Node != call.From || said.Shard != m.Shard {
		return nil, nil, errors.New("it does not lead that shard, as far as this node knows")
	}
	l.learn(said)
	return nil, nil, nil
}

// learn takes in who leads a shard, unless somebody leads it in a higher term.
func (l *Leaders) learn(said Leader) {
	l.mu.Lock()
	was := l.others[said.Shard]
	if said.Term < was.Term {
		l.mu.Unlock()
		return
	}
	said.heard = time.Now()
	l.others[said.Shard] = said
	l.mu.Unlock()
	if !said.equal(was) && l.onNews != nil {
		l.onNews()
	}
}
