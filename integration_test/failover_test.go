package integration

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var failoverCount = flag.Int("failovers", 3, "how often TestFailovers takes the leader away, `times`")

// TestFailovers counts with every client for clusters side by side while the shard loses its
// leader again and again: killed, stopped in order, and frozen in turn. Each operation has an
// opid and is sent until it is answered. In the end every counter is the number of its
// operations, whose answers were 1 to n, and each opid that is sent again gets the answer
// that it got before.
func TestFailovers(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 3, "--cluster-node-timeout", "2000") // on a busy machine: no failovers but ours
	c := leaderOf(t, all...).dial()
	c.want("+OK", "CTABLE", "ALTER", "default", "WINDOW", "1d") // all are sent again at the end
	var loads []*clientLoad
	var starting sync.WaitGroup
	for _, start := range clientLoads(t) {
		l := &clientLoad{name: start.name}
		loads = append(loads, l)
		starting.Go(func() { start.run(t, all, l) })
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	progress := func() {
		t.Helper()
		begun, from := time.Now(), map[*clientLoad]int{}
		for _, l := range loads {
			from[l] = len(l.answered())
		}
		for _, l := range loads {
			eventually(t, 2*patience, l.name+" goes on counting", func() bool { return len(l.answered()) > from[l]+5 })
			t.Logf("%-16s counts after %v", l.name, time.Since(begun).Round(time.Millisecond))
		}
	}
	progress()
	for i := range *failoverCount {
		leader := leaderOf(t, all...)
		rest := without(all, leader)
		switch i % 3 {
		case 0:
			t.Logf("%s is killed", leader.address())
			leader.kill()
			progress()
			leader.start()
		case 1:
			t.Logf("%s is stopped", leader.address())
			leader.restart()
			progress()
		case 2:
			t.Logf("%s is frozen", leader.address())
			leader.cmd.Process.Signal(syscall.SIGSTOP)
			leaderOf(t, rest...)
			progress()
			leader.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	progress()
	for _, l := range loads {
		l.end()
	}
	for _, l := range loads {
		l.check(t, leaderOf(t, all...))
	}
}

// clientLoad is a client that counts until it is ended, and what was answered.
type clientLoad struct {
	name string
	end  func() // returns when nothing is under way any more

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

// answered returns what was answered so far.
func (l *clientLoad) answered() []clientOp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.done)
}

// check holds the counters of the leader to what the client was answered.
func (l *clientLoad) check(t *testing.T, leader *server) {
	t.Helper()
	c := leader.dial()
	values := map[string]map[string]bool{}
	for again := range slices.Chunk(l.done, 500) {
		var sent strings.Builder
		for _, op := range again {
			sent.WriteString(frame("CINCRBY", op.key, op.opid, "1"))
		}
		c.send(sent.String())
		for _, op := range again {
			if got := c.reply(); got != ":"+op.value {
				t.Errorf("%s: %s %s was answered %s, and is answered %s again", l.name, op.key, op.opid, op.value, got)
			}
		}
	}
	for _, op := range l.done {
		if values[op.key] == nil {
			values[op.key] = map[string]bool{}
		}
		values[op.key][op.value] = true
	}
	for key, seen := range values {
		for i := range seen {
			if n, err := strconv.Atoi(i); err != nil || n < 1 || n > len(seen) {
				t.Errorf("%s: one of %d operations on %s was answered %s", l.name, len(seen), key, i)
			}
		}
		c.want(":"+strconv.Itoa(len(seen)), "CGET", key)
	}
	t.Logf("%-16s %d operations", l.name, len(l.done))
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
		starts = append(starts, loadStart{"package " + p.name, func(t *testing.T, all []*server, l *clientLoad) {
			l.drive(t, startDriver(t, p.command(t), strings.Join(addresses(all...), ","), 2*time.Second, 2*patience))
		}})
	}
	return append(starts, loadStart{"plain", func(t *testing.T, all []*server, l *clientLoad) { l.follow(t, all) }})
}

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
			text := p.out.String()[at:]
			whole := strings.LastIndexByte(text, '\n') + 1
			at += whole
			for line := range strings.Lines(text[:whole]) {
				if f := strings.Fields(line); len(f) == 4 && f[0] == "counted" {
					l.note(f[1], f[2], f[3])
				}
			}
		}
	}()
	l.end = func() {
		p.end()
		close(stop)
		<-read
		if n := strconv.Itoa(len(l.done)); n != p.applied {
			p.t.Errorf("%s: %s operations were answered, it says %s", l.name, n, p.applied)
		}
	}
}

// drive counts with a package for applications.
func (l *clientLoad) drive(t *testing.T, d *driver) {
	var enough atomic.Bool
	var workers sync.WaitGroup
	for i := range 2 {
		workers.Go(func() {
			key := fmt.Sprint(strings.ReplaceAll(l.name, " ", ":"), ":", i)
			for !enough.Load() {
				op := (<-d.begin("newop", key, 1)).Op
				a := <-d.begin("do", "", 0, op)
				if f := strings.Fields(op); len(f) == 4 && a.Value != "" {
					l.note(key, f[2], a.Value)
				} else {
					t.Errorf("%s: %q: %+v", l.name, op, a)
					return
				}
			}
		})
	}
	l.end = func() { enough.Store(true); workers.Wait() }
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
			opid := "op-" + strconv.Itoa(n)
			for answered := false; !answered; {
				if conn == nil {
					c, err := net.DialTimeout("tcp", nodes[at%len(nodes)], time.Second)
					if err != nil {
						at++
						time.Sleep(10 * time.Millisecond)
						continue
					}
					conn = &scriptConn{Conn: c, r: bufio.NewReader(c)}
				}
				conn.SetDeadline(time.Now().Add(2 * time.Second))
				fmt.Fprint(conn, frame("CINCRBY", "plain", opid, "1"))
				r, err := readTree(conn.r)
				words := strings.Fields(r.text)
				switch {
				case err == nil && r.kind == ':':
					l.note("plain", opid, r.text)
					answered = true
				case err == nil && slices.Contains([]string{"TRYAGAIN", "CLUSTERDOWN"}, words[0]):
				case err == nil && words[0] == "MOVED":
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
