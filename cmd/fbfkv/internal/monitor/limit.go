package monitor

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// limited is a listener with a bound on the connections of all clients and of each address.
// At a bound a new connection takes the place of the one that has waited longest for its
// next request, so clients that hold connections and ask nothing keep nobody out.
type limited struct {
	net.Listener
	mu    sync.Mutex
	conns map[*limitedConn]bool
}

// limitedConn is a connection of a limited listener, whose lock guards idle.
type limitedConn struct {
	net.Conn
	l      *limited
	source netip.Prefix
	idle   time.Time // since when it waits for a request; zero while one is answered
}

func limit(l net.Listener) *limited { return &limited{Listener: l, conns: map[*limitedConn]bool{}} }

// Accept implements net.Listener. It closes a connection for which there is no place.
func (l *limited) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: nc, l: l, source: sourceOf(nc.RemoteAddr()), idle: time.Now()}
		if l.admit(c) {
			return c, nil
		}
		nc.Close()
	}
}

// admit gives a connection a place, or reports that all are taken by requests under way.
func (l *limited) admit(c *limitedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ofSource := 0
	for o := range l.conns {
		if o.source == c.source {
			ofSource++
		}
	}
	if ofSource >= maxOfAddress && !l.closeIdle(func(o *limitedConn) bool { return o.source == c.source }) ||
		ofSource < maxOfAddress && len(l.conns) >= maxConnections &&
			!l.closeIdle(func(*limitedConn) bool { return true }) {
		return false
	}
	l.conns[c] = true
	return true
}

// closeIdle closes the connection that has waited longest, of those that may go. The lock is
// held.
func (l *limited) closeIdle(may func(*limitedConn) bool) bool {
	var longest *limitedConn
	for c := range l.conns {
		if may(c) && !c.idle.IsZero() && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	if longest == nil {
		return false
	}
	delete(l.conns, longest)
	longest.Conn.Close()
	return true
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

func (c *limitedConn) setIdle(since time.Time) {
	c.l.mu.Lock()
	c.idle = since
	c.l.mu.Unlock()
}

// connKey is under which a request's context holds its connection.
type connKey struct{}

// watch makes a server tell which connections wait for a request. A connection that has sent
// a part of a request waits as well.
func (l *limited) watch(s *http.Server) {
	h := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(connKey{}).(*limitedConn).setIdle(time.Time{})
		h.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			c.(*limitedConn).setIdle(time.Now())
		}
	}
}

// sourceOf is what counts as one address: of IPv6 a network of 64 bits, all of which a
// single machine can have.
func sourceOf(a net.Addr) netip.Prefix {
	at, _ := netip.ParseAddrPort(a.String())
	ip, bits := at.Addr().Unmap(), 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
