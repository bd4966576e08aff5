package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// servers are the nodes that hold the same counters.
type servers struct {
	all       []*process.Process
	watch     []*exec.Cmd     // sentinels
	ask       []*redis.Client // of these
	dir       string          // of the sentinels
	clients   []*redis.Client
	shards    int                    // of a cluster; 0: there is one leader, or one whom the sentinels name
	increment func(key string) []any // the command that counts

	mu     sync.Mutex
	slots  [tags]int64 // of each hash tag, in a cluster
	owners [tags]int   // whom clients ask
	asked  time.Time   // when a cluster was asked for its slots
	turn   int         // who was
}

// patience is how long a client waits for one answer, and startTime bounds how long servers take
// to find each other.
const (
	patience  = time.Second
	startTime = 3 * time.Minute
)

func (s *servers) add(p *process.Process) {
	s.all = append(s.all, p)
	s.clients = append(s.clients, redis.NewClient(&redis.Options{Addr: p.Address, MaxRetries: -1, DialerRetries: 1, DialTimeout: patience,
		ReadTimeout: patience, PoolSize: 1000, DisableIdentity: true}))
}

// close ends all.
func (s *servers) close() {
	for _, c := range s.watch {
		_ = c.Process.Kill() // it may be gone
		_ = c.Wait()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
	for _, c := range s.ask {
		c.Close()
	}
	for i, p := range s.all {
		s.clients[i].Close()
		if err := p.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// ownerOf returns whom a client asks for a counter.
func (s *servers) ownerOf(tag int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owners[tag]
}

// failed finds out whom to ask when a question was not answered, and waits a moment: the next server; or the one that
// a sentinel names; or in a cluster the one that the answer names, or else what any of the servers says.
func (s *servers) failed(ctx context.Context, tag, at int, err error) {
	if s.shards == 0 {
		process.Sleep(ctx, 5*time.Millisecond)
		other := s.other(ctx, at)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.owners[tag] == at {
			for i := range s.owners {
				s.owners[i] = other
			}
		}
		return
	}
	if address, ok := strings.CutPrefix(err.Error(), fmt.Sprintf("MOVED %d ", s.slots[tag])); ok {
		if i := s.place(address); i >= 0 && i != at {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.owners[tag] = i
			return
		}
	}
	process.Sleep(ctx, 5*time.Millisecond)
	s.mu.Lock()
	again := time.Since(s.asked) < 50*time.Millisecond // another client has asked
	if !again {
		s.asked, s.turn = time.Now(), (s.turn+1)%len(s.all)
	}
	from := s.turn
	s.mu.Unlock()
	if !again {
		_ = s.learn(ctx, from) // the next one may know
	}
}

// learn asks a server of a cluster who leads which slots.
func (s *servers) learn(ctx context.Context, from int) error {
	ranges, err := s.clients[from].ClusterSlots(ctx).Result()
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, slot := range s.slots {
		for _, r := range ranges {
			if int(slot) < r.Start || int(slot) > r.End || len(r.Nodes) == 0 {
				continue
			}
			if i := s.place(r.Nodes[0].Addr); i >= 0 {
				s.owners[tag] = i
			}
		}
	}
	return err
}

// place is where a server is in the list, -1 if it is not.
func (s *servers) place(address string) int {
	return slices.IndexFunc(s.all, func(p *process.Process) bool { return p.Address == address })
}

// other returns the next server, or the one that a sentinel names.
func (s *servers) other(ctx context.Context, at int) int {
	if len(s.ask) == 0 {
		return (at + 1) % len(s.all)
	}
	for _, c := range s.ask {
		address, err := c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m").StringSlice()
		for i := range s.all {
			if err == nil && s.all[i].Address == address[0]+":"+address[1] {
				return i
			}
		}
	}
	return at
}

// role is what a server says of itself.
type role struct {
	leads     bool
	replicas  int    // of one that leads: how many receive what it does
	leader    string // of another: HOST:PORT
	connected bool   // it has the leader's data and receives what comes
}

// readRole reads the answer to ROLE.
func readRole(reply []any) (r role) {
	if len(reply) < 3 {
		return r
	}
	if list, ok := reply[2].([]any); ok && reply[0] == "master" {
		return role{leads: true, replicas: len(list)}
	}
	if len(reply) >= 5 && reply[0] == "slave" {
		r = role{leader: fmt.Sprintf("%v:%v", reply[1], reply[2]), connected: reply[3] == "connected"}
	}
	return r
}

// group is a leader and the servers that follow it, by their places.
type group struct {
	leader    int
	followers []int
}

// settled waits until as many lead as should, the others follow them with all that they have, and the sentinels or the
// nodes of a cluster find that everybody is well.
func (s *servers) settled(ctx context.Context) []group {
	for end := time.Now().Add(startTime); ; process.Sleep(ctx, 50*time.Millisecond) {
		groups, err := s.look(ctx)
		if err == nil {
			return groups
		}
		if time.Now().After(end) || ctx.Err() != nil {
			process.Check(errors.Join(err, ctx.Err()))
		}
	}
}

// look returns the groups, or what is not well yet.
func (s *servers) look(ctx context.Context) (groups []group, err error) {
	var roles []role
	for i, c := range s.clients {
		reply, err := c.Do(ctx, "ROLE").Slice()
		if err != nil {
			return nil, err
		}
		roles = append(roles, readRole(reply))
		if roles[i].leads {
			groups = append(groups, group{leader: i})
		}
	}
	shards := max(1, s.shards)
	if len(groups) != shards {
		return nil, fmt.Errorf("%d servers lead", len(groups))
	}
	for i, r := range roles {
		if r.leads {
			continue
		}
		of := slices.IndexFunc(groups, func(g group) bool { return s.all[g.leader].Address == r.leader })
		if of < 0 || !r.connected {
			return nil, fmt.Errorf("a follower does not follow: %+v", r)
		}
		groups[of].followers = append(groups[of].followers, i)
	}
	for _, g := range groups {
		if n := len(s.all)/shards - 1; len(g.followers) != n || roles[g.leader].replicas != n {
			return nil, errors.New("a leader lacks followers")
		}
	}
	for _, c := range s.ask {
		if err := agrees(ctx, c, s.all[groups[0].leader].Address, len(s.all)-1, len(s.ask)-1); err != nil {
			return nil, err
		}
	}
	return groups, s.clusterAgrees(ctx, groups)
}

// agrees tells whether a sentinel knows the leader and that all is well.
func agrees(ctx context.Context, c *redis.Client, address string, replicas, sentinels int) error {
	m, err := c.Do(ctx, "SENTINEL", "MASTER", "m").Slice()
	if err != nil {
		return err
	}
	of := fields(m)
	if of["ip"]+":"+of["port"] != address || of["flags"] != "master" || of["num-slaves"] != strconv.Itoa(replicas) ||
		of["num-other-sentinels"] != strconv.Itoa(sentinels) {
		return fmt.Errorf("a sentinel knows %s:%s as %s, with %s replicas and %s other sentinels", of["ip"], of["port"], of["flags"],
			of["num-slaves"], of["num-other-sentinels"])
	}
	list, err := c.Do(ctx, "SENTINEL", "REPLICAS", "m").Slice()
	if err != nil {
		return err
	}
	for _, r := range list {
		r, _ := r.([]any)
		if of := fields(r); of["flags"] != "slave" || of["master-link-status"] != "ok" || of["master-host"]+":"+of["master-port"] != address {
			return fmt.Errorf("a sentinel knows the replica %s as %s, its link as %s", of["name"], of["flags"], of["master-link-status"])
		}
	}
	return nil
}

// fields reads names and values that follow each other.
func fields(reply []any) map[string]string {
	of := make(map[string]string)
	for i := 0; i+1 < len(reply); i += 2 {
		of[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
	}
	return of
}

// sentinels starts a redis-server with two replicas, and three sentinels. A sentinel finds a server down after the same time
// as an fbfkv does.
func (o *options) sentinels(more ...string) func(ctx context.Context, s *servers) {
	return func(ctx context.Context, s *servers) {
		s.increment = incr
		var host, port string
		for i := range 3 {
			// A replica need not wait for others before it is sent what it lacks.
			args := append([]string{"--appendfsync", "always", "--repl-diskless-sync-delay", "0"}, more...)
			s.add(process.Must(process.Redis(ctx, o.redis, args...)))
			if i == 0 {
				host, port, _ = net.SplitHostPort(s.all[0].Address)
				continue
			}
			process.Check(s.clients[i].Do(ctx, "REPLICAOF", host, port).Err())
			process.Check(s.clients[i].Do(ctx, "CONFIG", "REWRITE").Err()) // a sentinel does both, too
		}
		s.dir = process.Must(os.MkdirTemp("", "fbfkv-sentinels-"))
		for i := range 3 {
			own, dir := process.FreePort(), fmt.Sprintf("%s/%d", s.dir, i)
			process.Check(os.Mkdir(dir, 0o700))
			text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor m %s %s 2\nsentinel down-after-milliseconds "+
				"m 1000\nsentinel failover-timeout m 5000\nsentinel parallel-syncs m 1\n", own, dir, host, port)
			process.Check(os.WriteFile(dir+"/sentinel.conf", []byte(text), 0o600))
			c := exec.Command(o.redis, dir+"/sentinel.conf", "--sentinel")
			process.Check(c.Start())
			s.watch = append(s.watch, c)
			s.ask = append(s.ask, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + own, MaxRetries: -1, ReadTimeout: patience,
				DisableIdentity: true, Protocol: 2}))
		}
	}
}
