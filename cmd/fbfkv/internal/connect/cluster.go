package connect

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

const (
	// askTime is how long a node may take to answer what any node can.
	askTime = 5 * time.Second
	// maxMoves is how often a command follows MOVED, after pauses: while a partition moves, nodes may name
	// each other.
	maxMoves  = 5
	movePause = 20 * time.Millisecond
	maxSlot   = 1<<14 - 1
)

// Shard is what a node says of a shard of its cluster.
type Shard struct {
	Slots [][2]int64 // first and last ones
	Nodes []Node
}

// Node is a node of a shard.
type Node struct {
	Addr           string // HOST:PORT
	Leads, Healthy bool
}

// Shards asks a node for the shards of its cluster. A server without cluster-enabled has none, and a node
// that is in no cluster yet answers with an error that is transient.
func (c *Client) Shards(ctx context.Context) ([]Shard, error) {
	list, err := c.quick(ctx, "CLUSTER", "SHARDS").List()
	if IsNoCluster(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Shard
	for _, reply := range list {
		s, err := reply.Pairs()
		if err != nil {
			return nil, err
		}
		shard := Shard{}
		slots, err := s["slots"].Ints()
		for i := 0; i+1 < len(slots); i += 2 {
			shard.Slots = append(shard.Slots, [2]int64{slots[i], slots[i+1]})
		}
		if err != nil {
			return nil, err
		}
		nodes, err := s["nodes"].List()
		if err != nil {
			return nil, err
		}
		for _, reply := range nodes {
			n, err := reply.Pairs()
			if err != nil {
				return nil, err
			}
			port := "port"
			if c.tls != nil {
				port = "tls-port"
			}
			number, err := n[port].Text()
			if err != nil {
				continue // it has none
			}
			host, _ := n["endpoint"].Text() // null and "?": the host that was asked
			role, _ := n["role"].Text()
			health, _ := n["health"].Text()
			shard.Nodes = append(shard.Nodes, Node{c.reach(host, number), role == "master", health == "online"})
		}
		if len(shard.Nodes) > 0 {
			all = append(all, shard)
		}
	}
	if len(all) == 0 {
		return nil, Error("CLUSTERDOWN " + c.addr + " is a member of no cluster yet")
	}
	return all, nil
}

// quick is Do within askTime.
func (c *Client) quick(ctx context.Context, args ...any) Reply {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return c.Do(ctx, args...)
}

// reach is where a node is reached of which this one has told.
func (c *Client) reach(host, port string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(c.addr)
	}
	return net.JoinHostPort(host, port)
}

// Cluster is a client of one server, or of all nodes of the cluster that this is a node of. It sends each
// command to the leader of its key's slot, and follows MOVED: such a command was not executed. No other
// command is sent twice. It is safe for concurrent use.
type Cluster struct {
	login   *Flags
	timeout time.Duration

	mu      sync.Mutex
	clients map[string]*Client
	nodes   []string // all that are known; the next one to ask comes first
	alone   bool     // the server is in no cluster.
	stale   bool     // A node must be asked for the shards.
	owners  [maxSlot + 1]string
}

// Cluster returns a client of the server at HOST:PORT and of its cluster, if it is in one. Commands and
// pipelines take at most timeout; 0: as long as it takes.
func (f *Flags) Cluster(addr string, timeout time.Duration) (*Cluster, error) {
	first, err := f.Client(addr, timeout)
	if err != nil {
		return nil, err
	}
	first.pingTime = askTime
	return &Cluster{login: f, timeout: timeout, clients: map[string]*Client{addr: first},
		nodes: []string{addr}, stale: true}, nil
}

// Close closes the connections that no call uses. The others are closed after their calls.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.clients {
		client.Close()
	}
}

// Do sends a command whose key is its first argument, and returns its reply.
func (c *Cluster) Do(ctx context.Context, args ...any) Reply {
	replies, err := c.Pipeline(ctx, [][]any{args})
	if err != nil {
		return Reply{err: err}
	}
	return replies[0]
}

// Pipeline sends commands whose keys are their first arguments, those of one slot in order, and returns their
// replies. The error is a connection's: then any of them may have been executed.
func (c *Cluster) Pipeline(ctx context.Context, commands [][]any) ([]Reply, error) {
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	replies, rest := make([]Reply, len(commands)), make([]int, len(commands))
	for i := range rest {
		rest[i] = i
	}
	for moves := 0; len(rest) > 0; moves++ {
		of := make(map[*Client][]int)
		for _, i := range rest {
			client, err := c.owner(commands[i])
			if err != nil {
				return nil, err
			}
			of[client] = append(of[client], i)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex // of failed
		var failed error
		for client, of := range of {
			wg.Go(func() {
				part := make([][]any, len(of))
				for n, i := range of {
					part[n] = commands[i]
				}
				got, err := client.Pipeline(ctx, part)
				if err != nil {
					c.fails(client)
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				for n, i := range of {
					replies[i] = got[n]
				}
			})
		}
		wg.Wait()
		if failed != nil {
			return nil, failed
		}
		rest = rest[:0]
		for client, of := range of {
			for _, i := range of {
				if c.learn(client, replies[i].err) {
					rest = append(rest, i)
				}
			}
		}
		slices.Sort(rest)
		if len(rest) > 0 && !c.pause(ctx, moves) {
			for _, i := range rest {
				replies[i].err = Error("TRYAGAIN " + replies[i].err.Error())
			}
			break
		}
	}
	return replies, nil
}

// With is Client.With at the leader of a key's slot. use may be called again if it has failed with MOVED.
func (c *Cluster) With(ctx context.Context, key string, use func(*Conn) error) error {
	if err := c.look(ctx); err != nil {
		return err
	}
	for moves := 0; ; moves++ {
		client, err := c.owner([]any{"", key})
		if err != nil {
			return err
		}
		if err = client.With(ctx, use); err != nil && !IsReply(err) {
			c.fails(client)
		}
		switch {
		case !c.learn(client, err):
			return err
		case !c.pause(ctx, moves):
			return Error("TRYAGAIN " + err.Error())
		}
	}
}

// pause waits before a command follows MOVED again, and reports false if it has done so often enough. Then
// the nodes are asked for the shards.
func (c *Cluster) pause(ctx context.Context, moves int) bool {
	if moves < maxMoves {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(moves) * movePause):
		}
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
	return false
}

// Any sends a command that has no key to one node after the other, until one answers. It must change nothing.
func (c *Cluster) Any(ctx context.Context, args ...any) (r Reply) {
	if err := c.look(ctx); err != nil {
		return Reply{err: err}
	}
	c.mu.Lock()
	nodes := slices.Clone(c.nodes)
	c.mu.Unlock()
	for _, addr := range slices.Backward(nodes) { // the last one has told of the shards
		client, err := c.at(addr)
		if err != nil {
			return Reply{err: err}
		}
		if r = client.quick(ctx, args...); r.err == nil || IsReply(r.err) {
			break
		}
		c.fails(client)
	}
	return r
}

// Each sends a command to the leader of each shard, as far as they are known, and returns their replies.
func (c *Cluster) Each(ctx context.Context, args ...any) (replies []Reply, err error) {
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	leaders := make(map[string]bool)
	for _, addr := range c.owners {
		leaders[addr] = true
	}
	c.mu.Unlock()
	if delete(leaders, ""); len(leaders) == 0 {
		return []Reply{c.Any(ctx, args...)}, nil
	}
	for _, addr := range slices.Sorted(maps.Keys(leaders)) {
		client, err := c.at(addr)
		if err != nil {
			return nil, err
		}
		replies = append(replies, client.quick(ctx, args...))
	}
	return replies, nil
}

// at returns the client of a node.
func (c *Cluster) at(addr string) (client *Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client = c.clients[addr]; client == nil {
		if client, err = c.login.Client(addr, c.timeout); err == nil {
			client.pingTime, c.clients[addr] = askTime, client
		}
	}
	return client, err
}

// owner returns the client of the node that has a command's key, as far as that is known.
func (c *Cluster) owner(command []any) (*Client, error) {
	c.mu.Lock()
	addr := c.nodes[0]
	if len(command) > 1 && !c.alone {
		if owner := c.owners[store.Slot([]byte(text(command[1])))]; owner != "" {
			addr = owner
		}
	}
	c.mu.Unlock()
	return c.at(addr)
}

// look finds out who has which slot, if that is in doubt: it asks one node after the other.
func (c *Cluster) look(ctx context.Context) (err error) {
	c.mu.Lock()
	nodes := slices.Clone(c.nodes)
	stale := c.stale
	c.mu.Unlock()
	if !stale {
		return nil
	}
	for i, addr := range nodes {
		var client *Client
		if client, err = c.at(addr); err != nil {
			return err
		}
		var shards []Shard
		if shards, err = client.Shards(ctx); err == nil || IsReply(err) && !IsTransient(err) {
			c.set(shards, addr, slices.Concat(nodes[i+1:], nodes[:i]))
			return nil
		}
	}
	return err
}

// set notes which shards a node has told of: none if it is in no cluster. That node is asked last the next
// time, since it may be wrong about who leads.
func (c *Cluster) set(shards []Shard, asked string, others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.alone = false, len(shards) == 0 && len(others) == 0
	clear(c.owners[:])
	known := make(map[string]bool)
	for _, s := range shards {
		for _, n := range s.Nodes {
			known[n.Addr] = true
			if !n.Leads || !n.Healthy {
				continue
			}
			for _, r := range s.Slots {
				for slot := max(r[0], 0); slot <= min(r[1], maxSlot); slot++ {
					c.owners[slot] = n.Addr
				}
			}
		}
	}
	if len(known) == 0 {
		return
	}
	delete(known, asked)
	c.nodes = slices.DeleteFunc(others, func(addr string) bool { return !known[addr] })
	for _, addr := range slices.Sorted(maps.Keys(known)) {
		if !slices.Contains(c.nodes, addr) {
			c.nodes = append(c.nodes, addr)
		}
	}
	c.nodes = append(c.nodes, asked)
}

// fails notes that a node did not answer: others may lead its shard.
func (c *Cluster) fails(client *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = !c.alone
	if i := slices.Index(c.nodes, client.addr); i >= 0 {
		c.nodes = append(slices.Delete(c.nodes, i, i+1), client.addr)
	}
}

// learn notes what an error says about who has a slot, and reports whether the command goes to another node.
func (c *Cluster) learn(from *Client, err error) bool {
	if err == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if IsTransient(err) { // its shard may have another leader meanwhile
		c.stale = !c.alone
		return false
	}
	var reply Error
	if !errors.As(err, &reply) {
		return false
	}
	words := strings.Fields(string(reply))
	if len(words) != 3 || words[0] != "MOVED" {
		return false
	}
	slot, err := strconv.ParseUint(words[1], 10, 14)
	colon := strings.LastIndexByte(words[2], ':') // an IPv6 address stands without brackets
	if err != nil || colon < 0 {
		return false
	}
	c.alone, c.owners[slot] = false, from.reach(strings.Trim(words[2][:colon], "[]"), words[2][colon+1:])
	return true
}
