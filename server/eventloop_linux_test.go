package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/store"
	"golang.org/x/sys/unix"
)

// executing returns what makes a server's operations pass through execute.
func executing(execute func(*store.Store, *store.Batch)) func(*Server) {
	return func(s *Server) {
		s.commands.Execute = func(b *store.Batch) { execute(s.store, b) }
	}
}

// serveFunc runs a server, with a store of its own, that adjust may change before
// it begins.
type serveFunc func(t testing.TB, adjust func(*Server), settings ...string) *running

// overBoth runs a test over plain TCP and over TLS.
func overBoth(t *testing.T, test func(*testing.T, serveFunc)) {
	t.Run("TCP", func(t *testing.T) { test(t, serveLoop) })
	t.Run("TLS", func(t *testing.T) { test(t, serveTLSLoop) })
}

// serveLoop is a serveFunc over plain TCP.
func serveLoop(t testing.TB, adjust func(*Server), settings ...string) *running {
	t.Helper()
	return serveWire(t, false, adjust, settings...)
}

// serveTLSLoop is a serveFunc over TLS.
func serveTLSLoop(t testing.TB, adjust func(*Server), settings ...string) *running {
	t.Helper()
	return serveWire(t, true, adjust, settings...)
}

// serveWire is both.
func serveWire(t testing.TB, secure bool, adjust func(*Server), settings ...string) *running {
	t.Helper()
	st, err := store.Open(store.Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	config := freePort(t, settings...)
	listeners, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &running{
		Server:  New(Options{Store: st, Config: config, Logger: quiet}),
		address: listeners[0].Addr().String(),
		served:  make(chan error, 1),
	}
	if secure {
		listeners[0], s.secure = overTLS(t, listeners[0])
	}
	if adjust != nil {
		adjust(s.Server)
	}
	s.addGate(st)
	go func() { s.served <- s.Serve(listeners...) }()
	t.Cleanup(func() {
		s.Stop(true)
		s.wait(t)
	})
	return s
}

func TestTCPKeepalive(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil, "tcp-keepalive", "30")
		s.dial(t).expect("+PONG", "PING")
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.conns {
			p := c.line.(*polled)
			p.mu.Lock()
			idle, err := unix.GetsockoptInt(p.fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
			every, _ := unix.GetsockoptInt(p.fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
			if err != nil || idle != 30 || every != 10 {
				t.Errorf("keepalive after %d s, every %d s, %v", idle, every, err)
			}
			p.mu.Unlock()
		}
	})
}

// gateKey is the key whose writes wait in the gate, turn in hand.
const gateKey = "the gate"

// addGate lets together hold up a worker.
func (s *running) addGate(st *store.Store) {
	execute := s.commands.Execute
	if execute == nil {
		execute = st.Execute
	}
	s.entered = make(chan chan struct{})
	s.commands.Execute = func(b *store.Batch) {
		if string(b.Ops[0].Key) != gateKey {
			execute(b)
			return
		}
		release := make(chan struct{})
		s.entered <- release
		<-release
		st.Execute(b)
	}
}

// eventLoop returns the server's, once it runs.
func (s *running) eventLoop(t testing.TB) (l *eventLoop) {
	t.Helper()
	eventually(t, "the event loop runs", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		l = s.loop
		return l != nil
	})
	return l
}

// together holds up all workers while each client sends its requests, so that one of
// them takes all at once.
func (s *running) together(t testing.TB, clients []*client, requests func(i int) string) {
	t.Helper()
	held := map[*client]chan struct{}{}
	for range s.eventLoop(t).turns.Load() {
		c := s.dial(t)
		c.send(frame("INCR", gateKey))
		held[c] = <-s.entered
	}
	for i, c := range clients {
		c.send(requests(i))
	}
	eventually(t, "the server's system has it all", func() bool {
		return !slices.ContainsFunc(clients, func(c *client) bool { return c.underway() > 0 })
	})
	for c, release := range held {
		close(release)
		c.reply()
	}
}

// underway is how many bytes the client has sent that the other end did not
// acknowledge.
func (c *client) underway() (n int) {
	raw, err := c.socket().(*net.TCPConn).SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// TestConnectionsShareCommits: what many clients sent is executed as one batch.
func TestConnectionsShareCommits(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		var batches, operations atomic.Int64
		s := serve(t, executing(func(st *store.Store, b *store.Batch) {
			batches.Add(1)
			operations.Add(int64(len(b.Ops)))
			st.Execute(b)
		}), "appendfsync", "always")
		const clients = 40
		list := make([]*client, clients)
		for i := range list {
			list[i] = s.dial(t)
			list[i].expect("+PONG", "PING")
		}
		s.together(t, list, func(i int) string {
			return frame("CINCRBY", "k", fmt.Sprint("id-", i), "1") + frame("GET", fmt.Sprint("own-", i))
		})
		for _, c := range list {
			if got := c.reply(); !strings.HasPrefix(got, ":") {
				t.Errorf("reply %q", got)
			}
			c.expectReply("$-1")
		}
		if batches.Load() > 2 || operations.Load() != 2*clients { // the first event may be taken alone
			t.Errorf("%d operations in %d batches", operations.Load(), batches.Load())
		}
		list[0].expect(fmt.Sprint(":", clients), "CGET", "k")
	})
}

// TestRoundsKeepTransactionsWhole: transactions of many connections, in the same
// rounds, are atomic: two counters that always change together are never seen
// apart.
func TestRoundsKeepTransactionsWhole(t *testing.T) {
	s := serveLoop(t, nil, "appendfsync", "everysec")
	const clients = 8
	errs := make(chan error, clients)
	for i := range clients {
		c := s.dial(t)
		go func() {
			for n := range 200 {
				c.Write([]byte("MULTI\r\nINCR a\r\nECHO x\r\nINCR b\r\nEXEC\r\nMGET a b\r\n"))
				for range 4 {
					c.reply()
				}
				exec, get := c.reply(), c.reply()
				var a, b, x, y int
				if _, err := fmt.Sscanf(exec, "[:%d x :%d]", &a, &b); err != nil || a != b {
					errs <- fmt.Errorf("client %d, transaction %d: %s", i, n, exec)
					return
				}
				if _, err := fmt.Sscanf(get, "[%d %d]", &x, &y); err != nil || x != y || x < a {
					errs <- fmt.Errorf("client %d, transaction %d: %s after %s", i, n, get, exec)
					return
				}
			}
			errs <- nil
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s.dial(t).expect(fmt.Sprint(clients*200), "GET", "b")
}

// TestBlockedWorkersPassTheirTurn: while commits wait for the disk, other
// connections are served.
func TestBlockedWorkersPassTheirTurn(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	s := serveLoop(t, executing(func(st *store.Store, b *store.Batch) {
		if string(b.Ops[0].Key) == "slow" && b.Ops[0].Kind.Write() {
			b.OnBlock()
			entered <- struct{}{}
			<-release
		}
		st.Execute(b)
	}))
	other := s.dial(t)
	other.do("PING")            // that it can be written to is no event any more that a slow one shares
	slow := make([]*client, 20) // more than there are idle workers
	for i := range slow {
		slow[i] = s.dial(t)
		slow[i].send(frame("CINCRBY", "slow", fmt.Sprint(i), "1"))
		<-entered
		other.expect(fmt.Sprint(":", i+1), "CINCRBY", "fast", fmt.Sprint(i), "1")
	}
	close(release)
	for _, c := range slow {
		if got := c.reply(); !strings.HasPrefix(got, ":") {
			t.Errorf("reply %q", got)
		}
	}
	other.expect(":20", "CGET", "slow")
}

// TestSlowCommandsKeepNobodyWaiting: a command that must run by itself runs
// beside the loop, in its place among its own connection's requests.
func TestSlowCommandsKeepNobodyWaiting(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		entered, release := make(chan struct{}), make(chan struct{})
		s := serve(t, func(s *Server) {
			s.commands.Sessions = func() []*commands.Session {
				close(entered)
				<-release
				return nil
			}
		})
		slow, other := s.dial(t), s.dial(t)
		slow.send(frame("INCR", "k") + frame("CLIENT", "LIST") + frame("INCR", "k"))
		<-entered
		slow.expectReply(":1")
		for i := range 100 {
			other.expect(fmt.Sprint(":", i+1), "INCR", "other")
		}
		other.expect("1", "GET", "k")
		close(release)
		slow.expectReply("")
		slow.expectReply(":2")
	})
}

// TestDeafClientsDelayNobody: one that does not read its replies is not read from;
// the others notice nothing, and it gets every reply once it reads.
func TestDeafClientsDelayNobody(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil)
		deaf, other := s.dial(t), s.dial(t)
		const requests = 20000
		text := strings.Repeat("x", 1000)
		go func() {
			for i := range requests {
				if _, err := deaf.Write([]byte(frame("ECHO", fmt.Sprint(i, text)))); err != nil {
					return
				}
			}
		}()
		s.waitUntilStuck(t)
		for i := range 300 {
			other.expect(fmt.Sprint(":", i+1), "INCR", "k")
		}
		eventually(t, "CLIENT LIST shows that replies wait for one client", func() bool {
			list := other.do("CLIENT", "LIST")
			return strings.Count(list, " obl=") == 2 && strings.Count(list, " obl=0 ") == 1
		})
		for i := range requests {
			if got := deaf.reply(); got != fmt.Sprint(i, text) {
				t.Fatalf("reply %d: %.40q", i, got)
			}
		}
	})
}

// TestGreedyClientsStarveNobody: clients that always have more than a round takes
// leave room for one that sends a single request at a time.
func TestGreedyClientsStarveNobody(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil, "appendfsync", "everysec")
		request := []byte(strings.Repeat(frame("PING"), 4*maxRound))
		for range 4 {
			c := s.dial(t)
			go func() {
				for {
					if _, err := c.Write(request); err != nil {
						return
					}
				}
			}()
			go io.Copy(io.Discard, c.Conn)
		}
		other := s.dial(t)
		for i := range 50 {
			other.expect(fmt.Sprint(":", i+1), "INCR", "k")
		}
	})
}

// TestHalfClosedClientsAreAnswered: a client may say all it has to say, and then
// read.
func TestHalfClosedClientsAreAnswered(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil)
		c := s.dial(t)
		const n = 3000
		var b strings.Builder
		for i := range n {
			b.WriteString(frame("CINCRBY", "k", fmt.Sprint(i), "1"))
		}
		c.send(b.String() + "*3\r\n$4\r\nINCR") // and a piece of a request
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			c.expectReply(fmt.Sprint(":", i+1))
		}
		c.expectReply("EOF")
		eventually(t, "the client is gone", func() bool { return len(s.sessions()) == 0 })
	})
}

// TestClientsThatVanishLeaveNothing: connections that end in the middle of a
// pipeline, of a request or of a reply.
func TestClientsThatVanishLeaveNothing(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil)
		other := s.dial(t)
		other.expect("+PONG", "PING")
		files := openFiles(t)
		for i := range 300 {
			c := s.dial(t)
			switch i % 3 {
			case 0:
				c.send(strings.Repeat(frame("INCR", "k"), 100) + "*2\r\n$4\r\nINC")
			case 1:
				c.send(strings.Repeat(frame("ECHO", strings.Repeat("x", 10000)), 100))
			case 2:
				c.send(frame("CLIENT", "LIST") + "*1\r\n")
			}
			if i%2 == 0 {
				c.socket().(*net.TCPConn).SetLinger(0) // a reset instead of an orderly end
			}
			c.Close()
			if i%10 == 0 {
				other.expect("+PONG", "PING")
			}
		}
		eventually(t, "the clients are gone", func() bool { return len(s.sessions()) == 1 })
		eventually(t, "their sockets are closed", func() bool { return openFiles(t) <= files })
	})
}

// openFiles returns how many file descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestPanicHurtsNobodyElseInTheRound has a bug in the middle of a round.
func TestPanicHurtsNobodyElseInTheRound(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil)
		clients := make([]*client, 9)
		for i := range clients {
			clients[i] = s.dial(t)
			clients[i].expect("+PONG", "PING")
		}
		var id int64
		if _, err := fmt.Sscanf(clients[4].do("CLIENT", "ID"), ":%d", &id); err != nil {
			t.Fatal(err)
		}
		s.together(t, clients, func(i int) string {
			if i == 4 {
				s.mu.Lock()
				s.conns[id].pipeline = nil
				s.mu.Unlock()
			}
			return frame("CINCRBY", "k", fmt.Sprint("id-", i), "1")
		})
		for i, c := range clients {
			got := c.reply()
			if strings.HasPrefix(got, ":") != (i != 4) {
				t.Errorf("client %d: %q", i, got)
			}
		}
		clients[0].expect("8", "GET", "k")
	})
}

// TestIdleClientsAreCheap: thousands of idle connections cost little memory, and
// one among them is served as if it were alone.
func TestIdleClientsAreCheap(t *testing.T) {
	clients := 5000
	if testing.Short() {
		clients = 1000
	}
	s := serveLoop(t, nil)
	other := s.dial(t)
	other.expect("+PONG", "PING")
	var before, after runtime.MemStats
	idle := make([]net.Conn, clients)
	goroutines := runtime.NumGoroutine()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range idle {
		nc, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		idle[i] = nc
		reply := make([]byte, 7)
		if _, err := nc.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(nc, reply); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// The client's own end of each is in here too.
	more := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	each := more / int64(clients)
	t.Logf("%d bytes each", each)
	if each > 3000 {
		t.Errorf("an idle client costs %d bytes", each)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 50 {
		t.Errorf("%d goroutines more for idle clients", n)
	}
	for i := range 200 {
		other.expect(fmt.Sprint(":", i+1), "INCR", "k")
	}
}
