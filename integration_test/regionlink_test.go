package integration

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// regionLink is how other regions, and fbfkv region, reach the server of a region: a relay that knows which
// region asks, and may fail for each of them alone.
type regionLink struct {
	net.Listener
	to *server

	mu    sync.Mutex
	state map[int]linkState // by the number of the region that asks
	conns map[*linkConn]bool
	// pass, if not nil, sees how much has been answered to a region each time when some more is about to be passed on.
	pass func(reader, bytes int)
}

// linkState is what becomes of what a region asks, and of its answers.
type linkState int

const (
	linkOpen   linkState = iota
	linkCut              // its connections are cut, and new ones at once
	linkMute             // what it asks does not arrive, and nobody says so
	linkDeaf             // what it asks arrives; the answers do not
	linkBroken           // half of an answer arrives, then the connection is cut; or half of its packets
)

// linkConn is one connection of somebody who asks.
type linkConn struct {
	client, upstream net.Conn
	reader           int // -1: not known yet; no region
	bytes            int // of answers to it
}

// startRegionLink starts one before a server, wherever that is started again.
func startRegionLink(t testing.TB, to *server) *regionLink {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &regionLink{Listener: listener, to: to, state: make(map[int]linkState), conns: make(map[*linkConn]bool)}
	t.Cleanup(l.close)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(client)
		}
	}()
	return l
}

func (l *regionLink) address() string {
	if l.Listener == nil { // the network is the link
		return l.to.address()
	}
	return l.Addr().String()
}

// set changes what becomes of what a region asks. Its connections that are under way end if they could
// not go on: with a cut, and when a link that said nothing is mended.
func (l *regionLink) set(reader int, to linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.state[reader]
	l.state[reader] = to
	for c := range l.conns {
		if c.reader == reader && was != to && (to == linkCut || was == linkMute || was == linkDeaf) {
			c.close()
		}
	}
}

// watch sets what sees answers pass.
func (l *regionLink) watch(pass func(reader, bytes int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass = pass
}

// serve relays one connection.
func (l *regionLink) serve(client net.Conn) {
	defer client.Close()
	upstream, err := net.Dial("tcp", l.to.address())
	if err != nil {
		return
	}
	c := &linkConn{client: client, upstream: upstream, reader: -1}
	l.mu.Lock()
	l.conns[c] = true
	l.mu.Unlock()
	defer func() {
		c.close()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}()
	go func() {
		defer c.close()
		l.requests(c)
	}()
	chunk := make([]byte, 1<<16)
	for {
		n, err := upstream.Read(chunk)
		if err != nil {
			return
		}
		reply, state := chunk[:n], l.answer(c, n)
		switch state {
		case linkMute, linkDeaf:
			continue
		case linkBroken:
			reply = reply[:n/2]
		}
		if _, err := client.Write(reply); err != nil || state == linkBroken || state == linkCut {
			return
		}
	}
}

// answer notes that so many bytes of an answer arrived, and returns what becomes of them.
func (l *regionLink) answer(c *linkConn, n int) linkState {
	l.mu.Lock()
	c.bytes += n
	pass, reader, bytes, state := l.pass, c.reader, c.bytes, l.state[c.reader]
	l.mu.Unlock()
	if pass != nil && reader >= 0 {
		pass(reader, bytes)
	}
	return state
}

// requests passes on what is asked, command by command.
func (l *regionLink) requests(c *linkConn) {
	for in := bufio.NewReader(c.client); ; {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		l.mu.Lock()
		if r := asks(args); r >= 0 {
			c.reader = r
		}
		state := l.state[c.reader]
		l.mu.Unlock()
		switch state {
		case linkCut:
			return
		case linkMute:
			continue
		}
		if _, err := io.WriteString(c.upstream, frame(args...)); err != nil {
			return
		}
	}
}

// asks returns the number of the region that sends a command; -1: nobody says.
func asks(args []string) int {
	if len(args) < 4 || args[0] != "REGION.PULL" || args[1] == "NEXT" {
		return -1
	}
	at := 2 // behind the group
	if _, err := strconv.ParseUint(args[1], 10, 64); err != nil {
		at = 3 // and a word
	}
	n, err := strconv.Atoi(args[at])
	if err != nil {
		return -1
	}
	return n
}

func (c *linkConn) close() {
	c.client.Close()
	c.upstream.Close()
}

// close ends the link and its connections.
func (l *regionLink) close() {
	l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close()
	}
}
