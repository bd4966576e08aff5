package integration

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestFailovers counts with every client for clusters side by side while a leader is killed,
// another one freezes, and other servers take the place of a shard's nodes, its leader among them.
// Each operation has an opid and is sent until it is answered. In the end every counter is the
// number of its operations, whose answers were 1 to n, and each opid that is sent again gets the
// answer that it got before. More faults, and more at once, are simulated (internal/sim); this is
// about clients and signals.
func TestFailovers(t *testing.T) {
	t.Parallel()
	f := startFailovers(t, 6)
	f.kill()
	f.freeze()
	f.renew()
	f.check()
	nodes := redisCLI(t, "--cluster", "check", f.all[0].address())
	if !strings.Contains(nodes, "[OK] All 16384 slots covered.") || strings.Contains(nodes, "WARNING") {
		t.Errorf("redis-cli --cluster check:\n%s", nodes)
	}
	if info := redisCLI(t, "--cluster", "info", f.all[0].address()); !strings.Contains(info,
		"in 2 masters.") {
		t.Errorf("redis-cli --cluster info:\n%s", info)
	}
	if call := redisCLI(t, "--cluster", "call", f.all[0].address(), "PING"); strings.Count(call,
		": PONG") != len(f.all) {
		t.Errorf("redis-cli --cluster call:\n%s", call)
	}
}

// failovers is a cluster, and all clients for clusters, which count in it.
type failovers struct {
	t      *testing.T
	all    []*server
	shards [][]*server
	loads  []*clientLoad
}

// startFailovers starts so many nodes, three for each shard, and the clients.
func startFailovers(t *testing.T, nodes int) *failovers {
	// on a busy machine: no failovers but ours
	f := &failovers{t: t, all: startCluster(t, nodes, "--cluster-node-timeout", "2000")}
	f.shards = byShard(t, f.all...)
	changeTables(t, f.all[0], "ALTER", "default", "WINDOW", "1d") // all are sent again at the end
	var starting sync.WaitGroup
	for _, start := range clientLoads(t) {
		l := &clientLoad{name: start.name}
		f.loads = append(f.loads, l)
		starting.Go(func() { start.run(t, f.all, l) })
	}
	starting.Wait()
	switch { // in a goroutine that has ended
	case t.Failed():
		t.FailNow()
	case t.Skipped():
		t.SkipNow()
	}
	f.progress()
	return f
}

// progress waits until each client goes on counting all that it has counted: so do all shards.
func (f *failovers) progress() {
	f.t.Helper()
	begun, from := time.Now(), map[*clientLoad]map[string]int{}
	for _, l := range f.loads {
		from[l] = l.perKey()
	}
	for _, l := range f.loads {
		eventually(f.t, 2*patience, l.name+" goes on counting", func() bool {
			now, more := l.perKey(), len(l.perKey()) > 0
			for key, n := range from[l] {
				more = more && now[key] > n+1
			}
			return more
		})
		f.t.Logf("%-16s counts after %v", l.name, time.Since(begun).Round(time.Millisecond))
	}
}

// kill kills the leader of the first shard.
func (f *failovers) kill() {
	leader := leaderOf(f.t, f.shards[0]...)
	f.t.Logf("%s is killed", leader.address())
	leader.kill()
	f.progress()
	leader.start()
}

// freeze stops the leader of the last shard with a signal, and lets it go on when another one leads.
func (f *failovers) freeze() {
	shard := f.shards[len(f.shards)-1]
	leader := leaderOf(f.t, shard...)
	f.t.Logf("%s is frozen", leader.address())
	leader.cmd.Process.Signal(syscall.SIGSTOP)
	leaderOf(f.t, without(shard, leader)...)
	f.progress()
	leader.cmd.Process.Signal(syscall.SIGCONT)
}

// renew puts other servers in the place of all nodes of a shard: clients must learn where it is now.
func (f *failovers) renew() {
	fresh := startNodes(f.t, len(f.shards[0]), "--cluster-node-timeout", "2000")
	for i, old := range f.shards[0] {
		operate(f.t, 0, "has caught up and votes", "replace", f.shards[1][0].address(), old.address(),
			fresh[i].address())
		if code := old.exitCode(); code != 0 {
			f.t.Errorf("the node that was replaced ends with %d:\n%s", code, old.log)
		}
		f.all = without(f.all, old)
	}
	f.all, f.shards[0] = append(f.all, fresh...), fresh
	f.progress()
}

// check ends the clients, and holds the counters to what they were answered.
func (f *failovers) check() {
	f.t.Helper()
	for _, l := range f.loads {
		l.end()
	}
	for _, l := range f.loads {
		l.check(f.t, f.all)
	}
}

// clientLoad is a client that counts until it is ended, and what was answered.
type clientLoad struct {
	name    string
	end     func() // returns when nothing is under way any more
	aborted bool   // of the last operation on each counter nothing is known

	mu   sync.Mutex
	done []clientOp
}

// clientOp is one operation that was answered.
type clientOp struct{ key, opid, value string }

func (l *clientLoad) note(key, opid, value string) {
	l.mu.Lock()
	l.done = append(l.done, clientOp{key, opid, value})
	l.mu.Unlock()
}

// perKey returns how many operations on each key were answered so far.
func (l *clientLoad) perKey() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, op := range l.done {
		n[op.key]++
	}
	return n
}

// check holds the counters of a cluster to what the client was answered.
func (l *clientLoad) check(t *testing.T, all []*server) {
	t.Helper()
	done := map[string][]clientOp{}
	for _, op := range l.done {
		done[op.key] = append(done[op.key], op)
	}
	for key, ops := range done {
		c := holderOf(t, key, all...).dial()
		seen := map[string]bool{}
		ask := func(ops []clientOp) (replies []string) {
			var sent strings.Builder
			for _, op := range ops {
				sent.WriteString(frame("CINCRBY", key, op.opid, "1"))
			}
			c.send(sent.String())
			for range ops {
				replies = append(replies, c.reply())
			}
			return replies
		}
		for again := range slices.Chunk(ops, 500) {
			replies := ask(again)
			// on a busy machine
			end := time.Now().Add(patience)
			for slices.ContainsFunc(replies, otherLeads) && time.Now().Before(end) {
				c.Close()
				c = holderOf(t, key, all...).dial()
				replies = ask(again)
			}
			for i, op := range again {
				if got := replies[i]; got != ":"+op.value {
					t.Errorf("%s: %s %s was answered %s, and is answered %s again", l.name, key, op.opid,
						op.value, got)
				}
				seen[op.value] = true
			}
		}
		for i := 1; i <= len(ops); i++ {
			if !seen[strconv.Itoa(i)] {
				t.Errorf("%s: none of %d operations on %s was answered %d", l.name, len(ops), key, i)
			}
		}
		if got := c.do("CGET", key); got != ":"+strconv.Itoa(len(ops)) &&
			!(l.aborted && got == ":"+strconv.Itoa(len(ops)+1)) {
			t.Errorf("%s: %d operations on %s were answered, and it is %s", l.name, len(ops), key, got)
		}
		c.Close()
	}
	t.Logf("%-16s %d operations on %d counters", l.name, len(l.done), len(done))
}

// otherLeads reports whether a reply says that the node that was asked does not lead the key's shard.
func otherLeads(reply string) bool {
	return slices.ContainsFunc([]string{"-MOVED ", "-TRYAGAIN ", "-CLUSTERDOWN "}, func(code string) bool {
		return strings.HasPrefix(reply, code)
	})
}

// loadStart starts a load.
type loadStart struct {
	name string
	run  func(t *testing.T, all []*server, l *clientLoad)
}

// clientLoads are all clients for clusters: the libraries, the packages for applications, and a
// client that knows nothing of clusters but MOVED.
func clientLoads(t *testing.T) (starts []loadStart) {
	for _, p := range clientPrograms {
		if !p.clusters {
			continue
		}
		proto := p.protocols[len(p.protocols)-1]
		starts = append(starts, loadStart{p.name, func(t *testing.T, all []*server, l *clientLoad) {
			program := startProgram(t, p.command(t), strings.Join(addresses(all...), ","), proto, p.name+":")
			l.readFrom(program)
		}})
	}
	for _, p := range packageDrivers {
		starts = append(starts,
			loadStart{"package " + p.name, func(t *testing.T, all []*server, l *clientLoad) {
				l.drive(t, startDriver(t, p.command(t), strings.Join(addresses(all...), ","), 2*time.Second,
					2*patience))
			}})
	}
	return append(starts,
		loadStart{"plain", func(t *testing.T, all []*server, l *clientLoad) { l.follow(t, all) }})
}

// counted is what a program prints of an operation; what the library prints may come before it, without
// the end of its line.
var counted = regexp.MustCompile(`counted (\S+) (\S+) (\d+)\n`)

// readFrom notes what a program prints.
func (l *clientLoad) readFrom(p *clientProgram) {
	stop, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		for at, over := 0, false; !over; time.Sleep(20 * time.Millisecond) {
			select {
			case <-stop:
				over = true // after one more look
			default:
			}
			text := p.out.from(at)
			whole := strings.LastIndexByte(text, '\n') + 1
			at += whole
			for _, f := range counted.FindAllStringSubmatch(text[:whole], -1) {
				l.note(f[1], f[2], f[3])
			}
		}
	}()
	l.end = func() {
		// Threads of redis-py have hung with the interpreter's lock in their hands: this is about servers.
		if l.aborted = l.name == "redis-py" && p.hangs(); !l.aborted {
			p.end()
		}
		close(stop)
		<-read
		if n := strconv.Itoa(len(l.done)); n != p.applied && !l.aborted {
			p.t.Errorf("%s: %s operations were answered, it says %s", l.name, n, p.applied)
		}
	}
}

// drive counts with a package for applications.
func (l *clientLoad) drive(t *testing.T, d *driver) {
	var enough atomic.Bool
	var workers sync.WaitGroup
	prefix := strings.ReplaceAll(l.name, " ", ":")
	for _, keys := range [][]string{{prefix + ":one"}, {prefix + ":1", prefix + ":2", prefix + ":3", prefix +
		":4"}} {
		workers.Go(func() {
			for ; !enough.Load(); time.Sleep(100 * time.Millisecond) { // others need the processor
				var ops []string
				for _, key := range keys {
					ops = append(ops, (<-d.begin("newop", key, 1)).Op)
				}
				var answers []driverAnswer
				if len(keys) == 1 {
					answers = append(answers, <-d.begin("do", "", 0, ops...))
				} else { // in one batch, over the shards
					answers = (<-d.begin("doall", "", 0, ops...)).Results
				}
				for i, op := range ops {
					if f := strings.Fields(op); len(f) == 4 && len(answers) == len(ops) &&
						answers[i].Value != "" {
						l.note(keys[i], f[2], answers[i].Value)
					} else {
						t.Errorf("%s: %q: %+v", l.name, op, answers)
						return
					}
				}
			}
		})
	}
	l.end = func() { enough.Store(true); workers.Wait() }
}

// TestThreadsReadTheirOwnAnswers: after a node was away for a moment, redis-py's cluster client of
// 4.3 hands a connection to two threads. The package for Python does not let it.
func TestThreadsReadTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 3)
	d := startDriver(t, withArgs(pythonScript("clients/python/driver.py"), "sync")(t),
		strings.Join(addresses(all...), ","), 2*time.Second, 2*patience)
	var enough atomic.Bool
	var threads sync.WaitGroup
	for i := range 16 {
		threads.Go(func() { // requests are under way when the server is killed
			for n := 1; !enough.Load(); n++ {
				if got := <-d.begin("add", fmt.Sprint("thread:", i), 1); got.Value != strconv.Itoa(n) {
					t.Errorf("thread %d: %+v, want %d", i, got, n)
					return
				}
			}
		})
	}
	for n := range 4 { // each time redis-py finds nobody for a moment, and does not give up
		leader := leaderOf(t, all...)
		leader.kill()
		time.Sleep(350 * time.Millisecond)
		leader.start()
		d.want(strconv.Itoa(n+1), "add", "another", 1)
	}
	enough.Store(true)
	threads.Wait()
	d.want("0", "shared", "", 0)
}

// follow counts with a client that goes where MOVED says, and elsewhere when a node does not
// answer.
func (l *clientLoad) follow(t *testing.T, all []*server) {
	var enough atomic.Bool
	ended := make(chan struct{})
	nodes := addresses(all...)
	go func() {
		defer close(ended)
		var conn *scriptConn
		at := 0
		for n := 0; !enough.Load(); n++ {
			time.Sleep(40 * time.Millisecond) // others need the processor
			key, opid := fmt.Sprint("plain:", n/5%4), "op-"+strconv.Itoa(n)
			for answered := false; !answered; {
				if conn == nil {
					c, err := net.DialTimeout("tcp", nodes[at%len(nodes)], time.Second) // or the next one
					if err != nil {
						at++
						time.Sleep(10 * time.Millisecond)
						continue
					}
					conn = &scriptConn{Conn: c, r: bufio.NewReader(c)}
				}
				conn.SetDeadline(time.Now().Add(2 * time.Second)) // else it is sent again
				fmt.Fprint(conn, frame("CINCRBY", key, opid, "1"))
				r, err := readTree(conn.r)
				words := strings.Fields(r.text)
				switch {
				case err == nil && r.kind == ':':
					l.note(key, opid, r.text)
					answered = true
				case err == nil && slices.Contains([]string{"TRYAGAIN", "CLUSTERDOWN"}, words[0]):
				case err == nil && words[0] == "MOVED":
					if !slices.Contains(nodes, words[2]) {
						nodes = append(nodes, words[2])
					}
					at = slices.Index(nodes, words[2])
					conn.Close()
					conn = nil
				case err == nil:
					t.Errorf("plain: %s", r)
					return
				default:
					at++
					conn.Close()
					conn = nil
				}
			}
		}
	}()
	l.end = func() { enough.Store(true); <-ended }
}
