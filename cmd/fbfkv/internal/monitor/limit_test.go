package monitor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// dialFrom connects to an address from another one of this machine.
func dialFrom(t *testing.T, from int, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(from))}, Timeout: 5 * time.Second}
	nc, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Skip("this machine has one loopback address:", err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

// ask sends a request, and returns the first line of the answer.
func ask(nc net.Conn, path string) (string, error) {
	nc.SetDeadline(time.Now().Add(3 * time.Second)) // less than idleTimeout, which ends an idle one anyway
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	return bufio.NewReader(nc).ReadString('\n')
}

// closed reports whether the server has closed a connection that it owes no answer.
func closed(t *testing.T, nc net.Conn) bool {
	t.Helper()
	nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := nc.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// TestIdleConnectionsKeepNobodyOut: at the bound a new connection takes the place of the one
// that is idle longest, also if that has begun a request and does not end it.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	for _, begun := range []string{"", "GET /healthz HTTP/1.1\r\n"} {
		w, _ := start(t, Options{})
		var idle []net.Conn
		for i := range maxConnections {
			nc := dialFrom(t, 2+i/maxOfAddress, w.Addr())
			if _, err := io.WriteString(nc, begun); err != nil {
				t.Fatal(err)
			}
			idle = append(idle, nc)
		}
		line, err := ask(dialFrom(t, 1, w.Addr()), "/healthz")
		if err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("begun %q: %q, %v", begun, line, err)
		}
		if !closed(t, idle[0]) || closed(t, idle[1]) || closed(t, idle[maxConnections-1]) {
			t.Errorf("begun %q: not the one that was idle longest was closed", begun)
		}
	}
}

// TestConnectionsOfOneAddress: an address gets its share, and takes places from nobody else.
func TestConnectionsOfOneAddress(t *testing.T) {
	w, _ := start(t, Options{})
	other := dialFrom(t, 2, w.Addr())
	if line, err := ask(other, "/healthz"); err != nil {
		t.Fatal(line, err)
	}
	var own []net.Conn
	for range maxOfAddress + 1 {
		nc := dialFrom(t, 1, w.Addr())
		if line, err := ask(nc, "/healthz"); err != nil {
			t.Fatal(line, err)
		}
		own = append(own, nc)
	}
	if !closed(t, own[0]) || closed(t, own[1]) || closed(t, other) {
		t.Error("not the first of the address was closed")
	}
}

// TestRequestsUnderWayStay: a connection whose request is being answered is not closed, and
// one for which there is no place is.
func TestRequestsUnderWayStay(t *testing.T) {
	began, goOn := make(chan bool), make(chan bool)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- true
		<-goOn
	}))
	l := limit(s.Listener)
	s.Listener = l
	l.watch(s.Config)
	s.Start()
	defer s.Close()
	answers := make(chan string, maxOfAddress)
	for range maxOfAddress {
		nc := dialFrom(t, 1, l.Addr().String())
		go func() {
			line, err := ask(nc, "/")
			answers <- fmt.Sprint(line, err)
		}()
		<-began
	}
	if nc := dialFrom(t, 1, l.Addr().String()); !closed(t, nc) {
		t.Error("there is a place beyond the bound")
	}
	close(goOn)
	for range maxOfAddress {
		if a := <-answers; a != "HTTP/1.1 200 OK\r\n<nil>" {
			t.Error("the answer is", a)
		}
	}
}
