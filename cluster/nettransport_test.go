package cluster

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/internal/testwait"
)

// testSecret is the secret of the clusters of tests.
const testSecret = "sixteen bytes or more"

// exampleHeader and the responses have every field set.
var exampleHeader = raft.RPCHeader{ProtocolVersion: 3, ID: []byte(testID("1")),
	Addr: []byte("127.0.0.1:7001")}

func exampleResponses() []any {
	return []any{
		&raft.AppendEntriesResponse{RPCHeader: exampleHeader, Term: 1, LastLog: 2, Success: true,
			NoRetryBackoff: true},
		&raft.RequestVoteResponse{RPCHeader: exampleHeader, Term: 1, Granted: true},
		&raft.RequestPreVoteResponse{RPCHeader: exampleHeader, Term: 1, Granted: true},
		&raft.InstallSnapshotResponse{RPCHeader: exampleHeader, Term: 1, Success: true},
		&raft.TimeoutNowResponse{RPCHeader: exampleHeader},
	}
}

// testID returns an id made of one digit.
func testID(digit string) string { return strings.Repeat(digit, 40) }

// testNode is a Raft node in memory over a Net.
type testNode struct {
	id        raft.ServerID
	net       *Net
	transport *raftgroup.Transport
	raft      *raft.Raft
	confirmer *raftgroup.Confirmer
}

// noMachine is a state machine without a state.
type noMachine struct{}

func (noMachine) Apply(*raft.Log) any                 { return nil }
func (noMachine) Snapshot() (raft.FSMSnapshot, error) { return noMachine{}, nil }
func (noMachine) Restore(r io.ReadCloser) error       { return r.Close() }
func (noMachine) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (noMachine) Release()                            {}

// startNodes starts voters of one cluster, whose names are single digits, with faults
// between them, in a network in memory.
func startNodes(t testing.TB, f *faults, names ...string) map[string]*testNode {
	t.Helper()
	nodes := map[string]*testNode{}
	var configuration raft.Configuration
	for _, name := range names {
		l := f.listen(0)
		f.listens(l.Addr().String(), name)
		n, err := Listen(l, NetOptions{Self: Identity{Cluster: testID("c"), Node: testID(name), Format: 1},
			Secret: testSecret, Dial: f.dialer(name)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		node := &testNode{id: raft.ServerID(testID(name)), net: n}
		node.transport = n.Transport(KindRaft, n.Addr().String(), 500*time.Millisecond)
		configuration.Servers = append(configuration.Servers,
			raft.Server{ID: node.id, Address: node.transport.LocalAddr()})
		nodes[name] = node
	}
	for _, node := range nodes {
		c := raft.DefaultConfig()
		c.LocalID, c.Logger = node.id, hclog.NewNullLogger()
		c.HeartbeatTimeout, c.ElectionTimeout = 500*time.Millisecond, 500*time.Millisecond
		c.LeaderLeaseTimeout = 300 * time.Millisecond
		logs, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(c, logs, logs, snapshots, node.transport, configuration); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(c, noMachine{}, logs, logs, snapshots, node.transport)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		})
		node.raft, node.confirmer = r, raftgroup.NewConfirmer(r, node.transport, node.id)
	}
	return nodes
}

// leader waits until one of the nodes leads and has committed an entry of its term.
func leader(t testing.TB, nodes map[string]*testNode, among ...string) (string, *testNode) {
	t.Helper()
	for end := time.Now().Add(testwait.Limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, name := range among {
			if n := nodes[name]; n.raft.State() == raft.Leader && n.raft.Barrier(time.Second).Error() == nil {
				return name, n
			}
		}
	}
	t.Fatal("no leader")
	return "", nil
}

// others returns the names without one.
func others(names []string, without string) (rest []string) {
	for _, name := range names {
		if name != without {
			rest = append(rest, name)
		}
	}
	return rest
}

// TestRaftOverNet elects, replicates, hands leadership over and goes on without its
// leader.
func TestRaftOverNet(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var f faults
		names := []string{"1", "2", "3"}
		nodes := startNodes(t, &f, names...)
		name, first := leader(t, nodes, names...)
		for i := range 200 {
			if err := first.raft.Apply(fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 10_000)),
				time.Minute).Error(); err != nil {
				t.Fatal(err)
			}
		}
		to := nodes[others(names, name)[0]]
		if err := first.raft.LeadershipTransferToServer(to.id, to.transport.LocalAddr()).Error(); err != nil {
			t.Fatal(err)
		}
		name, second := leader(t, nodes, names...)
		rest := others(names, name)
		f.isolate(name, rest...)
		name, third := leader(t, nodes, rest...)
		if err := third.raft.Apply([]byte("without it"), time.Minute).Error(); err != nil {
			t.Fatal(err)
		}
		f.reconnect(name, others(names, name)...)
		f.reconnect(rest[0], others(names, rest[0])...)
		f.reconnect(rest[1], others(names, rest[1])...)
		for second.raft.AppliedIndex() < third.raft.AppliedIndex() {
			time.Sleep(time.Millisecond)
		}
	})
}

// TestKeptConnections goes on when the connections that were kept have broken meanwhile.
func TestKeptConnections(t *testing.T) {
	t.Parallel()
	var f faults
	_, from := startTransport(t, "1", NetOptions{Secret: testSecret, Dial: f.dialer("1")})
	_, to := startTransport(t, "2", NetOptions{Secret: testSecret})
	f.listens(string(to.LocalAddr()), "2")
	go obey(t, to)
	for i := range 5 {
		var response raft.AppendEntriesResponse
		if err := from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), heartbeat("1", 7),
			&response); err != nil || response.Term != 7 {
			t.Fatalf("%d: %+v %v", i, response, err)
		}
		f.reset("1", "2")
	}
}

// heartbeat is what a leader of this term sends.
func heartbeat(leader string, term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3,
		ID: []byte(testID(leader)), Addr: []byte("x")}, Term: term}
}

// TestAnswers brings back errors, and all kinds of answers.
func TestAnswers(t *testing.T) {
	t.Parallel()
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	answers := make(chan raft.RPCResponse, 1)
	go func() {
		for answer := range answers {
			rpc := <-to.Consumer()
			if rpc.Reader != nil {
				data, err := io.ReadAll(rpc.Reader)
				if answer.Error == nil && (err != nil || string(data) != "state") {
					answer.Error = fmt.Errorf("read %q: %v", data, err)
				}
			}
			rpc.Respond(answer.Response, answer.Error)
		}
	}()
	defer close(answers)
	id, at := raft.ServerID(testID("2")), to.LocalAddr()
	for i, call := range []func(into any) error{
		func(into any) error {
			return from.AppendEntries(id, at, heartbeat("1", 1), into.(*raft.AppendEntriesResponse))
		},
		func(into any) error {
			return from.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: exampleHeader},
				into.(*raft.RequestVoteResponse))
		},
		func(into any) error {
			return from.RequestPreVote(id, at, &raft.RequestPreVoteRequest{RPCHeader: exampleHeader},
				into.(*raft.RequestPreVoteResponse))
		},
		func(into any) error {
			return from.InstallSnapshot(id, at,
				&raft.InstallSnapshotRequest{RPCHeader: exampleHeader, SnapshotVersion: 1, Size: 5,
					Configuration: raft.EncodeConfiguration(raft.Configuration{})},
				into.(*raft.InstallSnapshotResponse), strings.NewReader("state"))
		},
		func(into any) error {
			return from.TimeoutNow(id, at, &raft.TimeoutNowRequest{RPCHeader: exampleHeader},
				into.(*raft.TimeoutNowResponse))
		},
	} {
		want := exampleResponses()[i]
		for _, failure := range []error{nil, errors.New("no")} {
			answers <- raft.RPCResponse{Response: want, Error: failure}
			got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
			err := call(got)
			if failure == nil && (err != nil || !reflect.DeepEqual(got, want)) || failure != nil &&
				(err == nil || err.Error() != "no") {
				t.Errorf("%T: %+v %v", want, got, err)
			}
		}
	}
}

// TestWrongNode reaches no node but the one that is meant, and believes no sender but the
// node that dialed.
func TestWrongNode(t *testing.T) {
	t.Parallel()
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	go obey(t, to)
	var response raft.AppendEntriesResponse
	if err := from.AppendEntries(raft.ServerID(testID("3")), to.LocalAddr(), heartbeat("1", 1),
		&response); err == nil {
		t.Error("a node answers for another that had its address")
	}
	if err := from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), heartbeat("3", 1),
		&response); err == nil {
		t.Error("a node speaks for another")
	}
	if err := from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), heartbeat("1", 1),
		&response); err != nil {
		t.Error(err)
	}
}

// TestHeartbeats takes a heartbeat past Raft's main thread if this node is a follower in
// its term, and no other message.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	to.Observe(&raftgroup.Watcher{Follows: func(term uint64) bool { return term == 7 }})
	way := make(chan string, 1)
	answer := func(rpc raft.RPC, name string) {
		way <- name
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	}
	to.SetHeartbeatHandler(func(rpc raft.RPC) { answer(rpc, "past") })
	go func() {
		for {
			select {
			case rpc := <-to.Consumer():
				answer(rpc, "main")
			case <-t.Context().Done():
				return
			}
		}
	}()
	with := func(change func(*raft.AppendEntriesRequest)) *raft.AppendEntriesRequest {
		r := heartbeat("1", 7)
		change(r)
		return r
	}
	for _, c := range []struct {
		request *raft.AppendEntriesRequest
		want    string
	}{
		{heartbeat("1", 7), "past"},
		{heartbeat("1", 8), "main"}, // would change the term beside the main thread
		{heartbeat("1", 6), "main"},
		{with(func(r *raft.AppendEntriesRequest) { r.PrevLogEntry = 1 }), "main"},
		{with(func(r *raft.AppendEntriesRequest) { r.PrevLogTerm = 1 }), "main"},
		{with(func(r *raft.AppendEntriesRequest) { r.LeaderCommitIndex = 1 }), "main"},
		{with(func(r *raft.AppendEntriesRequest) { r.Entries = []*raft.Log{{Index: 1}} }), "main"},
	} {
		var response raft.AppendEntriesResponse
		if err := from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), c.request,
			&response); err != nil {
			t.Fatal(err)
		}
		if got := <-way; got != c.want {
			t.Errorf("%+v takes the way %s", c.request, got)
		}
	}
}

// TestPipelineEndsWithRefusal: Raft reads no answer after one that refuses or is of a later term,
// but may have more to send. A pipeline that waited for its reader would hold Raft for ever.
func TestPipelineEndsWithRefusal(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]raft.AppendEntriesResponse{
		"refused":    {Term: 7},
		"later term": {Term: 8, Success: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, from := startTransport(t, "1", NetOptions{})
			_, to := startTransport(t, "2", NetOptions{})
			p, err := from.AppendEntriesPipeline(raft.ServerID(testID("2")), to.LocalAddr())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					select {
					case rpc := <-to.Consumer():
						rpc.Respond(&refusal, nil)
					case <-t.Context().Done():
						return
					}
				}
			}()
			if _, err := p.AppendEntries(heartbeat("1", 7), new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
			<-p.Consumer()
			for err == nil {
				_, err = p.AppendEntries(heartbeat("1", 7), new(raft.AppendEntriesResponse))
			}
		})
	}
}

// TestEntriesWaitForSilentPeer: entries that a peer did not take go to it as soon as it answers a
// heartbeat, and Raft is not told of a failure; unless this node has none for it any more, or
// hands over.
func TestEntriesWaitForSilentPeer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var f faults
		const timeout = 100 * time.Millisecond
		node, _ := startTransportAt(t, f.listen(0), "1", NetOptions{Dial: f.dialer("1")})
		from := node.Transport(KindRaft, "", timeout)
		_, to := startTransportAt(t, f.listen(0), "2", NetOptions{})
		id := raft.ServerID(testID("2"))
		f.listens(string(to.LocalAddr()), "2")
		waits := make(chan bool, 1)
		var leads atomic.Bool
		from.Observe(&raftgroup.Watcher{Term: func() uint64 { return 7 },
			Answered: func(raft.ServerID, time.Time, uint64) {},
			Sends: func(peer raft.ServerID, _ raft.ServerAddress, term uint64) bool {
				select {
				case waits <- peer == id && term == 7:
				default:
				}
				return leads.Load()
			}})
		entries := heartbeat("1", 7)
		entries.PrevLogEntry, entries.PrevLogTerm = 1, 7
		send := func() (ended chan error) {
			ended = make(chan error, 1)
			f.isolate("1", "2")
			go func() {
				ended <- from.AppendEntries(id, to.LocalAddr(), entries, new(raft.AppendEntriesResponse))
			}()
			return ended
		}
		wait := func(ended chan error) {
			t.Helper()
			select {
			case right := <-waits:
				if !right {
					t.Error("another peer is waited for, or another term")
				}
			case err := <-ended:
				t.Fatalf("Raft is told of it: %v", err)
			}
		}
		if err := <-send(); err == nil {
			t.Error("who does not lead any more waits")
		}
		if len(waits) == 0 {
			t.Fatal("whether it leads is not asked")
		}
		<-waits
		leads.Store(true)
		ended := send()
		wait(ended)
		wait(ended) // it looks again
		f.reconnect("1", "2")
		go obey(t, to)
		for from.AppendEntries(id, to.LocalAddr(), heartbeat("1", 7), new(raft.AppendEntriesResponse)) != nil {
		}
		if err := <-ended; err != nil {
			t.Errorf("the peer is back, and gets no entries: %v", err)
		}
		ended = send()
		wait(ended)
		for n, over := 0, false; !over; n++ {
			if n == 100 {
				t.Fatal("while leadership is handed over entries wait")
			}
			from.HandOver()
			select {
			case err := <-ended:
				if over = true; err == nil {
					t.Error("they were answered")
				}
			case <-time.After(timeout):
			}
		}
	})
}

// TestMalformedMessage breaks a connection off, and says so once.
func TestMalformedMessage(t *testing.T) {
	t.Parallel()
	lines := new(logged)
	from, _ := startTransport(t, "1", NetOptions{})
	n, to := startTransport(t, "2", NetOptions{Log: slog.New(slog.NewTextHandler(lines, nil))})
	for range 3 {
		c, err := from.Dial(t.Context(), "", string(to.LocalAddr()), KindRaft)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("\xff\xff\xff\xff\x01")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it is answered")
		}
	}
	must(t, n.Close()) // which waits for lines that are written after a connection has ended
	if n := lines.count("malformed"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// TestCloseEndsWaiting closes a transport while its peer waits for Raft, and expects no
// more.
func TestCloseEndsWaiting(t *testing.T) {
	t.Parallel()
	_, from := startTransport(t, "1", NetOptions{})
	net, to := startTransport(t, "2", NetOptions{})
	failed := make(chan error)
	go func() {
		failed <- from.RequestVote(raft.ServerID(testID("2")), to.LocalAddr(),
			&raft.RequestVoteRequest{RPCHeader: exampleHeader}, new(raft.RequestVoteResponse))
	}()
	rpc := <-to.Consumer()
	if err := to.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("a vote of a closed transport")
	}
	if err := net.Close(); err != nil {
		t.Error(err)
	}
	rpc.Respond(&raft.RequestVoteResponse{}, nil) // too late, and nobody waits
}

// TestBatchesAreBounded sends as many entries as a message may hold, and one that is
// longer alone; Raft learns what was sent from the request.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	go obey(t, to)
	id := raft.ServerID(testID("2"))
	p, err := from.AppendEntriesPipeline(id, to.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, c := range []struct {
		sizes []int
		want  int
	}{
		{[]int{400 << 10, 400 << 10, 400 << 10, 1}, 2},
		{[]int{5 << 20, 1}, 1},
		{[]int{1, 5 << 20}, 1},
		{[]int{1, 1, 1}, 3},
	} {
		request := func() *raft.AppendEntriesRequest {
			r := heartbeat("1", 1)
			r.PrevLogEntry = 10
			for i, size := range c.sizes {
				r.Entries = append(r.Entries, &raft.Log{Index: 11 + uint64(i), Data: make([]byte, size)})
			}
			return r
		}
		alone, piped := request(), request()
		if err := from.AppendEntries(id, to.LocalAddr(), alone,
			new(raft.AppendEntriesResponse)); err != nil || len(alone.Entries) != c.want {
			t.Errorf("%v: %d entries are sent: %v", c.sizes, len(alone.Entries), err)
		}
		if _, err := p.AppendEntries(piped, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		if f := <-p.Consumer(); f.Error() != nil || len(f.Request().Entries) != c.want {
			t.Errorf("%v: %d entries are sent in a pipeline: %v", c.sizes, len(f.Request().Entries),
				f.Error())
		}
		if got := from.Progress()[id].Index; got != 10+uint64(c.want) {
			t.Errorf("%v: the peer has the log up to %d", c.sizes, got)
		}
	}
}

// TestRemovedNode does not hear a node any more that it no longer admits, on an old
// connection either.
func TestRemovedNode(t *testing.T) {
	t.Parallel()
	var removed atomic.Bool
	lines := new(logged)
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2",
		NetOptions{Log: slog.New(slog.NewTextHandler(lines, nil)), Admit: func(Identity, byte) error {
			if removed.Load() {
				return errors.New("it is no member")
			}
			return nil
		}})
	go obey(t, to)
	for range 2 {
		err := from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), heartbeat("1", 1),
			new(raft.AppendEntriesResponse))
		if (err != nil) != removed.Load() {
			t.Errorf("removed %v: %v", removed.Load(), err)
		}
		removed.Store(true)
	}
	lines.until(t, "it is no member")
}

// TestFilesAreAwaited: a leader asks a peer that fetches files again soon, and gives up only when
// it has nothing for it any more.
func TestFilesAreAwaited(t *testing.T) {
	t.Parallel()
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	var leads atomic.Bool
	leads.Store(true)
	from.Observe(&raftgroup.Watcher{Sends: func(raft.ServerID, raft.ServerAddress, uint64) bool {
		return leads.Load()
	}})
	asked := 0
	to.OnSnapshot(func(q *raft.InstallSnapshotRequest) (*raft.InstallSnapshotResponse, error) {
		if asked++; asked%3 != 0 {
			return &raft.InstallSnapshotResponse{}, errors.New("it fetches")
		}
		return &raft.InstallSnapshotResponse{Success: true}, nil
	})
	install := func() error {
		var answer raft.InstallSnapshotResponse
		err := from.InstallSnapshot(raft.ServerID(testID("2")), to.LocalAddr(),
			&raft.InstallSnapshotRequest{RPCHeader: exampleHeader,
				SnapshotVersion: 1, Size: 5, Configuration: raft.EncodeConfiguration(raft.Configuration{})},
			&answer, strings.NewReader("state"))
		if err == nil && !answer.Success {
			t.Error("no success")
		}
		return err
	}
	if err := install(); err != nil || asked != 3 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	leads.Store(false)
	if err := install(); err == nil || asked != 4 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
