package commands

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// Cluster is what commands need of the cluster that this node belongs to, as funcs that are
// safe for concurrent use.
type Cluster struct {
	// View returns what the node knows of the cluster by now, never nil. It is called once for
	// each round, so it must neither wait nor allocate.
	View func() *ClusterView
	// Changed returns a channel that is closed when View returns another value than at the
	// time of this call.
	Changed func() <-chan struct{}
	// Progress returns how far the node's shard is; nil: nobody knows.
	Progress func() ClusterProgress
	// Replicas waits until n other nodes of the shard have on disk what was committed when it
	// was called, for at most the timeout, and returns how many have; nil: none.
	Replicas func(n int, timeout time.Duration) int
	// Admin carries out CLUSTER FBFKV verb [json], with which nodes are administered. The
	// request must be distrusted. nil: not supported.
	Admin func(verb string, request []byte) ([]byte, error)

	// Tables changes the tables of all shards, whichever node is asked, and returns when all have them; an
	// error that is store.ErrUndecided says who lacks them. nil: as the Store does.
	Tables TableChanger

	// HoldFor is the setting cluster-node-timeout: how long a request waits for a leader.
	HoldFor func() time.Duration
	// Behind returns for how long this node, a replica, has not had all that was committed, as far
	// as a leader has told it. nil: only the view counts.
	Behind func() time.Duration
	// MaxStale is the setting cluster-replica-max-stale; 0: no limit.
	MaxStale func() time.Duration
	// Endpoint is the setting cluster-preferred-endpoint-type.
	Endpoint func() string

	// refuted is a view in which this node leads, but the store has refused to decide:
	// the next view will say who does.
	refuted atomic.Pointer[ClusterView]
}

// TableChanger carries out CTABLE CREATE, ALTER and DROP. A store.Store is one.
type TableChanger interface {
	CreateTable(o store.TableOptions) error
	AlterTable(name string, change store.TableChange) error
	DropTable(name string) error
}

// ClusterView is what a node knows of its cluster at a time. NewClusterView makes one; it
// does not change any more.
type ClusterView struct {
	// Node is the id of this node, 40 hex digits.
	Node string
	// Epoch is the version of the configuration.
	Epoch uint64
	// Shards are all shards of the cluster; a shard may have no slots. A node that is not a member
	// knows none.
	Shards []ClusterShard

	own  *ClusterShard // of this node; nil: it is no member
	self int           // this node, in own.Nodes
	mine [slotCount / 64]uint64
	is   standing
}

// ClusterShard is a set of slots and the nodes that have them.
type ClusterShard struct {
	// ID is 40 hex digits.
	ID string
	// Slots are ranges, both ends included, in ascending order.
	Slots []SlotRange
	// Held are the slots among them that are being handed over to another shard: requests wait for a moment.
	Held []SlotRange
	// Nodes are all that hold the shard.
	Nodes []ClusterNode
	// Leader is which of the Nodes leads or, as far as is known, was the last that did; -1:
	// none ever.
	Leader int
	// LostAt is since when nobody leads; the zero time: Leader does.
	LostAt time.Time
	// Ready says, of this node's shard, that the node has completed becoming its leader, if
	// that is what it is.
	Ready bool
	// Term is the shard's term of leadership.
	Term uint64
}

// SlotRange is a range of hash slots, both ends included.
type SlotRange struct{ First, Last uint16 }

// ClusterNode is one node, as clients reach it.
type ClusterNode struct {
	// ID is 40 hex digits.
	ID string
	// Host is an address or a name; Hostname is another name, or "".
	Host, Hostname string
	// Port and TLSPort are for clients, ClusterPort is for nodes; 0: none.
	Port, TLSPort, ClusterPort int
	// Failed says that the node does not answer this one, or the leader. Of a leader it says that
	// its connection is broken: requests are held until there is news.
	Failed bool
}

// ClusterProgress is how far a shard is, for ROLE, INFO and CLUSTER.
type ClusterProgress struct {
	Term          uint64
	LeaderChanges uint64 // seen since the start
	LastIndex     uint64 // of the log here
	Committed     uint64 // index
	Applied       uint64 // index
	Rebuilds      uint64 // of partitions whose state was taken back
	Fenced        uint64 // entries that were ignored
	// Given are the transfers of files to nodes that were behind the log, Fetched those to this
	// node; Fetching: one is under way, and the node does not follow meanwhile.
	Given, Fetched Transfers
	Fetching       bool
	Skew           time.Duration // this node's clock minus that of the last other leader
	// Takeovers are how often this node became the leader since the start; LastTakeover is how
	// long nobody had led before it did so last.
	Takeovers    uint64
	LastTakeover time.Duration
	// MetaLed says that somebody leads the meta group, as far as this node knows: the cluster's
	// configuration can be changed.
	MetaLed bool
	// Nodes are the other nodes of the shard, by id, as far as the node knows: a leader does.
	Nodes map[string]NodeProgress
}

// Transfers counts transfers of files since the start: how many began, were finished, and were
// given up, and their bytes.
type Transfers struct{ Begun, Finished, Failed, Bytes uint64 }

// String is the value of a line of INFO.
func (t Transfers) String() string {
	return fmt.Sprintf("begun=%d,finished=%d,failed=%d,bytes=%d", t.Begun, t.Finished, t.Failed, t.Bytes)
}

// NodeProgress is how far another node of the shard is.
type NodeProgress struct {
	Index       uint64        // up to which it has the log on disk
	Applied     uint64        // up to which it has applied it; 0: not known
	LastContact time.Duration // ago; negative: never
	Lag         time.Duration // since when there are committed entries that it lacks; 0: none
}

// standing is what a node is in its shard.
type standing uint8

const (
	stranger standing = iota // no member
	seeks                    // a member that knows no leader, or is not ready to lead
	follows
	leads
)

const slotCount = 16384

// NewClusterView completes a view whose exported fields are set.
func NewClusterView(v ClusterView) *ClusterView {
	for i := range v.Shards {
		s := &v.Shards[i]
		for j := range s.Nodes {
			if s.Nodes[j].ID == v.Node {
				v.own, v.self = s, j
			}
		}
	}
	if v.own == nil {
		return &v
	}
	for _, r := range v.own.Slots {
		for slot := int(r.First); slot <= int(r.Last) && slot < slotCount; slot++ {
			v.mine[slot/64] |= 1 << (slot % 64)
		}
	}
	switch {
	case v.own.Leader < 0 || !v.own.LostAt.IsZero() || v.own.Leader == v.self && !v.own.Ready:
		v.is = seeks
	case v.own.Leader == v.self:
		v.is = leads
	case v.own.leader().Failed:
		v.is = seeks
	default:
		v.is = follows
	}
	return &v
}

// holds reports whether nobody answers for a slot of this node's shard, which is being handed over.
func (v *ClusterView) holds(slot int) bool {
	return slices.ContainsFunc(v.own.Held, func(r SlotRange) bool {
		return int(r.First) <= slot && slot <= int(r.Last)
	})
}

// has reports whether this node's shard has a slot.
func (v *ClusterView) has(slot int) bool { return v.mine[slot/64]&(1<<(slot%64)) != 0 }

// anyOwn returns slot or, for noSlot, one of this node's shard; 0 if the shard has none.
func (v *ClusterView) anyOwn(slot int) int {
	switch {
	case slot >= 0:
		return slot
	case len(v.own.Slots) > 0:
		return int(v.own.Slots[0].First)
	}
	return 0
}

// shardOf returns the shard that has a slot, or nil.
func (v *ClusterView) shardOf(slot int) *ClusterShard {
	for i := range v.Shards {
		for _, r := range v.Shards[i].Slots {
			if int(r.First) <= slot && slot <= int(r.Last) {
				return &v.Shards[i]
			}
		}
	}
	return nil
}

// leader returns the node that leads or was the last to, nil if none ever did.
func (s *ClusterShard) leader() *ClusterNode {
	if s.Leader < 0 {
		return nil
	}
	return &s.Nodes[s.Leader]
}

// find returns the node with an id and its shard; nil if there is none.
func (v *ClusterView) find(id string) (*ClusterShard, *ClusterNode) {
	for i := range v.Shards {
		for j := range v.Shards[i].Nodes {
			if n := &v.Shards[i].Nodes[j]; n.ID == id {
				return &v.Shards[i], n
			}
		}
	}
	return nil, nil
}

// portFor returns the port of the kind of connection that asks; the other one if the node
// has none of that kind.
func (n *ClusterNode) portFor(tls bool) int {
	if tls && n.TLSPort != 0 || n.Port == 0 {
		return n.TLSPort
	}
	return n.Port
}

// The values of cluster-preferred-endpoint-type.
const (
	EndpointIP       = "ip"
	EndpointHostname = "hostname"
	EndpointUnknown  = "unknown-endpoint"
)

// endpoint returns how the setting cluster-preferred-endpoint-type calls a node; "" is
// unknown: the one that the client has asked.
func (c *Cluster) endpoint(n *ClusterNode) string {
	switch c.Endpoint() {
	case EndpointHostname:
		if n.Hostname == "" {
			return "?"
		}
		return n.Hostname
	case EndpointUnknown:
		return ""
	}
	return n.Host
}

// moved is the reply to a request for a slot that another node serves, or will.
func (c *Cluster) moved(slot int, n *ClusterNode, tls bool) string {
	return "MOVED " + strconv.Itoa(slot) + " " + c.endpoint(n) + ":" + strconv.Itoa(n.portFor(tls))
}

// progress returns how far the node's shard is, as far as is known.
func (c *Cluster) progress() ClusterProgress {
	if c.Progress == nil {
		return ClusterProgress{}
	}
	return c.Progress()
}

// maxBehind is how many entries of the log a replica may be behind and be taken for one that
// keeps up.
const maxBehind = 1000

// NotReady says why the node does not serve its shard; "": it does. A moment without a leader,
// in which requests are held, does not count.
func (c *Cluster) NotReady() string {
	v, p := c.View(), c.progress()
	switch {
	case v.is == stranger:
		return "this node is not a member of a cluster yet"
	case v.is == seeks && v.own.LostAt.IsZero() && v.own.Leader == v.self:
		return "this node is becoming the leader of its shard"
	case v.is == seeks &&
		(v.own.Leader < 0 || !v.own.LostAt.IsZero() && time.Since(v.own.LostAt) > c.HoldFor()):
		return "the shard has no leader"
	case p.Fetching:
		return "this node is behind the log of its shard and fetches the leader's files"
	case p.Committed > p.Applied+maxBehind:
		return "this node is catching up with its shard"
	}
	return ""
}

// text renders a range as CLUSTER NODES does.
func (r SlotRange) text() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}
