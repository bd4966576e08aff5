package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/server/tlstest"
	"github.com/fbfkv/fbfkv/store"
)

// running is a server on a port of its own, over a store, stopped when the test ends.
type running struct {
	*Server
	address string
	secure  *tls.Config // how clients connect over TLS; nil: without
	served  chan error  // what Serve returned

	entered chan chan struct{} // of the gate (addGate): each holds up a worker until it is closed
}

// start runs a server with the given settings, as name and value.
func start(t testing.TB, settings ...string) *running {
	t.Helper()
	return startWith(t, Options{Store: openStore(t), Logger: quiet}, settings...)
}

// openStore opens a store for the time of the test, on a disk that is never busy.
func openStore(t testing.TB) *store.Store {
	t.Helper()
	st, err := store.Open(store.Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return st
}

// quiet drops what a server logs.
var quiet = slog.New(slog.DiscardHandler)

// startWith is start with options of the test's own.
func startWith(t testing.TB, o Options, settings ...string) *running {
	t.Helper()
	o.Config = freePort(t, settings...)
	listeners, err := listenAnywhere(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, o, listeners...)
}

// loops are the ways in which a connection is served.
var loops = []string{"event loop", "TLS in the event loop", "goroutine"}

// startLoop is startWith, served in one of these ways.
func startLoop(t testing.TB, loop string, o Options, settings ...string) *running {
	t.Helper()
	if loop == "event loop" {
		return startWith(t, o, settings...)
	}
	o.Config = freePort(t, settings...)
	listeners, err := Listen(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	if loop == "goroutine" {
		return serveOn(t, o, withoutSockets{listeners[0]})
	}
	l, secure := overTLS(t, listeners[0])
	s := serveOn(t, o, l)
	s.secure = secure
	return s
}

// overTLS returns a listener of connections with TLS, and what clients need to connect.
func overTLS(t testing.TB, l net.Listener) (net.Listener, *tls.Config) {
	t.Helper()
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	certificates, err := NewTLS(configWith(t, "tls-port", "1", "tls-cert-file", cert, "tls-key-file", key,
		"tls-auth-clients", "no"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	certificates.limits.Store(&handshakeLimits{time.Hour, 1000})
	return newTLSListener(l, certificates), ca.Client("", "")
}

// withoutSockets is a listener of whose connections no event loop can take the
// sockets.
type withoutSockets struct{ net.Listener }

// Accept implements net.Listener.
func (l withoutSockets) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ *net.TCPConn }{nc.(*net.TCPConn)}, nil
}

// serveOn runs a server on listeners of the test's own.
func serveOn(t testing.TB, o Options, listeners ...net.Listener) *running {
	t.Helper()
	s := &running{Server: New(o), address: listeners[0].Addr().String(), served: make(chan error, 1)}
	go func() { s.served <- s.Serve(listeners...) }()
	t.Cleanup(func() {
		s.Stop(true)
		s.wait(t)
	})
	return s
}

// wait waits for Serve to return.
func (s *running) wait(t testing.TB) {
	t.Helper()
	select {
	case err := <-s.served:
		s.served <- err
		if !errors.Is(err, ErrStopped) {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(testwait.Limit):
		t.Fatal("Serve does not return")
	}
}

// configWith returns the defaults but for the given settings.
func configWith(t testing.TB, settings ...string) *Config {
	t.Helper()
	c := DefaultConfig()
	for i := 0; i < len(settings); i += 2 {
		if err := LookUp(settings[i]).Set(c, settings[i+1]); err != nil {
			t.Fatalf("%s: %v", settings[i], err)
		}
	}
	return c
}

// freePort is configWith for a server on a port of its own. A stop that waits for
// shutdown-timeout takes longer than any test waits.
func freePort(t testing.TB, settings ...string) *Config {
	t.Helper()
	return configWith(t, append([]string{"port", "0", "shutdown-timeout", "3600"}, settings...)...)
}

// listenAnywhere is Listen. Without a port, others may have the one that was free on the first address on
// another one.
func listenAnywhere(c *Config) (listeners []net.Listener, err error) {
	for range 100 {
		listeners, err = Listen(c)
		if c.Port != 0 || err == nil || !strings.Contains(err.Error(), "in use by another process") {
			break
		}
	}
	return listeners, err
}

// tick tells a server whose ticks are the test's that it is now, and returns when it
// has done what is due.
func tick(ticks chan<- time.Time, now time.Time) {
	ticks <- now
	ticks <- now // taken once the first is done with
}

// received is how many bytes came from all connections.
func (s *running) received() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totals().in
}

// waitingSince is since when the only connection that waits to write does, by the
// server's clock; none does: 0 or less.
func (s *running) waitingSince() (phase int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		phase = max(phase, c.phase.Load())
	}
	return phase
}

// client is one connection of a test.
type client struct {
	t testing.TB
	net.Conn
	in   *bufio.Reader
	sent time.Time // when send was last called
	last string    // the key that it was told of last
}

// dial connects to the server.
func (s *running) dial(t testing.TB) *client {
	t.Helper()
	nc, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	return s.dialOver(t, nc)
}

// dialOver speaks to the server over a connection to it.
func (s *running) dialOver(t testing.TB, nc net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	if s.secure != nil {
		secure := tls.Client(nc, s.secure)
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		nc = secure
	}
	return &client{t: t, Conn: nc, in: bufio.NewReader(nc)}
}

// socket returns the connection beneath TLS, if the client uses it.
func (c *client) socket() net.Conn {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c.Conn
}

// send sends bytes as they are. A client that was idle has testwait.Limit again.
func (c *client) send(s string) {
	c.t.Helper()
	c.sent = time.Now()
	c.SetDeadline(c.sent.Add(testwait.Limit))
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("sending %.40q: %v", s, err)
	}
}

// frame returns words as a request.
func frame(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// do sends a request and returns its reply, see reply.
func (c *client) do(words ...string) string {
	c.t.Helper()
	c.send(frame(words...))
	return c.reply()
}

// reply reads one reply: as on the wire without the line end, strings without
// their length, and arrays as [a b …]. "EOF" means that the server has closed.
func (c *client) reply() string {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "EOF" + line
	}
	if err != nil {
		return "error: " + err.Error()
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" || !strings.ContainsRune("$*%~=", rune(line[0])) {
		return line
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		return line
	}
	switch line[0] {
	case '$', '=':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, b); err != nil {
			return "error: " + err.Error()
		}
		return string(b[:n])
	case '%':
		n *= 2
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = c.reply()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// expect sends a request and checks its reply.
func (c *client) expect(want string, words ...string) {
	c.t.Helper()
	if got := c.do(words...); got != want {
		c.t.Errorf("%q: %.200q, want %q", words, got, want)
	}
}

// expectReply checks the next reply.
func (c *client) expectReply(want string) {
	c.t.Helper()
	if got := c.reply(); got != want {
		c.t.Errorf("reply %.200q, want %q", got, want)
	}
}

// expectLast checks the next reply, after which the server closes the connection. It
// reads what the client has sent before, so that nothing is lost, but not for ever.
func (c *client) expectLast(want string) {
	c.t.Helper()
	c.expectReply(want)
	if got := c.reply(); got != "EOF" && time.Since(c.sent) < lingerTime {
		c.t.Errorf("after the last reply: %.200q", got)
	}
}

// eventually waits for a condition that another goroutine brings about.
var eventually = testwait.Until

// waitUntilStuck waits until the server waits for a client that does not read its
// replies. The system may still take a few more of them, now and then.
func (s *running) waitUntilStuck(t testing.TB) {
	t.Helper()
	eventually(t, "the server waits for the client", func() bool { return s.waitingSince() > 0 })
}
