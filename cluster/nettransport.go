package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Transport carries Raft's messages over a Net. It reaches a peer only if the node with
// the peer's id has the peer's address: a node that took over the address of another is
// not taken for it.
type Transport struct {
	*raft.NetworkTransport
	local    raft.ServerAddress
	onAnswer atomic.Pointer[func(peer raft.ServerID, sent time.Time, term uint64)]
}

// Transport returns the way for this node's Raft, whose ServerIDs are node ids and whose
// ServerAddresses are HOST:PORT of cluster ports. local is how the others reach this
// node; timeout is how long a peer may take for a message and its answer. Raft closes it.
func (n *Net) Transport(local string, timeout time.Duration) *Transport {
	s := &raftStream{net: n, local: local, conns: make(chan net.Conn), done: make(chan struct{})}
	n.Handle(KindRaft, s.serve)
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s, MaxPool: 3, Timeout: timeout, Logger: hclog.NewNullLogger(), // Raft logs what fails
		}),
		local: raft.ServerAddress(local),
	}
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// raftStream is the connections of KindRaft.
type raftStream struct {
	net   *Net
	local string
	conns chan net.Conn
	done  chan struct{}
}

func (s *raftStream) serve(c net.Conn, _ Identity) {
	select {
	case s.conns <- c:
	case <-s.done:
		c.Close()
	}
}

// Accept returns the next connection.
func (s *raftStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (s *raftStream) Close() error {
	s.net.Handle(KindRaft, nil)
	close(s.done)
	return nil
}

// Addr returns where others reach this node.
func (s *raftStream) Addr() net.Addr { return address(s.local) }

// Dial connects to a peer, given as ID@HOST:PORT.
func (s *raftStream) Dial(peer raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, at, ok := strings.Cut(string(peer), "@")
	if !ok {
		return nil, fmt.Errorf("%q names no node", peer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.net.Dial(ctx, id, at, KindRaft)
}

// address is a net.Addr of a cluster port.
type address string

// Network returns tcp.
func (a address) Network() string { return "tcp" }

// String returns HOST:PORT.
func (a address) String() string { return string(a) }

// at names the node with an address, for the pool of connections and raftStream.Dial.
func at(id raft.ServerID, target raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + string(target))
}

// answered notes an answer to an AppendEntries that was sent at this time.
func (t *Transport) answered(id raft.ServerID, sent time.Time, term uint64) {
	if note := t.onAnswer.Load(); note != nil {
		(*note)(id, sent, term)
	}
}

// AppendEntries is raft.Transport's, and notes when what was answered was sent.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, request *raft.AppendEntriesRequest, response *raft.AppendEntriesResponse) error {
	sent := time.Now()
	err := t.NetworkTransport.AppendEntries(id, at(id, target), request, response)
	if err == nil {
		t.answered(id, sent, response.Term)
	}
	return err
}

// RequestVote is raft.Transport's.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, request *raft.RequestVoteRequest, response *raft.RequestVoteResponse) error {
	return t.NetworkTransport.RequestVote(id, at(id, target), request, response)
}

// RequestPreVote is raft.WithPreVote's.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, request *raft.RequestPreVoteRequest, response *raft.RequestPreVoteResponse) error {
	return t.NetworkTransport.RequestPreVote(id, at(id, target), request, response)
}

// InstallSnapshot is raft.Transport's.
func (t *Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, request *raft.InstallSnapshotRequest, response *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.NetworkTransport.InstallSnapshot(id, at(id, target), request, response, data)
}

// TimeoutNow is raft.Transport's.
func (t *Transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, request *raft.TimeoutNowRequest, response *raft.TimeoutNowResponse) error {
	return t.NetworkTransport.TimeoutNow(id, at(id, target), request, response)
}

// AppendEntriesPipeline is raft.Transport's, and notes when what was answered was sent.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, at(id, target))
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture), done: make(chan struct{})}
	go p.watch(func(f raft.AppendFuture) {
		if f.Error() == nil {
			t.answered(id, f.Start(), f.Response().Term)
		}
	})
	return p, nil
}

// pipeline notes answers on their way to Raft.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	done    chan struct{}
}

func (p *pipeline) watch(note func(raft.AppendFuture)) {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			note(f)
			select {
			case p.answers <- f:
			case <-p.done:
				return
			}
		case <-p.done:
			return
		}
	}
}

// Consumer is raft.AppendPipeline's.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close is raft.AppendPipeline's.
func (p *pipeline) Close() error {
	close(p.done)
	return p.AppendPipeline.Close()
}
