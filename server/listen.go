package server

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/resp"
)

// Listen opens a listener on each address of c.Bind and port; none if port is 0
// and there is a tls-port, see ListenTLS. An error is one line that says which
// address is at fault.
func Listen(c *Config) ([]net.Listener, error) {
	if c.TLS.Port != 0 && c.Port == 0 {
		return nil, nil
	}
	if err := c.checkPorts(); err != nil {
		return nil, err
	}
	return listenOn(c.Bind, c.Port)
}

// ListenCluster opens a listener for other nodes on all addresses of c.Bind and the cluster
// port.
func ListenCluster(c *Config) (net.Listener, error) {
	all, err := listenOn(c.Bind, c.ClusterPort())
	if err != nil {
		return nil, err
	}
	if len(all) == 1 {
		return all[0], nil
	}
	m := &merged{Listener: all[0], all: all, conns: make(chan net.Conn), closed: make(chan struct{})}
	for _, l := range all {
		go m.accept(l)
	}
	return m, nil
}

// merged is several listeners as one; Addr is the first one's.
type merged struct {
	net.Listener
	all    []net.Listener
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (m *merged) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no file descriptor is left, most likely
			select {
			case <-time.After(100 * time.Millisecond):
			case <-m.closed:
			}
			continue
		}
		select {
		case m.conns <- nc:
		case <-m.closed:
			nc.Close()
			return
		}
	}
}

// Accept implements net.Listener.
func (m *merged) Accept() (net.Conn, error) {
	select {
	case nc := <-m.conns:
		return nc, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *merged) Close() error {
	m.once.Do(func() { close(m.closed); closeAll(m.all) })
	return nil
}

// listenOn opens a listener on each address; port 0 is any that is free.
func listenOn(bind []string, port int) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range bind {
		name, optional := strings.CutPrefix(address, "-")
		network, host := socketOf(name, bind)
		// Keepalive is set on each connection, from the settings of its time.
		lc := net.ListenConfig{KeepAlive: -1}
		l, err := lc.Listen(context.Background(), network, net.JoinHostPort(host, strconv.Itoa(port)))
		if optional && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue
		}
		if err != nil {
			closeAll(listeners)
			return nil, listenError(address, port, err)
		}
		if port == 0 {
			port = l.Addr().(*net.TCPAddr).Port // the same one on every address
		}
		listeners = append(listeners, l)
	}
	if len(listeners) == 0 {
		return nil, fmt.Errorf("cannot listen: no address of bind %s exists on this machine",
			strings.Join(bind, " "))
	}
	return listeners, nil
}

// socketOf returns the network and the host that net.Listen takes for an address
// of bind. Each IP address keeps to its version, as in Redis: 0.0.0.0 alone does
// not open the port to IPv6, and 0.0.0.0 and :: do not get into each other's way.
// For the same reason * leaves IPv6 to the others if they have an address of it.
func socketOf(address string, bind []string) (network, host string) {
	isIPv6 := func(a string) bool { return strings.Contains(a, ":") }
	switch {
	case address == "*" && slices.ContainsFunc(bind, isIPv6):
		return "tcp4", "0.0.0.0"
	case address == "*":
		return "tcp", ""
	case address == "::*":
		return "tcp6", "::"
	case isIPv6(address):
		return "tcp6", address
	case net.ParseIP(address) != nil:
		return "tcp4", address
	}
	return "tcp", address
}

// listenError says plainly why an address cannot be listened on.
func listenError(address string, port int, err error) error {
	where := net.JoinHostPort(address, strconv.Itoa(port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("cannot listen on %s: the port is in use by another process", where)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("cannot listen on %s: this machine has no such address", where)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("cannot listen on %s: permission denied", where)
	}
	return fmt.Errorf("cannot listen on %s: %w", where, err)
}

// accept admits the clients of one listener until it is closed.
func (s *Server) accept(l net.Listener) error {
	var delay time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			delay = 0
			s.admit(nc)
		case errors.Is(err, net.ErrClosed):
			return ErrStopped
		case isTransient(err):
			// Out of file descriptors, most likely: others will be closed.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			s.log.Warn("cannot accept a client", "error", err, "next_try_in", delay)
			select {
			case <-time.After(delay):
			case <-s.stop:
				return ErrStopped
			}
		default:
			return fmt.Errorf("cannot accept clients on %s: %w", l.Addr(), err)
		}
	}
}

// isTransient reports whether accepting may succeed again later.
func isTransient(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Refusals of a client before its first command.
const (
	tooManyClients = "ERR max number of clients reached"
	protectedMode  = "DENIED fbfkv is running in protected mode: no password is set, so only clients on " +
		"its own machine are served. To serve others, set requirepass in the configuration file or with " +
		"CONFIG SET from the server's machine; or, where the network itself keeps strangers out, set " +
		"protected-mode to no."
)

// admit starts a connection, or refuses it.
func (s *Server) admit(nc net.Conn) {
	config := s.config.Load()
	if config.ProtectedMode && s.commands.Users.Default().User().NoPass() && !isLoopback(nc.RemoteAddr()) {
		s.rejected.Add(1)
		s.goodbye(nc, protectedMode)
		return
	}
	setKeepalive(nc, config.TCPKeepalive)

	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		nc.Close()
		return
	}
	if len(s.conns) >= config.MaxClients {
		s.mu.Unlock()
		s.rejected.Add(1)
		s.goodbye(nc, tooManyClients)
		return
	}
	s.lastID++
	session := commands.NewSession(s.lastID, nc.RemoteAddr().String(), nc.LocalAddr().String(), &s.commands)
	_, session.TLS = nc.(*tls.Conn)
	c := s.newConn(nc, session)
	s.conns[session.ID] = c
	s.closed.connections++
	s.running.Add(1)
	s.mu.Unlock()
	c.line.start()
}

// newConn returns the connection of a client that was admitted.
func (s *Server) newConn(nc net.Conn, session *commands.Session) *conn {
	if c := s.loop.adopt(nc, session); c != nil {
		return &c.conn
	}
	return &newDedicated(s, nc, session).conn
}

// remove forgets a connection that is closed.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c.session.ID)
	s.closed.add(c)
	s.mu.Unlock()
	c.session.End()
	s.running.Done()
}

// setKeepalive asks the system to probe an idle connection, with Redis'
// proportions: three probes a third of the time apart.
func setKeepalive(nc net.Conn, idle time.Duration) {
	if tcp, ok := socket(nc).(*net.TCPConn); ok && idle > 0 {
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable:   true,
			Idle:     idle,
			Interval: max(idle/3, time.Second),
			Count:    3,
		})
	}
}

// isLoopback reports whether a client is on this machine.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// maxLingers bounds the connections that are being refused politely.
const maxLingers = 64

// goodbye sends a last error reply and closes. When what the client has sent is
// still unread at the close, the system resets the connection and the client may
// never see the message; hence the rest is read and dropped, for a moment.
func (s *Server) goodbye(nc net.Conn, message string) {
	select {
	case s.lingers <- struct{}{}:
	default:
		nc.Close() // under a flood, be brief
		return
	}
	go func() {
		defer func() { <-s.lingers }()
		linger(nc, message)
	}()
}

// lingerTime is how long a connection that the server ends goes on being read.
const lingerTime = 500 * time.Millisecond

// linger is goodbye for a goroutine that may wait.
func linger(nc net.Conn, message string) {
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(lingerTime))
	if message != "" {
		var w resp.Writer
		w.Error(message)
		if _, err := nc.Write(w.Bytes()); err != nil {
			return
		}
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		io.CopyN(io.Discard, nc, 1<<20)
	}
}

// ListenTLS opens a listener on each address of c.Bind and tls-port, whose
// connections have their handshakes behind them; none without a tls-port.
func ListenTLS(c *Config, t *TLS) ([]net.Listener, error) {
	if c.TLS.Port == 0 {
		return nil, nil
	}
	listeners, err := listenOn(c.Bind, c.TLS.Port)
	for i, l := range listeners {
		listeners[i] = newTLSListener(l, t)
	}
	return listeners, err
}

// tlsListener is a listener whose Accept returns *tls.Conns that are ready for
// use. Handshakes run beside it, so that clients which stall theirs hold up
// nobody: each has a time, and when there are too many the oldest is given up.
type tlsListener struct {
	net.Listener
	tls    *TLS
	ready  chan net.Conn
	failed chan error
	done   chan struct{}
	start  sync.Once
	stop   sync.Once

	mu      sync.Mutex
	pending linked.List // of net.Conn whose handshake is under way, oldest first
}

func newTLSListener(l net.Listener, t *TLS) *tlsListener {
	return &tlsListener{
		Listener: l,
		tls:      t,
		ready:    make(chan net.Conn),
		failed:   make(chan error),
		done:     make(chan struct{}),
	}
}

// Accept returns the next client whose handshake has succeeded.
func (l *tlsListener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.acceptAll() })
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener and gives up the handshakes under way.
func (l *tlsListener) Close() error {
	err := error(nil)
	l.stop.Do(func() {
		close(l.done)
		err = l.Listener.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		for e := l.pending.Front(); e != nil; e = e.Next() {
			e.Value.(net.Conn).Close()
		}
	})
	return err
}

// acceptAll starts handshakes until the listener is closed. An error waits for
// the next Accept, and with it everything else, so that the caller's pauses
// count.
func (l *tlsListener) acceptAll() {
	for {
		nc, err := l.Listener.Accept()
		if err == nil {
			l.begin(nc)
			continue
		}
		select {
		case l.failed <- err:
		case <-l.done:
			return
		}
	}
}

// begin starts a handshake, in the place of the oldest if there are too many.
func (l *tlsListener) begin(nc net.Conn) {
	limits := l.tls.limits.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		nc.Close()
		return
	default:
	}
	for l.pending.Len() >= limits.number {
		oldest := l.pending.Front()
		l.pending.Remove(oldest)
		oldest.Value.(net.Conn).Close()
	}
	place := l.pending.PushBack(nc)
	go l.handshake(nc, place, limits.timeout)
}

// handshake carries out one handshake and hands the client over.
func (l *tlsListener) handshake(nc net.Conn, place *linked.Element, timeout time.Duration) {
	defer func() {
		l.mu.Lock()
		l.pending.Remove(place) // nothing if it had to give way
		l.mu.Unlock()
	}()
	nc.SetDeadline(time.Now().Add(timeout))
	c := tls.Server(&tlsSocket{nc}, l.tls.Current())
	if err := c.Handshake(); err != nil {
		l.logFailure(nc, err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			nc.Close()
		} else {
			linger(nc, "") // or the client may not get to see the alert
		}
		return
	}
	nc.SetDeadline(time.Time{})
	select {
	case l.ready <- c:
	case <-l.done:
		nc.Close()
	}
}

// logFailure logs why a handshake failed. Clients that go away before it, such as a look
// whether the port is open, are no failure.
func (l *tlsListener) logFailure(nc net.Conn, err error) {
	var noTLS tls.RecordHeaderError
	reason := err.Error()
	switch {
	case errors.Is(err, io.EOF):
		return
	case errors.As(err, &noTLS):
		reason = "the client does not speak TLS"
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = "it took too long"
	case errors.Is(err, net.ErrClosed):
		select {
		case <-l.done:
			return
		default:
		}
		reason = "it gave way to newer ones: too many are under way"
	}
	if silent, yes := l.tls.failed.due(); yes {
		l.tls.log.Warn("TLS handshake failed", "client", nc.RemoteAddr().String(), "reason", reason,
			"more_since_last", silent)
	}
}

// tlsSocket is what a *tls.Conn of ours reads from and writes to: after the handshake,
// whatever serves the connection.
type tlsSocket struct{ net.Conn }

// socket returns the connection beneath one of our TLS connections, and any other as it is.
func socket(nc net.Conn) net.Conn {
	if c, ok := nc.(*tls.Conn); ok {
		if s, ok := c.NetConn().(*tlsSocket); ok {
			return s.Conn
		}
	}
	return nc
}

// hangUp closes a connection at once, whatever state it is in: that of a TLS
// client without the goodbye that might have to wait for room in its buffer.
func hangUp(nc net.Conn) { socket(nc).Close() }

// listenerPort returns the TCP port of a listener and whether it speaks TLS.
func listenerPort(l net.Listener) (port int, secure bool) {
	_, secure = l.(*tlsListener)
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		port = a.Port
	}
	return port, secure
}
