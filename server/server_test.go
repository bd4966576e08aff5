package server

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestMaxClients(t *testing.T) {
	s := start(t, "maxclients", "2")
	a, b := s.dial(t), s.dial(t)
	a.expect("+PONG", "PING")
	b.expect("+PONG", "PING")
	over := s.dial(t)
	over.send(frame("PING"))
	over.expectReply("-ERR max number of clients reached")
	over.expectReply("EOF")
	a.Close()
	eventually(t, "a place is free", func() bool { return len(s.sessions()) == 1 })
	s.dial(t).expect("+PONG", "PING")
	if n := s.Figures().RejectedConnections; n != 1 {
		t.Errorf("%d connections rejected, want 1", n)
	}
}

// from is a listener whose clients seem to come from another machine.
type from struct {
	net.Listener
	ip net.IP
}

func (f from) Accept() (net.Conn, error) {
	nc, err := f.Listener.Accept()
	return remote{nc, f.ip}, err
}

type remote struct {
	net.Conn
	ip net.IP
}

func (r remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: r.ip, Port: 1} }

func TestProtectedMode(t *testing.T) {
	for _, tt := range []struct {
		ip, protected, password string
		served                  bool
	}{
		{"127.0.0.1", "yes", "", true},
		{"::1", "yes", "", true},
		{"10.1.2.3", "yes", "", false},
		{"10.1.2.3", "yes", "secret", true},
		{"10.1.2.3", "no", "", true},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		config := configWith(t, "protected-mode", tt.protected, "requirepass", tt.password)
		s := serveOn(t, Options{Config: config, Logger: quiet}, from{l, net.ParseIP(tt.ip)})
		got := s.dial(t).do("HELLO", "2", "AUTH", "default", tt.password)
		if served := strings.HasPrefix(got, "[server"); served != tt.served || !served &&
			!strings.HasPrefix(got, "-DENIED ") {
			t.Errorf("%+v: %.60q", tt, got)
		}
	}
}

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	for _, tt := range []struct {
		bind, port string
		listeners  int
		err        string
	}{
		{"127.0.0.1", "0", 1, ""},
		{"127.0.0.1 127.0.0.2", "0", 2, ""},
		{"*", "0", 1, ""},
		{"127.0.0.1 -192.0.2.1", "0", 1, ""},
		{"-192.0.2.1", "0", 0, "no address of bind -192.0.2.1 exists on this machine"},
		{"127.0.0.1 192.0.2.1", "0", 0, "this machine has no such address"},
		{"127.0.0.1", port, 0, "127.0.0.1:" + port + ": the port is in use by another process"},
		{"no.such.host.invalid", "0", 0, "cannot listen on no.such.host.invalid:0"},
	} {
		listeners, err := listenAnywhere(configWith(t, "bind", tt.bind, "port", tt.port))
		if tt.err == "" && err != nil || tt.err != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("bind %s: %v, want %q", tt.bind, err, tt.err)
		}
		if len(listeners) != tt.listeners {
			t.Errorf("bind %s: %d listeners", tt.bind, len(listeners))
		}
		if tt.listeners == 2 &&
			listeners[0].Addr().(*net.TCPAddr).Port != listeners[1].Addr().(*net.TCPAddr).Port {
			t.Errorf("bind %s: two ports", tt.bind)
		}
		closeAll(listeners)
	}
}

// TestListenKeepsToTheIPVersion: an IPv4 wildcard does not open the port to IPv6,
// and the wildcards of both versions, among them Redis' default, go together.
func TestListenKeepsToTheIPVersion(t *testing.T) {
	ipv6, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 on this machine")
	}
	ipv6.Close()
	for _, tt := range []struct{ bind, addresses string }{
		{"0.0.0.0", "0.0.0.0"},
		{"0.0.0.0 ::", "0.0.0.0 ::"},
		{"* -::*", "0.0.0.0 ::"},
		{"* -::1", "0.0.0.0 ::1"},
		{"*", "::"}, // of both versions
		{"-::*", "::"},
	} {
		listeners, err := listenAnywhere(configWith(t, "bind", tt.bind, "port", "0"))
		if err != nil {
			t.Errorf("bind %s: %v", tt.bind, err)
			continue
		}
		var got []string
		for _, l := range listeners {
			got = append(got, l.Addr().(*net.TCPAddr).IP.String())
		}
		if strings.Join(got, " ") != tt.addresses {
			t.Errorf("bind %s: listens on %v, want %s", tt.bind, got, tt.addresses)
		}
		if tt.bind == "0.0.0.0" {
			_, port, _ := net.SplitHostPort(listeners[0].Addr().String())
			if c, err := net.Dial("tcp6", "[::1]:"+port); err == nil {
				c.Close()
				t.Error("bind 0.0.0.0: IPv6 is open too")
			}
		}
		closeAll(listeners)
	}
}

func TestServeOnSeveralAddresses(t *testing.T) {
	s := start(t, "bind", "127.0.0.1 127.0.0.2")
	_, port, _ := net.SplitHostPort(s.address)
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		other := &running{Server: s.Server, address: net.JoinHostPort(host, port)}
		other.dial(t).expect("+PONG", "PING")
	}
}

// TestStopFinishesPipelines stops the server under load. A client gets the
// replies to a pipeline as a whole or, for one the server never read, none; and
// what was acknowledged has happened (G2).
func TestStopFinishesPipelines(t *testing.T) {
	s := start(t, "appendfsync", "everysec")
	idle := s.dial(t)
	idle.expect("+PONG", "PING")
	const depth = 20
	var acknowledged, sent atomic.Int64
	var clients sync.WaitGroup
	for id := range 4 {
		c := s.dial(t)
		clients.Go(func() {
			for round := 0; ; round++ {
				var b strings.Builder
				for i := range depth {
					b.WriteString(frame("CINCRBY", "k", fmt.Sprint(id, "-", round, "-", i), "1"))
				}
				if _, err := c.Write([]byte(b.String())); err != nil {
					return
				}
				sent.Add(depth)
				for i := range depth {
					if got := c.reply(); strings.HasPrefix(got, ":") {
						acknowledged.Add(1)
					} else if i > 0 {
						t.Errorf("pipeline cut after %d of %d replies: %q", i, depth, got)
						return
					} else {
						return
					}
				}
			}
		})
	}
	eventually(t, "the load is there", func() bool { return acknowledged.Load() > 100*depth })
	s.Stop(false)
	s.wait(t)
	idle.expectReply("EOF")
	clients.Wait()
	if _, err := net.Dial("tcp", s.address); err == nil {
		t.Error("a stopped server accepts clients")
	}

	again := startWith(t, Options{Store: s.store, Logger: quiet})
	var value int64
	fmt.Sscanf(again.dial(t).do("CGET", "k"), ":%d", &value)
	if value < acknowledged.Load() || value > sent.Load() || value == 0 {
		t.Errorf("counter %d, acknowledged %d, sent %d", value, acknowledged.Load(), sent.Load())
	}
}

// TestStopCutsOffTheStuck: a client that does not read its reply, of which the system
// takes only a part, has shutdown-timeout for it, and does not delay a stop for ever.
func TestStopCutsOffTheStuck(t *testing.T) {
	t.Parallel()
	s := start(t, "shutdown-timeout", "1", "proto-max-bulk-len", "64mb")
	c := s.dial(t)
	if err := c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	go c.Write([]byte(frame("ECHO", strings.Repeat("x", 48<<20))))
	s.waitUntilStuck(t)
	begin := time.Now()
	s.Stop(false)
	s.wait(t)
	if took := time.Since(begin); took < time.Second {
		t.Errorf("stopping took %v", took)
	}
}

func TestStopBeforeServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Logger: quiet})
	s.Stop(false)
	if err := s.Serve(l); err != ErrStopped {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener was not closed")
	}
}

// TestServeEndsWhenAcceptingFails closes a listener behind the server's back;
// Serve must neither hang nor spin.
func TestServeEndsWhenAcceptingFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, Options{Logger: quiet, Config: freePort(t)}, l)
	c := s.dial(t)
	c.expect("+PONG", "PING")
	l.Close()
	s.wait(t)
	c.expectReply("EOF")
}
