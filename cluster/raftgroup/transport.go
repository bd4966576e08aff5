package raftgroup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftmsg"
)

// Limits of Raft's connections.
const (
	maxIdle         = 3                // connections kept for each peer
	messageTimeout  = 30 * time.Second // for the rest of a request that has begun, and to write its answer
	snapshotTimeout = 30 * time.Second // for a snapshot to be sent and installed, at least
	idleTimeout     = 2 * time.Minute  // for the next request on a connection
	keepBuffer      = 4 << 20          // bytes of a connection's write buffer
)

// Net is the connections between the nodes of a cluster that one of their Raft groups has.
type Net interface {
	// Dial connects to a node at an address, and returns the number of that node's start.
	Dial(ctx context.Context, id, address string) (c net.Conn, starts uint64, err error)
	// Serve has a function answer each connection of another node, from; nil: none is accepted any
	// more. admits returns why that node's messages are refused by now. The function's error is why
	// it breaks the connection off.
	Serve(f func(c net.Conn, from string, admits func() error) error)
	// Doubts returns why this node sends nothing and gives no vote; nil: it does both.
	Doubts() error
}

// Transport carries Raft's messages over a Net. It reaches a peer only if the node with
// the peer's id has the peer's address: a node that took over the address of another is
// not taken for it. A request that names another sender than the node that dialed breaks
// the connection.
//
// It differs from the library's own in three ways. Messages are bounded and checked. A
// heartbeat takes the fast path past Raft's main thread only if this node is a follower in
// its term already: there it would change the term while the main thread may be granting a
// vote in a later one, and put the term back. And an answer that has not come is no sign of life:
// the library counts it as contact and extends the lease of a leader that is cut off.
type Transport struct {
	net      Net
	local    raft.ServerAddress
	timeout  time.Duration
	requests chan raft.RPC

	heartbeat atomic.Pointer[func(raft.RPC)]
	raft      atomic.Pointer[Watcher]
	snapshot  atomic.Pointer[func(*raft.InstallSnapshotRequest) (*raft.InstallSnapshotResponse, error)]
	settle    atomic.Pointer[func() error]
	handed    Moment      // when a leader handed over to this node last
	refuses   atomic.Bool // entries
	heard     atomic.Pointer[Heard]
	taking    atomic.Int64 // requests with entries that Raft has and has not answered
	silent    atomic.Bool  // as a leader
	impatient Moment       // until when no call waits for a peer to answer again

	ctx    context.Context // done when closed
	cancel context.CancelFunc

	mu       sync.Mutex
	idle     map[peer][]*raftConn
	open     map[io.Closer]struct{}
	progress map[raft.ServerID]PeerProgress
}

// Watcher is the Raft that uses a Transport (Watch), and hears of answers.
type Watcher struct {
	Term    func() uint64          // the present one
	Follows func(term uint64) bool // this node is a follower in this term
	// Answered is called when a peer has answered an AppendEntries that was sent at this time or
	// later, with this term.
	Answered func(peer raft.ServerID, sent time.Time, term uint64)
	// Sends reports whether this node leads in this term, and a peer at this address is a member.
	Sends func(peer raft.ServerID, address raft.ServerAddress, term uint64) bool
}

// Observe has w know what the transport sees, and the transport what w knows.
func (t *Transport) Observe(w *Watcher) { t.raft.Store(w) }

// peer is a node at an address.
type peer struct {
	id      raft.ServerID
	address raft.ServerAddress
}

// raftConn is a connection to a peer, used by one request after the other.
type raftConn struct {
	net.Conn
	peer   peer
	starts uint64 // the number of the peer's start
	r      *bufio.Reader
	buf    []byte
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport returns the way for one of this node's Raft groups, whose ServerIDs are node ids and
// whose ServerAddresses are HOST:PORT of cluster ports. local is how the others reach this node;
// timeout is how long a peer may take for a message and its answer, and as long again for each MiB
// of it. Raft closes the Transport.
func NewTransport(n Net, local string, timeout time.Duration) *Transport {
	t := &Transport{net: n, local: raft.ServerAddress(local), timeout: timeout,
		requests: make(chan raft.RPC),
		idle:     map[peer][]*raftConn{}, open: map[io.Closer]struct{}{},
		progress: map[raft.ServerID]PeerProgress{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	n.Serve(t.serve)
	return t
}

// Close ends all of Raft's connections.
func (t *Transport) Close() error {
	t.net.Serve(nil)
	t.mu.Lock()
	t.cancel()
	open := t.open
	t.open, t.idle = nil, nil
	t.mu.Unlock()
	for c := range open {
		_ = c.Close() // whoever uses it sees the error
	}
	return nil
}

// Consumer is raft.Transport's.
func (t *Transport) Consumer() <-chan raft.RPC { return t.requests }

// LocalAddr is raft.Transport's.
func (t *Transport) LocalAddr() raft.ServerAddress { return t.local }

// EncodePeer is raft.Transport's.
func (t *Transport) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// DecodePeer is raft.Transport's.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler is raft.Transport's.
func (t *Transport) SetHeartbeatHandler(f func(raft.RPC)) { t.heartbeat.Store(&f) }

// OnSnapshot has f answer a leader that wants this node to take a snapshot, in the place of
// Raft.
func (t *Transport) OnSnapshot(f func(*raft.InstallSnapshotRequest) (*raft.InstallSnapshotResponse, error)) {
	t.snapshot.Store(&f)
}

// BeforeSending has f called before each request and each answer: what Raft has set, and the
// message may tell, must be durable. If f fails, nothing is sent. Pipelines need no call: they
// follow a request of the same term.
func (t *Transport) BeforeSending(f func() error) { t.settle.Store(&f) }

func (t *Transport) settled() error {
	if f := t.settle.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// RequestVote is raft.Transport's.
func (t *Transport) RequestVote(id raft.ServerID, address raft.ServerAddress,
	request *raft.RequestVoteRequest,
	into *raft.RequestVoteResponse) error {
	return t.call(peer{id, address}, request, into, nil, t.timeout)
}

// RequestPreVote is raft.WithPreVote's.
func (t *Transport) RequestPreVote(id raft.ServerID, address raft.ServerAddress,
	request *raft.RequestPreVoteRequest,
	into *raft.RequestPreVoteResponse) error {
	return t.call(peer{id, address}, request, into, nil, t.timeout)
}

// TimeoutNow is raft.Transport's.
func (t *Transport) TimeoutNow(id raft.ServerID, address raft.ServerAddress, request *raft.TimeoutNowRequest,
	into *raft.TimeoutNowResponse) error {
	return t.call(peer{id, address}, request, into, nil, t.timeout)
}

// InstallSnapshot is raft.Transport's.
func (t *Transport) InstallSnapshot(id raft.ServerID, address raft.ServerAddress,
	request *raft.InstallSnapshotRequest,
	into *raft.InstallSnapshotResponse, data io.Reader) error {
	to := peer{id, address}
	content, err := io.ReadAll(io.LimitReader(data, MaxContent))
	if err != nil {
		return err
	}
	for {
		err := t.call(to, request, into, bytes.NewReader(content), max(t.timeout, snapshotTimeout))
		if err == nil || !t.awaitFiles(to, request.Term) {
			return err
		}
	}
}

// awaitFiles waits until it is time to ask a peer again that fetches files in the place of a
// snapshot. false: this node has nothing for it any more. Raft would wait longer each time, up to
// 10 s, and the peer, with all the files, as long for the entries behind them.
func (t *Transport) awaitFiles(p peer, term uint64) bool {
	select {
	case <-time.After(filesPeriod):
	case <-t.ctx.Done():
		return false
	}
	w := t.raft.Load()
	return w != nil && w.Sends(p.id, p.address, term) && !time.Now().Before(t.impatient.Get())
}

// filesPeriod is how often a peer is asked that fetches files.
const filesPeriod = 500 * time.Millisecond

// AppendEntries is raft.Transport's.
func (t *Transport) AppendEntries(id raft.ServerID, address raft.ServerAddress,
	request *raft.AppendEntriesRequest,
	into *raft.AppendEntriesResponse) error {
	to, timeout := peer{id, address}, t.shorten(request)
	for {
		err := t.call(to, request, into, nil, timeout)
		if err == nil || saysNothing(request) || errors.As(err, new(raftmsg.RemoteError)) ||
			!t.awaitAnswer(to, request.Term) {
			return err
		}
	}
}

// awaitAnswer waits until a peer that did not take entries answers a heartbeat. false: this
// node has none for it any more. Without it Raft would wait by itself before it sends them
// again, each time twice as long up to 10 s, and not see that the peer is back: until then the
// shard would be without a replica that everybody takes for one.
func (t *Transport) awaitAnswer(p peer, term uint64) bool {
	failed := time.Now()
	for {
		w := t.raft.Load()
		if w == nil || !w.Sends(p.id, p.address, term) || time.Now().Before(t.impatient.Get()) {
			return false
		}
		if t.Progress()[p.id].Contact.After(failed) {
			return true
		}
		select {
		case <-time.After(AnswerPeriod):
		case <-t.ctx.Done():
			return false
		}
	}
}

// AnswerPeriod is how often a call looks whether a silent peer answers again.
const AnswerPeriod = 20 * time.Millisecond

// Handed returns when a leader handed over to this node last.
func (t *Transport) Handed() time.Time { return t.handed.Get() }

// HandOver ends what waits for silent peers, and has nothing wait for as long as calls may
// take. Raft needs that when it hands over leadership: it accepts no entries until the
// goroutine that sends them to the successor has listened to it.
func (t *Transport) HandOver() { t.impatient.Set(time.Now().Add(3 * t.timeout)) }

// shorten leaves out the last entries of a request that would be too long for a message;
// Raft goes by what the request has afterwards. It returns how long the peer may take.
func (t *Transport) shorten(request *raft.AppendEntriesRequest) time.Duration {
	size := 0
	for i, e := range request.Entries {
		more := raftmsg.EntrySize + len(e.Data) + len(e.Extensions)
		if size+more > raftmsg.MaxEntries && i > 0 {
			request.Entries = request.Entries[:i]
			break
		}
		size += more
	}
	return t.timeout * time.Duration(1+size/raftmsg.MaxEntries)
}

// answered notes that a peer has answered a request that was sent at this time or later.
func (t *Transport) answered(c *raftConn, sent time.Time, request *raft.AppendEntriesRequest,
	answer *raft.AppendEntriesResponse) {
	id := c.peer.id
	t.mu.Lock()
	p := t.progress[id]
	if p.Term != request.Term || p.Starts != c.starts {
		p = PeerProgress{Term: request.Term, Starts: c.starts}
	}
	p.Contact = time.Now()
	if answer.Success && !saysNothing(request) {
		p.Index = request.PrevLogEntry + uint64(len(request.Entries))
	}
	t.progress[id] = p
	t.mu.Unlock()
	if w := t.raft.Load(); w != nil {
		w.Answered(id, sent, answer.Term)
	}
}

// saysNothing reports whether a request is one of the heartbeats that say nothing of the log.
func saysNothing(r *raft.AppendEntriesRequest) bool {
	return r.PrevLogEntry == 0 && r.PrevLogTerm == 0 && len(r.Entries) == 0 && r.LeaderCommitIndex == 0
}

// call sends a request, and a snapshot if there is one, and reads the answer. A
// connection that was kept may have broken long ago; then a new one is tried.
func (t *Transport) call(p peer, request, into any, data io.Reader, timeout time.Duration) error {
	if err := t.mute(request); err != nil {
		return err
	}
	if err := t.settled(); err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	for {
		c, kept, err := t.connect(p, deadline)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(deadline) // a broken connection fails below
		sent := time.Now()
		if err = c.send(request, data); err == nil {
			err = c.receive(into)
		}
		if a, ok := request.(*raft.AppendEntriesRequest); ok && err == nil {
			t.answered(c, sent, a, into.(*raft.AppendEntriesResponse))
		}
		remote := raftmsg.RemoteError("")
		if answered := err == nil || errors.As(err, &remote); answered && data == nil {
			t.keep(c)
			return err
		}
		t.drop(c)
		if err == nil || !kept || data != nil || !time.Now().Before(deadline) {
			return err
		}
	}
}

// connect returns a connection that nobody uses, and whether it has been used before.
func (t *Transport) connect(p peer, deadline time.Time) (c *raftConn, kept bool, err error) {
	t.mu.Lock()
	if conns := t.idle[p]; len(conns) > 0 {
		c = conns[len(conns)-1]
		t.idle[p] = conns[:len(conns)-1]
	}
	t.mu.Unlock()
	if c != nil {
		return c, true, nil
	}
	ctx, cancel := context.WithDeadline(t.ctx, deadline)
	defer cancel()
	conn, starts, err := t.net.Dial(ctx, string(p.id), string(p.address))
	if err != nil {
		return nil, false, err
	}
	if !t.own(conn) {
		return nil, false, net.ErrClosed
	}
	return &raftConn{Conn: conn, peer: p, starts: starts, r: bufio.NewReader(conn)}, false, nil
}

// own has Close close a connection; if that has been called, it does so itself.
func (t *Transport) own(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		c.Close()
		return false
	}
	t.open[c] = struct{}{}
	return true
}

// disown closes a connection that own has got.
func (t *Transport) disown(c net.Conn) {
	t.mu.Lock()
	delete(t.open, c)
	t.mu.Unlock()
	c.Close()
}

func (t *Transport) drop(c *raftConn) { t.disown(c.Conn) }

// keep has the connection used again.
func (t *Transport) keep(c *raftConn) {
	t.mu.Lock()
	if t.open != nil && len(t.idle[c.peer]) < maxIdle {
		t.idle[c.peer] = append(t.idle[c.peer], c)
		c = nil
	}
	t.mu.Unlock()
	if c != nil {
		t.drop(c)
	}
}

// send writes a request, and the bytes of a snapshot.
func (c *raftConn) send(request any, data io.Reader) error {
	b, err := raftmsg.EncodeRequest(c.buf, request)
	if err != nil {
		return err
	}
	if c.buf = b; cap(b) > keepBuffer {
		c.buf = nil
	}
	if _, err = c.Write(b); err == nil && data != nil {
		_, err = io.Copy(c.Conn, data)
	}
	return err
}

// receive reads the answer.
func (c *raftConn) receive(into any) error {
	kind, body, err := raftmsg.Read(c.r, raftmsg.MaxResponse, func() {})
	if err != nil {
		return err
	}
	return raftmsg.DecodeResponse(kind, body, into)
}

// serve answers a peer's requests, until it closes the connection.
func (t *Transport) serve(c net.Conn, from string, admits func() error) error {
	if !t.own(c) {
		return nil
	}
	defer t.disown(c)
	r, out := bufio.NewReaderSize(c, 64<<10), []byte(nil)
	for {
		answer, err := t.next(c, r, from, admits)
		if err == nil {
			err = t.settled()
		}
		if err == nil {
			out, err = raftmsg.EncodeResponse(out, answer)
		}
		if err == nil {
			_ = c.SetWriteDeadline(time.Now().Add(messageTimeout))
			_, err = c.Write(out)
		}
		if err != nil {
			return err
		}
	}
}

// next reads a request and has Raft answer it.
func (t *Transport) next(c net.Conn, r *bufio.Reader, from string, admits func() error) (
	answer raft.RPCResponse, err error) {
	_ = c.SetReadDeadline(time.Now().Add(idleTimeout)) // a broken connection fails below
	kind, body, err := raftmsg.Read(r, raftmsg.MaxRequest, func() {
		_ = c.SetReadDeadline(time.Now().Add(messageTimeout))
	})
	if err != nil {
		return answer, err
	}
	request, err := raftmsg.DecodeRequest(kind, body)
	if err != nil {
		return answer, err
	}
	if string(request.GetRPCHeader().ID) != from {
		return answer, raftmsg.ErrMalformed
	}
	if refused := admits(); refused != nil {
		return answer, refused
	}
	answers := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{Command: request, RespChan: answers}
	if _, ok := request.(*raft.TimeoutNowRequest); ok {
		t.handed.Set(time.Now())
	}
	if a, ok := request.(*raft.AppendEntriesRequest); ok && len(a.Entries) > 0 {
		t.taking.Add(1) // before it looks: RefuseEntries looks in the other order
		defer t.taking.Add(-1)
		if t.refuses.Load() {
			return raft.RPCResponse{Error: errRefuses}, nil
		}
	}
	if s, ok := request.(*raft.InstallSnapshotRequest); ok {
		rpc.Reader = io.LimitReader(r, s.Size)
		if f := t.snapshot.Load(); f != nil {
			if _, err := io.Copy(io.Discard, rpc.Reader); err != nil {
				return answer, err
			}
			a, err := (*f)(s)
			return raft.RPCResponse{Response: a, Error: err}, nil
		}
	}
	if t.isHeartbeat(request) {
		(*t.heartbeat.Load())(rpc)
	} else {
		select {
		case t.requests <- rpc:
		case <-t.ctx.Done():
			return answer, net.ErrClosed
		}
	}
	select {
	case answer = <-answers:
		t.hears(request, answer)
		return t.given(request, answer), nil
	case <-t.ctx.Done(): // Raft stops without an answer
		return answer, net.ErrClosed
	}
}

// isHeartbeat reports whether a request goes past Raft's main thread.
func (t *Transport) isHeartbeat(request any) bool {
	r, ok := request.(*raft.AppendEntriesRequest)
	w := t.raft.Load()
	return ok && w != nil && t.heartbeat.Load() != nil && w.Follows(r.Term) && saysNothing(r)
}

// AppendEntriesPipeline is raft.Transport's.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, address raft.ServerAddress) (raft.AppendPipeline,
	error) {
	c, _, err := t.connect(peer{id, address}, time.Now().Add(t.timeout))
	if err != nil {
		return nil, err
	}
	p := &pipeline{t: t, c: c, sent: make(chan *future), answers: make(chan raft.AppendFuture),
		done: make(chan struct{})}
	go p.receive()
	return p, nil
}

// pipeline has up to two requests under way, as the library's own.
type pipeline struct {
	t       *Transport
	c       *raftConn
	sent    chan *future
	answers chan raft.AppendFuture
	done    chan struct{}
	close   sync.Once
}

// future is a request and what becomes of it.
type future struct {
	start    time.Time // before it was sent
	timeout  time.Duration
	request  *raft.AppendEntriesRequest
	response *raft.AppendEntriesResponse
	done     chan struct{}
	err      error // before done is closed
}

// Error is raft.Future's.
func (f *future) Error() error { <-f.done; return f.err }

// Start is raft.AppendFuture's.
func (f *future) Start() time.Time { return f.start }

// Request is raft.AppendFuture's.
func (f *future) Request() *raft.AppendEntriesRequest { return f.request }

// Response is raft.AppendFuture's.
func (f *future) Response() *raft.AppendEntriesResponse { return f.response }

// AppendEntries is raft.AppendPipeline's.
func (p *pipeline) AppendEntries(request *raft.AppendEntriesRequest,
	into *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.t.mute(request); err != nil {
		return nil, err
	}
	f := &future{start: time.Now(), request: request, response: into, done: make(chan struct{})}
	f.timeout = p.t.shorten(request)
	_ = p.c.SetWriteDeadline(f.start.Add(f.timeout)) // a broken connection fails below
	if err := p.c.send(request, nil); err != nil {
		return nil, err
	}
	select {
	case p.sent <- f:
		return f, nil
	case <-p.done:
		return nil, raft.ErrPipelineShutdown
	}
}

// receive reads the answers. Without one the pipeline is closed, and Raft, which sends
// something every few milliseconds, learns it when it sends the next.
func (p *pipeline) receive() {
	defer p.Close()
	for {
		select {
		case f := <-p.sent:
			_ = p.c.SetReadDeadline(time.Now().Add(f.timeout))
			f.err = p.c.receive(f.response)
			close(f.done)
			if f.err != nil {
				return
			}
			p.t.answered(p.c, f.start, f.request, f.response)
			select {
			case p.answers <- f:
			case <-p.done:
				return
			}
			if !f.response.Success || f.response.Term > f.request.Term {
				return // Raft reads no answer after such a one, but may still send
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
	p.close.Do(func() {
		close(p.done)
		p.t.drop(p.c)
	})
	return nil
}
