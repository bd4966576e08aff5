package server

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

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
	for l.pending.Len() >= limits.MaxHandshakes {
		oldest := l.pending.Front()
		l.pending.Remove(oldest)
		oldest.Value.(net.Conn).Close()
	}
	place := l.pending.PushBack(nc)
	go l.handshake(nc, place, limits.HandshakeTimeout)
}

// handshake carries out one handshake and hands the client over.
func (l *tlsListener) handshake(nc net.Conn, place *linked.Element, timeout time.Duration) {
	defer func() {
		l.mu.Lock()
		l.pending.Remove(place) // nothing if it had to give way
		l.mu.Unlock()
	}()
	nc.SetDeadline(time.Now().Add(timeout))
	c := tls.Server(&tlsSocket{nc}, l.tls.config())
	if err := c.Handshake(); err != nil {
		l.tls.log.Log(context.Background(), LevelVerbose, "TLS handshake failed",
			"client", nc.RemoteAddr().String(), "error", err)
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
