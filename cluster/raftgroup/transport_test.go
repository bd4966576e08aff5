package raftgroup

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// pipes is the Net of two nodes in memory: the node 1 dials, and reaches the node 2.
type pipes struct {
	serve  func(c net.Conn, from string, admits func() error) error
	answer sync.RWMutex // held: no answer arrives

	mu   sync.Mutex
	open []net.Conn
}

func (p *pipes) Dial(context.Context, string, string) (net.Conn, uint64, error) {
	a, b := net.Pipe()
	p.mu.Lock()
	p.open = append(p.open, a)
	p.mu.Unlock()
	go p.serve(pipeEnd{b, p}, "1", func() error { return nil })
	return a, 1, nil
}

func (p *pipes) Serve(f func(c net.Conn, from string, admits func() error) error) { p.serve = f }

func (p *pipes) Doubts() error { return nil }

// reset ends all connections.
func (p *pipes) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}

// hold keeps answers from arriving until release is called.
func (p *pipes) hold() (release func()) {
	p.answer.Lock()
	return p.answer.Unlock
}

// pipeEnd is the end that answers.
type pipeEnd struct {
	net.Conn
	p *pipes
}

func (e pipeEnd) Write(b []byte) (int, error) {
	e.p.answer.RLock()
	defer e.p.answer.RUnlock()
	return e.Conn.Write(b)
}

// transports returns the transports of two nodes.
func transports(t *testing.T) (from, to *Transport, way *pipes) {
	way = new(pipes)
	to = NewTransport(way, "two", time.Minute)
	serve := way.serve
	from = NewTransport(way, "one", time.Minute)
	way.serve = serve
	t.Cleanup(func() {
		from.Close()
		to.Close()
	})
	return from, to, way
}

// heartbeat is what the node 1 sends as the leader of term 7.
func heartbeat() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("1"),
		Addr: []byte("one")}, Term: 7}
}

// TestNoAnswerIsNoContact closes a pipeline whose peer does not answer, and passes no
// answer on: Raft would take it for contact.
func TestNoAnswerIsNoContact(t *testing.T) {
	t.Parallel()
	from, to, way := transports(t)
	noted := make(chan uint64, 10)
	from.Observe(&Watcher{Answered: func(_ raft.ServerID, _ time.Time, term uint64) { noted <- term }})
	p, err := from.AppendEntriesPipeline("2", to.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.AppendEntries(heartbeat(), new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	rpc := <-to.Consumer()
	rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
	if a := <-p.Consumer(); a.Error() != nil || !a.Response().Success || <-noted != 7 {
		t.Errorf("the answer: %+v %v", a.Response(), a.Error())
	}
	second, err := p.AppendEntries(heartbeat(), new(raft.AppendEntriesResponse))
	if err != nil {
		t.Fatal(err)
	}
	<-to.Consumer()
	way.reset()
	if err := second.Error(); err == nil {
		t.Error("an answer that never came is one")
	}
	select {
	case a := <-p.Consumer():
		t.Errorf("an answer that never came is passed on: %+v", a)
	case <-p.(*pipeline).done:
	}
	select {
	case term := <-noted:
		t.Errorf("an answer that never came is noted: term %d", term)
	default:
	}
	if _, err := p.AppendEntries(heartbeat(), new(raft.AppendEntriesResponse)); err == nil {
		t.Error("a broken pipeline takes a request")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeardOfALeaderThatHasBegun: what a leader says is committed is all that is only once an entry
// of its own term is.
func TestHeardOfALeaderThatHasBegun(t *testing.T) {
	for _, c := range []struct {
		prev, prevTerm, commit uint64
		entries                []*raft.Log
		want                   bool
	}{
		{10, 6, 4, nil, false}, // it was just started
		{10, 6, 4, []*raft.Log{{Index: 11, Term: 7}}, false},
		{11, 7, 4, nil, false},
		{10, 6, 11, []*raft.Log{{Index: 11, Term: 7}}, true},
		{11, 7, 11, nil, true},
		{11, 7, 12, []*raft.Log{{Index: 12, Term: 7}}, true},
	} {
		var transport Transport
		request := heartbeat()
		request.PrevLogEntry, request.PrevLogTerm = c.prev, c.prevTerm
		request.LeaderCommitIndex, request.Entries = c.commit, c.entries
		transport.hears(request, raft.RPCResponse{Response: &raft.AppendEntriesResponse{Term: 7}})
		if got := transport.Heard(); got.Begun != c.want || got.Commit != c.commit {
			t.Errorf("%+v: %+v was heard, want begun: %v", c, got, c.want)
		}
	}
}

// TestMoment: a moment does not move when the machine gets another time.
func TestMoment(t *testing.T) {
	var m Moment
	if !m.Get().IsZero() {
		t.Error("there is a moment already")
	}
	if m.Set(time.Now()); !strings.Contains(m.Get().String(), " m=") { // it has a monotonic reading
		t.Error("another time of the machine would make it earlier or later")
	}
}
