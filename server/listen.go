package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
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
		return nil, fmt.Errorf("cannot listen: no address of bind %s exists on this machine", strings.Join(bind, " "))
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
	protectedMode  = "DENIED fbfkv is running in protected mode: no password is set, so only clients on its own machine " +
		"are served. To serve others, set requirepass in the configuration file or with CONFIG SET from the server's " +
		"machine; or, where the network itself keeps strangers out, set protected-mode to no."
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

// linger is goodbye for a goroutine that may wait.
func linger(nc net.Conn, message string) {
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(500 * time.Millisecond))
	var w resp.Writer
	w.Error(message)
	if _, err := nc.Write(w.Bytes()); err != nil {
		return
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		io.CopyN(io.Discard, nc, 1<<20)
	}
}
