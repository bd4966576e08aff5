package commands

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// The role of the node in its shard, and the progress of the replicas: WAIT, ROLE and INFO.

// doWait is WAIT numreplicas timeout. Everything acknowledged is on a majority of the shard's
// nodes, so it never waits for fewer.
func doWait(c *Context) {
	if err := waitArgs(c.Args[1:]); c.failed(err) {
		return
	}
	if v := c.clusterView(); v != nil && v.is == follows {
		c.fail(errWaitOnReplica)
		return
	}
	n, _ := parseInt(c.Args[1])
	c.W.Int(int64(c.awaitReplicas(n, c.Args[2])))
}

// clusterView returns what is known of the cluster; nil: there is none.
func (c *Context) clusterView() *ClusterView { return c.Server.clusterView() }

func (s *Server) clusterView() *ClusterView {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster.View()
}

// awaitReplicas waits for n replicas, for at most a time in ms (0: any), and returns how many have
// what was committed.
func (c *Context) awaitReplicas(n int64, timeout []byte) (have int) {
	cluster := c.Server.Cluster
	if cluster == nil || cluster.Replicas == nil {
		return 0
	}
	ms, _ := parseTimeout(timeout)
	end := time.Now().Add(time.Duration(min(ms, int64(maxWait/time.Millisecond))) * time.Millisecond)
	c.Server.blocked.Add(1)
	defer c.Server.blocked.Add(-1)
	for {
		left := lookAfterHeld
		if ms > 0 {
			left = min(left, time.Until(end))
		}
		if c.tx.solo {
			left = 0 // nothing waits within a transaction
		}
		have = cluster.Replicas(int(min(max(n, 0), maxReplicas)), max(left, 0))
		switch {
		case int64(have) >= n, ms > 0 && !time.Now().Before(end), c.tx.solo, c.Session.gone():
			return have
		}
		select {
		case <-c.Server.Stopping:
			return have
		default:
		}
	}
}

const (
	maxWait     = 365 * 24 * time.Hour
	maxReplicas = 1 << 16
)

// doRole is ROLE.
func doRole(c *Context) {
	v := c.clusterView()
	if v == nil || v.own == nil {
		c.W.Array(3)
		c.W.BulkString("master")
		c.W.Int(0)
		c.W.Array(0)
		return
	}
	p := c.Server.Cluster.progress()
	if v.is != leads {
		host, port, state := "", 0, "connect"
		if n := v.own.leader(); n != nil {
			host, port = n.Host, n.portFor(c.Session.TLS)
		}
		if v.is == follows {
			state = "connected"
		}
		c.W.Array(5)
		c.W.BulkString("slave")
		c.W.BulkString(host)
		c.W.Int(int64(port))
		c.W.BulkString(state)
		c.W.Int(int64(p.Applied))
		return
	}
	c.W.Array(3)
	c.W.BulkString("master")
	c.W.Int(int64(p.Committed))
	replicas := v.replicas()
	c.W.Array(len(replicas))
	for _, n := range replicas {
		c.W.Array(3)
		c.W.BulkString(n.Host)
		c.W.BulkString(strconv.Itoa(n.portFor(c.Session.TLS)))
		c.W.BulkString(strconv.FormatUint(p.Nodes[n.ID].Index, 10))
	}
}

// replicas returns the other nodes of this node's shard that answer.
func (v *ClusterView) replicas() (list []*ClusterNode) {
	for i := range v.own.Nodes {
		if n := &v.own.Nodes[i]; i != v.self && !n.Failed {
			list = append(list, n)
		}
	}
	return list
}

// role is Redis' word for what the node is, for HELLO and INFO.
func (v *ClusterView) role(replica string) string {
	if v == nil || v.own == nil || v.is == leads {
		return "master"
	}
	return replica
}

// infoReplication is INFO replication of a node of a cluster.
func (s *Server) infoReplication(v *ClusterView, tls bool) func(b *observe.Lines) {
	return func(b *observe.Lines) {
		p := s.Cluster.progress()
		b.Add("role", v.role("slave"))
		offset := p.Committed
		if v.own != nil && v.is != leads {
			offset = p.Applied
			s.infoReplica(v, p, b, tls)
		}
		var replicas []*ClusterNode
		if v.own != nil && v.is == leads {
			replicas = v.replicas()
		}
		b.Add("connected_slaves", len(replicas))
		for i, n := range replicas {
			at := p.Nodes[n.ID]
			b.Add("slave"+strconv.Itoa(i), fmt.Sprintf("ip=%s,port=%d,state=online,offset=%d,lag=%d", n.Host,
				n.portFor(tls), at.Index, int64(at.LastContact/time.Second)))
		}
		id := strings.Repeat("0", 40)
		if v.own != nil {
			id = v.own.ID
		}
		b.Add("master_failover_state", "no-failover")
		b.Add("master_replid", id)
		b.Add("master_replid2", strings.Repeat("0", 40))
		b.Add("master_repl_offset", offset)
		b.Add("second_repl_offset", -1)
		for _, name := range []string{"repl_backlog_active", "repl_backlog_size",
			"repl_backlog_first_byte_offset", "repl_backlog_histlen"} {
			b.Add(name, 0)
		}
	}
}

// infoReplica reports on a replica's leader.
func (s *Server) infoReplica(v *ClusterView, p ClusterProgress, b *observe.Lines, tls bool) {
	host, port, contact := "", 0, int64(-1)
	if n := v.own.leader(); n != nil {
		host, port = n.Host, n.portFor(tls)
		if at, ok := p.Nodes[n.ID]; ok && at.LastContact >= 0 {
			contact = int64(at.LastContact / time.Second)
		}
	}
	link := "down"
	if v.is == follows {
		link = "up"
	}
	b.Add("master_host", host)
	b.Add("master_port", port)
	b.Add("master_link_status", link)
	b.Add("master_last_io_seconds_ago", contact)
	b.Add("master_sync_in_progress", 0)
	b.Add("slave_read_repl_offset", p.LastIndex)
	b.Add("slave_repl_offset", p.Applied)
	if !v.own.LostAt.IsZero() {
		b.Add("master_link_down_since_seconds", int64(time.Since(v.own.LostAt)/time.Second))
	}
	b.Add("slave_priority", 100)
	b.Add("slave_read_only", 1)
	b.Add("replica_announced", 1)
}

// infoCluster is INFO cluster of a node of a cluster.
func (s *Server) infoCluster(v *ClusterView) func(b *observe.Lines) {
	return func(b *observe.Lines) {
		p := s.Cluster.progress()
		b.Add("cluster_enabled", 1)
		b.Add("cluster_configuration_version", v.Epoch)
		b.Add("cluster_meta_has_leader", bit(p.MetaLed))
		b.Add("cluster_shards_without_leader", v.leaderless())
		b.Add("shard_term", p.Term)
		b.Add("shard_leader_changes", p.LeaderChanges)
		b.Add("shard_last_index", p.LastIndex)
		b.Add("shard_commit_index", p.Committed)
		b.Add("shard_applied_index", p.Applied)
		b.Add("shard_rebuilds", p.Rebuilds)
		b.Add("shard_fenced_entries", p.Fenced)
		b.Add("shard_files_fetched", p.Fetched)
		b.Add("shard_files_given", p.Given)
		b.Add("shard_takeovers", p.Takeovers)
		b.Add("shard_takeover_last_ms", p.LastTakeover.Milliseconds())
		b.Add("shard_clock_skew_ms", p.Skew.Milliseconds())
		for i, r := range s.ReplicaFigures() {
			b.Add("shard_replica"+strconv.Itoa(i),
				fmt.Sprintf("address=%s,index=%d,lag_entries=%d,lag_ms=%d,last_contact_ms=%d", r.Address,
					r.Index,
					r.LagEntries, r.Lag.Milliseconds(), r.LastContact.Milliseconds()))
		}
	}
}

// leaderless counts the shards that nobody leads, as far as this node knows.
func (v *ClusterView) leaderless() (n int) {
	for i := range v.Shards {
		if !v.led(&v.Shards[i]) {
			n++
		}
	}
	return n
}

// ReplicaFigures describe another node of the shard, as its leader knows it.
type ReplicaFigures struct {
	Address string // HOST:PORT for clients
	NodeProgress
	LagEntries uint64 // committed, and not on its disk
}

// ReplicaFigures returns the figures of the shard's other nodes if this one leads it, and
// otherwise nothing. Safe for concurrent use.
func (s *Server) ReplicaFigures() (list []ReplicaFigures) {
	if s.Cluster == nil {
		return nil
	}
	v, p := s.Cluster.View(), s.Cluster.progress()
	if v.is != leads {
		return nil
	}
	for i := range v.own.Nodes {
		if i == v.self {
			continue
		}
		n := &v.own.Nodes[i]
		at, known := p.Nodes[n.ID]
		if !known { // it has not answered since this node leads, and may be lost
			at.LastContact = -time.Millisecond
		}
		list = append(list, ReplicaFigures{Address: n.Host + ":" + strconv.Itoa(n.portFor(false)),
			NodeProgress: at,
			LagEntries:   p.Committed - min(at.Index, p.Committed)})
	}
	return list
}

// ShardFigures describe this node in its shard, and its knowledge of the others.
type ShardFigures struct {
	ClusterProgress
	Shard string // the beginning of its shard's id, as fbfkv cluster status shows it
	Leads bool
	Led   map[string]bool // by the beginning of each shard's id: whether somebody leads it
}

// ShardFigures returns what this node is in its shard and how far that is; false: it is no
// member of a cluster. Safe for concurrent use.
func (s *Server) ShardFigures() (f ShardFigures, member bool) {
	if s.Cluster == nil {
		return f, false
	}
	v := s.Cluster.View()
	if v.is == stranger {
		return f, false
	}
	f = ShardFigures{s.Cluster.progress(), shortID(v.own.ID), v.is == leads,
		make(map[string]bool, len(v.Shards))}
	for i := range v.Shards {
		f.Led[shortID(v.Shards[i].ID)] = v.led(&v.Shards[i])
	}
	return f, true
}

// shortID is how a shard's id is shown.
func shortID(id string) string { return id[:min(len(id), 8)] }

// led reports whether somebody leads a shard, as far as this node knows.
func (v *ClusterView) led(s *ClusterShard) bool {
	if s == v.own {
		return v.is == leads || v.is == follows
	}
	return s.Leader >= 0 && s.LostAt.IsZero()
}
