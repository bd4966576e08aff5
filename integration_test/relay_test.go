package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// relay stands between clients and a server, and cuts their connections.
type relay struct {
	net.Listener
	server *server

	mu      sync.Mutex
	deaf    bool                       // drops every answer, with its connection
	cuts    int                        // so many answers to come are dropped half way, with their connections
	rewrite func(reply []byte) []byte  // if not nil, of each answer
	answer  func(args []string) string // if not nil, of each command: the relay's own answer, or ""
	clients []net.Conn
}

// startRelay starts a relay before a server, wherever that is started again.
func startRelay(t *testing.T, s *server) *relay {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &relay{Listener: listener, server: s}
	t.Cleanup(p.close)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// serve relays one connection. Requests are always delivered; what happens to answers is
// set by the test.
func (p *relay) serve(client net.Conn) {
	defer client.Close()
	upstream, err := net.Dial("tcp", p.server.address())
	if err != nil {
		return
	}
	defer upstream.Close()
	p.set(func(p *relay) { p.clients = append(p.clients, client) })
	go func() {
		defer upstream.Close()
		p.deliver(upstream, client)
	}()
	chunk := make([]byte, 1<<16)
	for {
		n, err := upstream.Read(chunk)
		if err != nil {
			return
		}
		p.mu.Lock()
		reply, cut := chunk[:n], p.deaf || p.cuts > 0
		if cut && !p.deaf {
			p.cuts--
			reply = reply[:n/2]
		} else if cut {
			reply = nil
		}
		if p.rewrite != nil {
			reply = p.rewrite(reply)
		}
		p.mu.Unlock()
		if _, err := client.Write(reply); err != nil || cut {
			return
		}
	}
}

// deliver passes a client's requests on.
func (p *relay) deliver(upstream, client net.Conn) {
	if p.answer == nil {
		io.Copy(upstream, client)
		return
	}
	for in := bufio.NewReader(client); ; {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		to, text := upstream, frame(args...)
		p.mu.Lock()
		if own := p.answer(args); own != "" { // the libraries have nothing else under way then
			to, text = client, own
		}
		p.mu.Unlock()
		io.WriteString(to, text)
	}
}

// readCommand reads one command: an array of strings.
func readCommand(in *bufio.Reader) (args []string, err error) {
	var n, length int
	if _, err = fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err = fmt.Fscanf(in, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		arg := make([]byte, length+2)
		if _, err = io.ReadFull(in, arg); err != nil {
			return nil, err
		}
		args = append(args, string(arg[:length]))
	}
	return args, nil
}

// close ends the relay and its connections, as a machine that is gone.
func (p *relay) close() {
	p.Listener.Close()
	p.set(func(p *relay) {
		for _, c := range p.clients {
			c.Close()
		}
	})
}

// set changes what happens to answers from now on.
func (p *relay) set(change func(*relay)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}
