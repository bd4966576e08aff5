package monitor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// dialFrom connects to an address from another one of this machine.
func dialFrom(t *testing.T, from int, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(from))}, Timeout: time.Minute}
	nc, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Skip("this machine has one loopback address:", err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

// limitedServer serves at a limited listener without timeouts, which would close idle
// connections as well, and sends each connection that has become idle.
func limitedServer(t *testing.T, h http.HandlerFunc) (addr string, idle <-chan net.Conn) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	l := limit(s.Listener)
	s.Listener = l
	l.watch(s.Config)
	became, watched := make(chan net.Conn, maxConnections), s.Config.ConnState
	s.Config.ConnState = func(nc net.Conn, state http.ConnState) {
		watched(nc, state)
		if state == http.StateIdle {
			became <- nc
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().String(), became
}

// ask sends a request, and returns the first line of the answer.
func ask(nc net.Conn) (string, error) {
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return bufio.NewReader(nc).ReadString('\n')
}

// closed waits until the server has closed a connection that it owes no answer.
func closed(nc net.Conn) bool { return ends(nc, time.Minute) }

// open reports whether a connection stays open for a moment.
func open(nc net.Conn) bool { return !ends(nc, 50*time.Millisecond) }

func ends(nc net.Conn, within time.Duration) bool {
	nc.SetReadDeadline(time.Now().Add(within))
	_, err := nc.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestMonitorIsLimited: the server of the metrics has the bounds.
func TestMonitorIsLimited(t *testing.T) {
	m, err := Start(Options{Addr: "127.0.0.1:0", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, ok := m.listener.(*limited); !ok || m.http.ConnState == nil || m.http.IdleTimeout != idleTimeout {
		t.Error("connections have no bound")
	}
}

// TestIdleConnectionsKeepNobodyOut: at the bound a new connection takes the place of the one
// that is idle longest, also if that has begun a request and does not end it.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	for _, begun := range []string{"", "GET / HTTP/1.1\r\n"} {
		addr, _ := limitedServer(t, func(http.ResponseWriter, *http.Request) {})
		var idle []net.Conn
		for i := range maxConnections {
			nc := dialFrom(t, 2+i/maxOfAddress, addr)
			if _, err := io.WriteString(nc, begun); err != nil {
				t.Fatal(err)
			}
			idle = append(idle, nc)
		}
		line, err := ask(dialFrom(t, 1, addr))
		if err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("begun %q: %q, %v", begun, line, err)
		}
		if !closed(idle[0]) || !open(idle[1]) || !open(idle[maxConnections-1]) {
			t.Errorf("begun %q: not the one that was idle longest was closed", begun)
		}
	}
}

// TestConnectionsOfOneAddress: an address gets its share, and takes places from nobody else.
func TestConnectionsOfOneAddress(t *testing.T) {
	addr, idle := limitedServer(t, func(http.ResponseWriter, *http.Request) {})
	connect := func(from int) net.Conn {
		nc := dialFrom(t, from, addr)
		if line, err := ask(nc); err != nil {
			t.Fatal(line, err)
		}
		<-idle // the client has the answer before
		return nc
	}
	other := connect(2)
	var own []net.Conn
	for range maxOfAddress + 1 {
		own = append(own, connect(1))
	}
	if !closed(own[0]) || !open(own[1]) || !open(other) {
		t.Error("not the first of the address was closed")
	}
}

// TestRequestsUnderWayStay: a connection whose request is being answered is not closed, and
// one for which there is no place is.
func TestRequestsUnderWayStay(t *testing.T) {
	began, goOn := make(chan bool), make(chan bool)
	addr, _ := limitedServer(t, func(http.ResponseWriter, *http.Request) {
		began <- true
		<-goOn
	})
	answers := make(chan string, maxOfAddress)
	for range maxOfAddress {
		nc := dialFrom(t, 1, addr)
		go func() {
			line, err := ask(nc)
			answers <- fmt.Sprint(line, err)
		}()
		<-began
	}
	nc := dialFrom(t, 1, addr)
	nc.SetReadDeadline(time.Now().Add(testwait.Limit))
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Error("there is a place beyond the bound:", err)
	}
	close(goOn)
	for range maxOfAddress {
		if a := <-answers; a != "HTTP/1.1 200 OK\r\n<nil>" {
			t.Error("the answer is", a)
		}
	}
}
