package commands

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// What CLUSTER and its companions answer is Redis' in form, so that its clients and redis-cli read
// it: a shard's leader is the master of its slots, the other nodes are its replicas. While
// nobody leads the last leader is shown, and always as healthy: clients drop slots
// whose master is not.

// inCluster makes a Run that is carried out in a cluster only.
func inCluster(run func(*Context, *Cluster, *ClusterView)) func(*Context) {
	return func(c *Context) {
		if c.Server.Cluster == nil {
			c.fail(refusal("ERR " + clusterDisabled))
			return
		}
		run(c, c.Server.Cluster, c.Server.Cluster.View())
	}
}

// failed reports whether a node of the shard is to be shown as one that does not answer.
func (s *ClusterShard) failed(i int) bool { return s.Nodes[i].Failed && i != s.Leader }

// leaderFirst calls fn with the indices of the shard's nodes, the leader's first.
func (s *ClusterShard) leaderFirst(fn func(i int)) {
	if s.Leader >= 0 {
		fn(s.Leader)
	}
	for i := range s.Nodes {
		if i != s.Leader {
			fn(i)
		}
	}
}

// clusterSlots is CLUSTER SLOTS.
func clusterSlots(c *Context, cluster *Cluster, v *ClusterView) {
	ranges := 0
	for i := range v.Shards {
		ranges += len(v.Shards[i].Slots)
	}
	c.W.Array(ranges)
	for i := range v.Shards {
		s := &v.Shards[i]
		shown := 0
		for j := range s.Nodes {
			shown += int(bit(!s.failed(j)))
		}
		for _, r := range s.Slots {
			c.W.Array(2 + shown)
			c.W.Int(int64(r.First))
			c.W.Int(int64(r.Last))
			s.leaderFirst(func(j int) {
				if !s.failed(j) {
					cluster.writeSlotNode(c.W, &s.Nodes[j], c.Session.TLS)
				}
			})
		}
	}
}

// writeSlotNode writes a node as CLUSTER SLOTS shows it: the names by which it is not called
// come last.
func (c *Cluster) writeSlotNode(w *resp.Writer, n *ClusterNode, tls bool) {
	w.Array(4)
	if name := c.endpoint(n); name != "" {
		w.BulkString(name)
	} else {
		w.Null()
	}
	w.Int(int64(n.portFor(tls)))
	w.BulkString(n.ID)
	var others []string
	if c.Endpoint() != EndpointIP {
		others = append(others, "ip", n.Host)
	}
	if c.Endpoint() != EndpointHostname && n.Hostname != "" {
		others = append(others, "hostname", n.Hostname)
	}
	w.Map(len(others) / 2)
	for _, word := range others {
		w.BulkString(word)
	}
}

// clusterShards is CLUSTER SHARDS.
func clusterShards(c *Context, cluster *Cluster, v *ClusterView) {
	c.W.Array(len(v.Shards))
	p := cluster.progress()
	for i := range v.Shards {
		s := &v.Shards[i]
		c.W.Map(2)
		c.W.BulkString("slots")
		c.W.Array(2 * len(s.Slots))
		for _, r := range s.Slots {
			c.W.Int(int64(r.First))
			c.W.Int(int64(r.Last))
		}
		c.W.BulkString("nodes")
		c.W.Array(len(s.Nodes))
		s.leaderFirst(func(j int) {
			offset := int64(p.Nodes[s.Nodes[j].ID].Index)
			if s == v.own && j == v.self {
				offset = int64(p.Applied)
			}
			cluster.writeShardNode(c.W, s, j, offset)
		})
	}
}

// writeShardNode writes a node as CLUSTER SHARDS shows it.
func (c *Cluster) writeShardNode(w *resp.Writer, s *ClusterShard, i int, offset int64) {
	n := &s.Nodes[i]
	w.Map(6 + int(bit(n.Port != 0)) + int(bit(n.TLSPort != 0)) + int(bit(n.Hostname != "")))
	w.Pair("id", n.ID)
	if n.Port != 0 {
		w.BulkString("port")
		w.Int(int64(n.Port))
	}
	if n.TLSPort != 0 {
		w.BulkString("tls-port")
		w.Int(int64(n.TLSPort))
	}
	w.Pair("ip", n.Host)
	w.Pair("endpoint", c.endpoint(n))
	if n.Hostname != "" {
		w.Pair("hostname", n.Hostname)
	}
	role, health := "replica", "online"
	if i == s.Leader {
		role = "master"
	}
	if s.failed(i) {
		health = "fail"
	}
	w.Pair("role", role)
	w.BulkString("replication-offset")
	w.Int(offset)
	w.Pair("health", health)
}

// nodeLine is a node's line of CLUSTER NODES and REPLICAS.
func (v *ClusterView) nodeLine(s *ClusterShard, i int, tls bool) string {
	n := &s.Nodes[i]
	address := fmt.Sprintf("%s:%d@%d", n.Host, n.portFor(tls), n.ClusterPort)
	if n.Hostname != "" {
		address += "," + n.Hostname
	}
	flags, master, link := "slave", "-", "connected"
	if i == s.Leader {
		flags = "master"
	} else if s.Leader >= 0 {
		master = s.Nodes[s.Leader].ID
	}
	if s == v.own && i == v.self {
		flags = "myself," + flags
	}
	if s.failed(i) {
		flags, link = flags+",fail", "disconnected"
	}
	line := fmt.Sprintf("%s %s %s %s 0 0 %d %s", n.ID, address, flags, master, s.Term, link)
	if i == s.Leader {
		for _, r := range s.Slots {
			line += " " + r.text()
		}
	}
	return line
}

// clusterNodes is CLUSTER NODES.
func clusterNodes(c *Context, _ *Cluster, v *ClusterView) {
	var b strings.Builder
	for i := range v.Shards {
		s := &v.Shards[i]
		for j := range s.Nodes {
			b.WriteString(v.nodeLine(s, j, c.Session.TLS) + "\n")
		}
	}
	c.W.Verbatim("txt", b.String())
}

// clusterReplicas is CLUSTER REPLICAS node-id.
func clusterReplicas(c *Context, _ *Cluster, v *ClusterView) {
	s, n := v.find(string(c.Args[2]))
	switch {
	case n == nil:
		c.fail(unknownNode(c.Args[2]))
		return
	case s.leader() != n:
		c.fail(refusal("ERR The specified node is not a master"))
		return
	}
	c.W.Array(len(s.Nodes) - 1)
	for i := range s.Nodes {
		if i != s.Leader {
			c.W.BulkString(v.nodeLine(s, i, c.Session.TLS))
		}
	}
}

func unknownNode(id []byte) error {
	return refusal("ERR Unknown node " + string(cString(id, maxQuoted)))
}

// clusterFailureReports is CLUSTER COUNT-FAILURE-REPORTS node-id: nobody reports any.
func clusterFailureReports(c *Context, _ *Cluster, v *ClusterView) {
	if _, n := v.find(string(c.Args[2])); n == nil {
		c.fail(unknownNode(c.Args[2]))
		return
	}
	c.W.Int(0)
}

// clusterLinks is CLUSTER LINKS: the other nodes of the shard.
func clusterLinks(c *Context, _ *Cluster, v *ClusterView) {
	var ids []string
	if v.own != nil {
		for i := range v.own.Nodes {
			if i != v.self && !v.own.Nodes[i].Failed {
				ids = append(ids, v.own.Nodes[i].ID)
			}
		}
	}
	c.W.Array(len(ids))
	for _, id := range ids {
		c.W.Map(6)
		c.W.Pair("direction", "to")
		c.W.Pair("node", id)
		for _, name := range []string{"create-time", "events", "send-buffer-allocated", "send-buffer-used"} {
			c.W.BulkString(name)
			if name == "events" {
				c.W.BulkString("r")
			} else {
				c.W.Int(0)
			}
		}
	}
}

// tally is how many slots and nodes a cluster has.
type tally struct {
	assigned, lost, nodes, shards int
	epoch, own                    uint64
}

func (v *ClusterView) tally() (t tally) {
	for i := range v.Shards {
		s := &v.Shards[i]
		n := 0
		for _, r := range s.Slots {
			n += int(r.Last) - int(r.First) + 1
		}
		t.assigned += n
		t.nodes += len(s.Nodes)
		t.shards += int(bit(n > 0))
		t.epoch = max(t.epoch, s.Term)
		if !s.LostAt.IsZero() || s.Leader < 0 {
			t.lost += n
		}
	}
	if v.own != nil {
		t.own = v.own.Term
	} else {
		t.nodes++ // this one knows itself
	}
	return t
}

// clusterInfo is CLUSTER INFO.
func clusterInfo(c *Context, _ *Cluster, v *ClusterView) {
	t := v.tally()
	state := "ok"
	if t.lost > 0 || t.assigned < slotCount {
		state = "fail"
	}
	var b observe.Lines
	b.Add("cluster_state", state)
	b.Add("cluster_slots_assigned", t.assigned)
	b.Add("cluster_slots_ok", t.assigned-t.lost)
	b.Add("cluster_slots_pfail", 0)
	b.Add("cluster_slots_fail", t.lost)
	b.Add("cluster_known_nodes", t.nodes)
	b.Add("cluster_size", t.shards)
	b.Add("cluster_current_epoch", t.epoch)
	b.Add("cluster_my_epoch", t.own)
	b.Add("cluster_stats_messages_sent", 0)
	b.Add("cluster_stats_messages_received", 0)
	b.Add("total_cluster_links_buffer_limit_exceeded", 0)
	c.W.Verbatim("txt", b.String())
}

// clusterShardID is CLUSTER MYSHARDID.
func clusterShardID(c *Context, _ *Cluster, v *ClusterView) {
	if v.own == nil {
		c.fail(refusal("ERR this node is no member of a cluster yet"))
		return
	}
	c.W.BulkString(v.own.ID)
}

// parseSlot reads a hash slot.
func parseSlot(arg []byte) (slot int64, ok bool, err error) {
	slot, ok = parseInt(arg)
	if !ok {
		return 0, false, errNotInteger
	}
	return slot, slot >= 0 && slot < slotCount, nil
}

// clusterCountKeys is CLUSTER COUNTKEYSINSLOT slot.
func clusterCountKeys(c *Context, _ *Cluster, _ *ClusterView) {
	slot, ok, err := parseSlot(c.Args[2])
	if err == nil && !ok {
		err = refusal("ERR Invalid slot")
	}
	n := int64(0)
	if err == nil {
		err = c.keysInSlot(slot, func([]byte) bool { n++; return true })
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.W.Int(n)
}

// clusterGetKeys is CLUSTER GETKEYSINSLOT slot count.
func clusterGetKeys(c *Context, _ *Cluster, _ *ClusterView) {
	slot, ok, err := parseSlot(c.Args[2])
	most, isNumber := parseInt(c.Args[3])
	switch {
	case err == nil && !isNumber:
		err = errNotInteger
	case err == nil && (!ok || most < 0):
		err = refusal("ERR Invalid slot or number of keys")
	}
	var keys [][]byte
	if err == nil && most > 0 {
		err = c.keysInSlot(slot, func(key []byte) bool { keys = append(keys, key); return int64(len(keys)) < most })
	}
	if err != nil {
		c.fail(err)
		return
	}
	replyKeys(c.W, keys)
}

// keysAtOnce is how many keys of a slot are read at a time.
const keysAtOnce = 256

// keysInSlot calls fn with the keys of a slot, until it returns false.
func (c *Context) keysInSlot(slot int64, fn func(key []byte) bool) error {
	const perSlot = (store.MaxCursor + 1) / slotCount
	more := true
	for cursor := uint64(slot) * perSlot; more && cursor/perSlot == uint64(slot); {
		next, err := c.Store.Scan(cursor, keysAtOnce, func(key []byte, _ store.Type) {
			more = more && int64(store.Slot(key)) == slot && fn(key)
		})
		if err != nil {
			return err
		}
		if next == 0 {
			break
		}
		cursor = next
	}
	return nil
}

// clusterAdmin is CLUSTER FBFKV verb [json].
func clusterAdmin(c *Context, cluster *Cluster, _ *ClusterView) {
	var request []byte
	switch {
	case len(c.Args) > 4:
		c.fail(errSyntax)
		return
	case len(c.Args) == 4:
		request = c.Args[3]
	}
	if cluster.Admin == nil {
		c.fail(refusal("ERR CLUSTER FBFKV is not supported here"))
		return
	}
	answer, err := cluster.Admin(string(c.Args[2]), request)
	if err != nil {
		c.fail(err)
		return
	}
	c.W.Bulk(answer)
}

// adminAudit takes every verb of CLUSTER FBFKV for an act but the one that only looks.
func adminAudit(args [][]byte, _ func(int)) bool { return !is(args[2], "INFO") }

// doReadOnly is READONLY and READWRITE.
func doReadOnly(readOnly bool) func(*Context) {
	return inCluster(func(c *Context, _ *Cluster, _ *ClusterView) {
		c.Session.readonly.Store(readOnly)
		c.W.Status("OK")
	})
}

// doWait is WAIT numreplicas timeout. What was acknowledged is on a majority of the shard's
// nodes, so that fewer are never waited for.
func doWait(c *Context) {
	if err := waitArgs(c.Args[1:]); err != nil {
		c.fail(err)
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
		for _, name := range []string{"repl_backlog_active", "repl_backlog_size", "repl_backlog_first_byte_offset", "repl_backlog_histlen"} {
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
		b.Add("shard_term", p.Term)
		b.Add("shard_leader_changes", p.LeaderChanges)
		b.Add("shard_last_index", p.LastIndex)
		b.Add("shard_commit_index", p.Committed)
		b.Add("shard_applied_index", p.Applied)
		b.Add("shard_rebuilds", p.Rebuilds)
		b.Add("shard_fenced_entries", p.Fenced)
		b.Add("shard_file_transfers", p.Transfers)
	}
}

const groupCluster = "cluster"

// clusterSub declares a subcommand of CLUSTER.
func clusterSub(name string, arity int, flags Flags, since, complexity, summary string, run func(*Context, *Cluster, *ClusterView), args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: flags | Stale, Group: groupCluster, Since: since, Complexity: complexity,
		Summary: summary, Args: args, Run: inCluster(run),
	}
}

var changingTip = []string{"nondeterministic_output"}

const ofNodes = "O(N), where N is the number of nodes"

// clusterCommands show a cluster to clients, and choose what they read.
var clusterCommands = []Command{
	{
		Name: "cluster", Arity: -2, Group: groupCluster, Since: "3.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for commands on the cluster, with cluster-enabled yes.",
		Subcommands: []Command{
			withTips(clusterSub("slots", 2, pure, "3.0.0", ofNodes, "Returns which nodes serve which slots.", clusterSlots), changingTip...),
			withTips(clusterSub("shards", 2, pure, "7.0.0", ofNodes, "Returns the shards, with their slots and nodes.", clusterShards), changingTip...),
			withTips(clusterSub("nodes", 2, pure, "3.0.0", ofNodes, "Returns a line for each node.", clusterNodes), changingTip...),
			withTips(clusterSub("info", 2, pure, "3.0.0", ofNodes, "Returns the state of the cluster.", clusterInfo), changingTip...),
			clusterSub("myid", 2, pure, "3.0.0", "O(1)", "Returns the id of the node.",
				func(c *Context, _ *Cluster, v *ClusterView) { c.W.BulkString(v.Node) }),
			withTips(clusterSub("myshardid", 2, pure, "7.2.0", "O(1)", "Returns the id of the node's shard.", clusterShardID), changingTip...),
			clusterSub("keyslot", 3, pure, "3.0.0", "O(N), where N is the length of the key", "Returns the slot of a key.",
				func(c *Context, _ *Cluster, _ *ClusterView) { c.W.Int(int64(store.Slot(c.Args[2]))) }, strArg("key")),
			clusterSub("countkeysinslot", 3, 0, "3.0.0", "O(N), where N is the number of keys in the slot",
				"Returns how many keys of a slot this node has.", clusterCountKeys, intArg("slot")),
			withTips(clusterSub("getkeysinslot", 4, 0, "3.0.0", "O(N), where N is the number of keys asked for",
				"Returns keys of a slot that this node has.", clusterGetKeys, intArg("slot"), intArg("count")), changingTip...),
			withTips(clusterSub("replicas", 3, Admin|pure, "5.0.0", ofNodes, "Returns a line for each replica of a master.",
				clusterReplicas, strArg("node-id")), changingTip...),
			withTips(clusterSub("slaves", 3, Admin|pure, "3.0.0", ofNodes, "The old name of CLUSTER REPLICAS.",
				clusterReplicas, strArg("node-id")), changingTip...),
			withTips(clusterSub("links", 2, pure, "7.0.0", ofNodes, "Returns the links to the other nodes of the shard.", clusterLinks), changingTip...),
			withTips(clusterSub("count-failure-reports", 3, Admin|pure, "3.0.0", "O(1)", "Answers 0: nodes do not vote on failures.",
				clusterFailureReports, strArg("node-id")), changingTip...),
			audited(adminAudit, clusterSub("fbfkv", -3, Admin|NoScript|NoMulti, "0.1.0", "Depends on the verb.",
				"Administers the cluster for the program fbfkv cluster.", clusterAdmin, strArg("verb"), opt(strArg("json")))),
			since("5.0.0", helpFor("cluster", groupCluster)),
		},
	},
	{
		Name: "readonly", Arity: 1, Flags: Loading | Stale | Fast, Group: groupCluster, ACL: connectionACL, Since: "3.0.0", Complexity: "O(1)",
		Summary: "Lets a replica answer this connection's queries from what it knows to be committed.", Run: doReadOnly(true),
	},
	{
		Name: "readwrite", Arity: 1, Flags: Loading | Stale | Fast, Group: groupCluster, ACL: connectionACL, Since: "3.0.0", Complexity: "O(1)",
		Summary: "Ends READONLY.", Run: doReadOnly(false),
	},
	{
		Name: "asking", Arity: 1, Flags: Fast | pure, Group: groupCluster, ACL: connectionACL, Since: "3.0.0", Complexity: "O(1)",
		Summary: "Has no effect: a slot is never in two places.",
		Run:     inCluster(func(c *Context, _ *Cluster, _ *ClusterView) { c.W.Status("OK") }),
	},
}
