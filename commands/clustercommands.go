package commands

import (
	"fmt"
	"strings"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// CLUSTER and its companions answer in Redis' form, so that its clients and redis-cli read
// the answers: a shard's leader is the master of its slots, the other nodes are its replicas. While
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

// failed reports whether a node of the shard is shown as failed.
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
	c.W.Verbatim(b.String())
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
	c.W.Verbatim(b.String())
}

// clusterShardID is CLUSTER MYSHARDID.
func clusterShardID(c *Context, _ *Cluster, v *ClusterView) {
	if v.own == nil {
		c.fail(refusal("ERR this node is not a member of a cluster yet"))
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
	if c.failed(err) {
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
		err = c.keysInSlot(slot, func(key []byte) bool {
			keys = append(keys, key)
			return int64(len(keys)) < most
		})
	}
	if c.failed(err) {
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
	if c.failed(err) {
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

const groupCluster = "cluster"

// clusterSub declares a subcommand of CLUSTER.
func clusterSub(name string, arity int, flags Flags, since, complexity, summary string,
	run func(*Context, *Cluster, *ClusterView), args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: flags | Stale, Group: groupCluster, Since: since,
		Complexity: complexity, Summary: summary, Args: args, Run: inCluster(run),
	}
}

const ofNodes = "O(N), where N is the number of nodes"

// clusterCommands show a cluster to clients, and choose what they read.
var clusterCommands = family(Command{Group: groupCluster}, []Command{
	{
		Name: "cluster", Arity: -2, Since: "3.0.0",
		Summary: "A container for commands on the cluster, with cluster-enabled yes.",
		Subcommands: []Command{
			withTips(clusterSub("slots", 2, pure, "3.0.0", ofNodes, "Returns which nodes serve which slots.",
				clusterSlots), changingTip...),
			withTips(clusterSub("shards", 2, pure, "7.0.0", ofNodes, "Returns the shards, with their "+
				"slots and nodes.", clusterShards), changingTip...),
			withTips(clusterSub("nodes", 2, pure, "3.0.0", ofNodes, "Returns a line for each node.",
				clusterNodes), changingTip...),
			withTips(clusterSub("info", 2, pure, "3.0.0", ofNodes, "Returns the state of the cluster.",
				clusterInfo), changingTip...),
			clusterSub("myid", 2, pure, "3.0.0", "O(1)", "Returns the id of the node.",
				func(c *Context, _ *Cluster, v *ClusterView) { c.W.BulkString(v.Node) }),
			withTips(clusterSub("myshardid", 2, pure, "7.2.0", "O(1)", "Returns the id of the node's shard.",
				clusterShardID), changingTip...),
			clusterSub("keyslot", 3, pure, "3.0.0", "O(N), where N is the length of the key",
				"Returns the slot of a key.",
				func(c *Context, _ *Cluster, _ *ClusterView) { c.W.Int(int64(store.Slot(c.Args[2]))) },
				strArg("key")),
			clusterSub("countkeysinslot", 3, 0, "3.0.0", "O(N), where N is the number of keys in the slot",
				"Returns how many keys of a slot this node has.", clusterCountKeys, intArg("slot")),
			withTips(clusterSub("getkeysinslot", 4, 0, "3.0.0", "O(N), where N is the number of keys "+
				"asked for",
				"Returns keys of a slot that this node has.", clusterGetKeys, intArg("slot"),
				intArg("count")), changingTip...),
			withTips(clusterSub("replicas", 3, Admin|pure, "5.0.0", ofNodes, "Returns a line for each "+
				"replica of a master.",
				clusterReplicas, strArg("node-id")), changingTip...),
			audited(adminAudit,
				clusterSub("fbfkv", -3, Admin|NoScript|NoMulti, "0.2.0", "Depends on the verb.",
					"Administers the cluster for the program fbfkv cluster.", clusterAdmin, strArg("verb"),
					opt(strArg("json")))),
			since("5.0.0", helpFor("cluster", groupCluster)),
		},
	},
	{
		Name: "readonly", Arity: 1, Flags: Loading | Stale | Fast, ACL: connectionACL, Since: "3.0.0",
		Summary: "Lets a replica answer this connection's queries from the committed state that it knows.",
		Run:     doReadOnly(true),
	},
	{
		Name: "readwrite", Arity: 1, Flags: Loading | Stale | Fast, ACL: connectionACL, Since: "3.0.0",
		Summary: "Ends READONLY.", Run: doReadOnly(false),
	},
	{
		Name: "asking", Arity: 1, Flags: Fast | pure, ACL: connectionACL, Since: "3.0.0",
		Summary: "Has no effect: a slot is never in two places.",
		Run:     inCluster(func(c *Context, _ *Cluster, _ *ClusterView) { c.W.Status("OK") }),
	},
})
