package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/wire"
)

// A node that is behind the oldest entry of the leader's log, because it was away for long,
// has lost its disk or is new, takes the leader's files in the place of its own; the entries
// behind them follow as usual. Raft's own way would send all that in one call, with a
// deadline, and everything else would wait for it. So a node refuses Raft's snapshots, and
// takes these steps instead:
//
//	cut      the leader makes a copy of its data directory, and keeps the entries of its log
//	         from there on (catchupserve.go)
//	fetch    the node collects the copy's files in the directory `incoming`, each with its
//	         size and checksum; it goes on where it was after a broken connection or a
//	         restart (catchupfetch.go)
//	examine  it opens what it has collected
//	swap     it notes in its own file that it takes them, stops, puts them in the place of
//	         its own, and starts again (catchupswap.go)
//
// It asks by the verbs of package wire: for the manifest of a cut that takes the place of its own log,
// then for the files that the manifest offers, and says when it does not need them any more.
const (
	verbManifest = "manifest" // takes a manifestAsk; the manifest is behind the answer
	verbDone     = "done"     // takes a doneAsk
)

type (
	// manifestAsk has the last entry of the log whose place the cut takes.
	manifestAsk struct {
		Last uint64 `json:"last"`
		Term uint64 `json:"term"`
	}
	doneAsk struct {
		Cut string `json:"cut"`
	}
)

// Limits of the messages.
const (
	maxManifest = 32 << 20
	maxFileName = 128
	// answerTimeout is how long an answer may take.
	answerTimeout = time.Minute
)

// Errors of a transfer.
var (
	errWait      = &wire.Refusal{Code: "wait", Text: "the leader is making a cut"}
	errNotBehind = &wire.Refusal{Code: "notbehind", Text: "this node is not behind the leader's files"}
)

// A manifest says what a cut consists of: JSON. The offer has the files of a data directory, and the
// cut's id.
type manifest struct {
	wire.Offer
	// Snapshot is what the leader's Raft keeps beside its log; nil: nothing, the log begins
	// with the first entry.
	Snapshot *raft.SnapshotMeta `json:"snapshot,omitempty"`
}

// encode returns the bytes of a valid manifest.
func (m *manifest) encode() ([]byte, error) {
	if err := m.valid(); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// decodeManifest reads what encode wrote, and trusts none of it.
func decodeManifest(b []byte) (*manifest, error) {
	m := new(manifest)
	if err := wire.Decode(b, m); err != nil {
		return nil, fmt.Errorf("%w: a manifest: %w", wire.ErrProtocol, err)
	}
	return m, m.valid()
}

// valid checks every rule.
func (m *manifest) valid() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: a manifest: %s", wire.ErrProtocol, fmt.Sprintf(format, args...))
	}
	if err := m.Offer.Valid(validFileName); err != nil {
		return err
	}
	if m.Snapshot == nil {
		return nil
	}
	switch s := m.Snapshot; {
	case s.Size != 0:
		return bad("a snapshot of %d bytes", s.Size)
	case s.Index == 0 || s.Term == 0 || s.ConfigurationIndex > s.Index ||
		s.Version != raft.SnapshotVersionMax:
		return bad("a snapshot of index %d, term %d, configuration %d, version %d", s.Index, s.Term,
			s.ConfigurationIndex, s.Version)
	case len(s.ID) > maxFileName || len(s.Peers) > 0:
		return bad("a snapshot with more than belongs to it")
	case len(s.Configuration.Servers) == 0 || len(s.Configuration.Servers) > MaxMembers:
		return bad("a shard of %d nodes", len(s.Configuration.Servers))
	}
	for _, server := range m.Snapshot.Configuration.Servers {
		if !validID(string(server.ID)) || server.Address == "" || len(server.Address) > maxHost+10 ||
			server.Suffrage != raft.Voter && server.Suffrage != raft.Nonvoter {
			return bad("a shard with node %.50q at %.50q", server.ID, server.Address)
		}
	}
	return nil
}

// cutDirs are the directories of a data directory that have files of a cut; cutTops are the
// files beside them.
var (
	cutDirs = []string{"db", "log", "runs", "snapshots"}
	cutTops = []string{"META", "LOGSYNC", "MANISYNC"}
)

// validFileName reports whether a name can be that of a file in a data directory: it does
// not lead out of it, and not to a file that is a node's own.
func validFileName(name string) bool {
	if slices.Contains(cutTops, name) {
		return true
	}
	dir, base, ok := strings.Cut(name, "/")
	return ok && slices.Contains(cutDirs, dir) && len(name) <= maxFileName && base != "" && base[0] != '.' &&
		strings.Trim(strings.ToLower(base), "abcdefghijklmnopqrstuvwxyz0123456789-._") == ""
}

// takesPlaceOf reports whether nothing is lost when a node gives up its log, of which the
// last entry has an index and a term, for files that hold all that was committed up to the
// entry (applied, appliedTerm). It is so if the log ends there: what a log has up to there is
// the same, or was never committed. And it is so if the log's last entry is of an earlier
// term: the leader of appliedTerm appended that entry to a log that had all that was committed
// before, and at these places there was nothing. Any other log has entries that this
// node may have promised to keep, and gets the others by AppendEntries.
func takesPlaceOf(applied, appliedTerm, last, lastTerm uint64) bool {
	return last <= applied || lastTerm < appliedTerm
}

// Transfers counts transfers of files, in one direction. Its methods are safe for concurrent
// use.
type Transfers struct {
	begun, finished, failed, bytes atomic.Uint64
}

// TransferCounts are the counts of a Transfers: how many a node has begun, finished, and
// given up before the end, and their bytes.
type TransferCounts struct{ Begun, Finished, Failed, Bytes uint64 }

// add adds counts.
func (t *Transfers) add(c TransferCounts) {
	t.begun.Add(c.Begun)
	t.finished.Add(c.Finished)
	t.failed.Add(c.Failed)
	t.bytes.Add(c.Bytes)
}

// Counts returns the counts.
func (t *Transfers) Counts() TransferCounts {
	return TransferCounts{t.begun.Load(), t.finished.Load(), t.failed.Load(), t.bytes.Load()}
}
