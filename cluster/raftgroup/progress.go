package raftgroup

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// PeerProgress is how far a peer is, as a leader has learnt it.
type PeerProgress struct {
	// Index is up to which the peer is known to have the leader's log on disk.
	// In another term this is 0: another leader may have cut what the peer had.
	Index uint64
	// Contact is when it answered last.
	Contact time.Time
	// Term is this leader's, Starts the number of the peer's start.
	Term, Starts uint64
}

// Progress returns how far the peers are that have answered.
func (t *Transport) Progress() map[raft.ServerID]PeerProgress {
	term := uint64(0)
	if w := t.raft.Load(); w != nil {
		term = w.Term()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	progress := maps.Clone(t.progress)
	for id, p := range progress {
		if term != 0 && p.Term != term {
			p.Index = 0
			progress[id] = p
		}
	}
	return progress
}

// Silence has a leader say nothing to those that follow it, or ends that, and returns what was so
// before: they elect another one.
func (t *Transport) Silence(silent bool) (was bool) { return t.silent.Swap(silent) }

// Silent reports whether a leader says nothing.
func (t *Transport) Silent() bool { return t.silent.Load() }

// errSilent is why nothing is sent.
var errSilent = errors.New("this node is silent so that another one is elected")

// keepsAlive reports whether a request keeps a peer from an election.
func keepsAlive(request any) bool {
	switch request.(type) {
	case *raft.AppendEntriesRequest, *raft.InstallSnapshotRequest:
		return true
	}
	return false
}

// mute returns why a request is not sent to a peer.
func (t *Transport) mute(request any) error {
	if t.silent.Load() && keepsAlive(request) {
		return errSilent
	}
	return t.net.Doubts()
}

// given returns Raft's answer to a request, unless it is a vote that this node must not give.
func (t *Transport) given(request any, answer raft.RPCResponse) raft.RPCResponse {
	switch request.(type) {
	case *raft.RequestVoteRequest, *raft.RequestPreVoteRequest:
		if err := t.net.Doubts(); err != nil {
			return raft.RPCResponse{Error: err}
		}
	}
	return answer
}

// RefuseEntries has all entries refused that others send from now on, or ends that. It reports
// whether Raft has answered all that came before.
func (t *Transport) RefuseEntries(yes bool) (settled bool) {
	t.refuses.Store(yes)
	return t.taking.Load() == 0
}

// Refuses reports whether entries are refused, and Raft has answered all that came before.
func (t *Transport) Refuses() bool { return t.refuses.Load() && t.taking.Load() == 0 }

// errRefuses is why entries are refused.
var errRefuses = errors.New("this node takes the leader's files instead of entries")

// Heard is what a leader has said of the log last.
type Heard struct {
	At     time.Time
	Commit uint64 // the last entry that was committed
	// Begun: an entry of the leader's own term is committed. Before that it may know of less than was
	// committed, since it may have been started a moment ago.
	Begun bool
}

// Heard returns what a leader has said last. Its heartbeats say nothing; it speaks of the log
// several times a second.
func (t *Transport) Heard() Heard {
	if h := t.heard.Load(); h != nil {
		return *h
	}
	return Heard{}
}

// hears notes what a leader says of the log, whether or not this node could take in the entries
// that came with it.
func (t *Transport) hears(request any, answer raft.RPCResponse) {
	a, ok := request.(*raft.AppendEntriesRequest)
	said, answered := answer.Response.(*raft.AppendEntriesResponse)
	if ok && answered && !saysNothing(a) && said.Term == a.Term {
		t.heard.Store(&Heard{time.Now(), a.LeaderCommitIndex, hasBegun(a)})
	}
}

// hasBegun reports whether a request shows that an entry of its leader's term is committed.
func hasBegun(a *raft.AppendEntriesRequest) bool {
	if a.PrevLogTerm == a.Term {
		return a.PrevLogEntry <= a.LeaderCommitIndex
	}
	return slices.ContainsFunc(a.Entries, func(e *raft.Log) bool {
		return e.Term == a.Term && e.Index <= a.LeaderCommitIndex
	})
}

// Moment is a time that one goroutine notes and others read. It is kept whole, with the reading of
// the monotonic clock, which no change of the machine's time moves.
type Moment struct{ at atomic.Pointer[time.Time] }

// Set notes a time.
func (m *Moment) Set(t time.Time) { m.at.Store(&t) }

// Get returns the time; zero: none.
func (m *Moment) Get() time.Time {
	if t := m.at.Load(); t != nil {
		return *t
	}
	return time.Time{}
}
