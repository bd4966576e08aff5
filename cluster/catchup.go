package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
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
//	         size and checksum, over a connection of KindFiles; it goes on where it was
//	         after a broken connection or a restart (catchupfetch.go)
//	examine  it opens what it has collected
//	swap     it notes in its own file that it takes them, stops, puts them in the place of
//	         its own, and starts again (catchupswap.go)
//
// What it asks, and what it is answered, has one form each. The node asks, the leader
// answers, in turn. Numbers are big endian:
//
//	question  verb u8 | cut, 16 bytes | a u64 | b u64 | n u32
//	answer    status u8 | length u32 | so many bytes
//
// The verbs: `manifest` asks for the manifest of a cut that takes the place of a log of
// which the last entry has index a and term b. `read` asks for n bytes from offset b on of
// file number a of the manifest: no name is ever asked for. `done` says that the files are
// not needed any more.
const (
	verbManifest = 'M'
	verbRead     = 'R'
	verbDone     = 'D'

	statusOK      = 0
	statusWait    = 1 // the cut is being made: ask again
	statusGone    = 2 // there is no such cut any more: ask for a manifest
	statusRefused = 3 // the bytes say why

	questionSize = 1 + 16 + 8 + 8 + 4
	answerHeader = 1 + 4
)

// Limits of what is sent.
const (
	maxRead     = 1 << 20 // bytes of a file in one answer
	maxManifest = 32 << 20
	maxReason   = 512
	maxFiles    = 128 << 10
	maxFile     = 1 << 42
	maxFileName = 128
	// answerTimeout is how long an answer may take, askTimeout how long a question.
	answerTimeout = time.Minute
	askTimeout    = 5 * time.Minute
)

// cutID names a cut. No two are the same.
type cutID [16]byte

// question is what a node asks.
type question struct {
	verb byte
	cut  cutID
	a, b uint64
	n    uint32
}

func (q question) encode() (b [questionSize]byte) {
	b[0] = q.verb
	copy(b[1:], q.cut[:])
	binary.BigEndian.PutUint64(b[17:], q.a)
	binary.BigEndian.PutUint64(b[25:], q.b)
	binary.BigEndian.PutUint32(b[33:], q.n)
	return b
}

// readQuestion reads a question.
func readQuestion(r io.Reader) (q question, err error) {
	var b [questionSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return q, err
	}
	q.verb = b[0]
	copy(q.cut[:], b[1:])
	q.a, q.b, q.n = binary.BigEndian.Uint64(b[17:]), binary.BigEndian.Uint64(b[25:]),
		binary.BigEndian.Uint32(b[33:])
	return q, nil
}

// Errors of a transfer.
var (
	errGone      = errors.New("the leader has dropped the cut")
	errWait      = errors.New("the leader is making a cut")
	errNotBehind = errors.New("this node is not behind the leader's files")
	errProtocol  = errors.New("a node does not keep to the protocol for files")
)

// writeAnswer writes an answer. The first answerHeader bytes of b are free for its header.
func writeAnswer(w io.Writer, status byte, b []byte) error {
	b[0] = status
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-answerHeader))
	_, err := w.Write(b)
	return err
}

// writeText writes an answer of a few words.
func writeText(w io.Writer, status byte, text string) error {
	return writeAnswer(w, status, append(make([]byte, answerHeader), text[:min(len(text), maxReason)]...))
}

// readAnswer reads an answer of at most limit bytes, into dst if they fit.
func readAnswer(r io.Reader, dst []byte, limit int) ([]byte, error) {
	var header [answerHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	status, n := header[0], int64(binary.BigEndian.Uint32(header[1:]))
	if status != statusOK {
		limit = maxReason
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("%w: an answer of %d bytes", errProtocol, n)
	}
	// What is claimed to come is believed as it comes.
	b := dst[:0]
	for int64(len(b)) < n {
		b = slices.Grow(b, int(min(n-int64(len(b)), maxRead)))
		part := b[len(b):min(int64(cap(b)), n)]
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		b = b[:len(b)+len(part)]
	}
	switch status {
	case statusOK:
		return b, nil
	case statusWait:
		return nil, errWait
	case statusGone:
		return nil, errGone
	case statusRefused:
		if string(b) == errNotBehind.Error() {
			return nil, errNotBehind
		}
		return nil, fmt.Errorf("the leader cannot give its files: %q", b)
	}
	return nil, fmt.Errorf("%w: an answer of kind %d", errProtocol, status)
}

// A manifest says what a cut consists of: JSON.
type manifest struct {
	// Cut is its id, 32 hex digits.
	Cut string `json:"cut"`
	// Files are those of a data directory, by their names, ascending.
	Files []cutFile `json:"files"`
	// Snapshot is what the leader's Raft keeps beside its log; nil: nothing, the log begins
	// with the first entry.
	Snapshot *raft.SnapshotMeta `json:"snapshot,omitempty"`
}

// cutFile is a file of a cut.
type cutFile struct {
	// Name is its path in the data directory, with slashes.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Sum is the CRC-32C of its bytes.
	Sum uint32 `json:"sum"`
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
	if err := decodeStrictly(b, m); err != nil {
		return nil, fmt.Errorf("%w: a manifest: %w", errProtocol, err)
	}
	return m, m.valid()
}

// id returns the cut's id.
func (m *manifest) id() (id cutID) {
	_, _ = hex.Decode(id[:], []byte(m.Cut)) // valid
	return id
}

// bytes returns the size of all files.
func (m *manifest) bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// valid checks every rule.
func (m *manifest) valid() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: a manifest: %s", errProtocol, fmt.Sprintf(format, args...))
	}
	if _, err := hex.DecodeString(m.Cut); err != nil || len(m.Cut) != 2*len(cutID{}) {
		return bad("%.50q is not an id", m.Cut)
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return bad("%d files", len(m.Files))
	}
	for i, f := range m.Files {
		switch {
		case !validFileName(f.Name):
			return bad("%.150q is not a file's name in a data directory", f.Name)
		case f.Size < 0 || f.Size > maxFile:
			return bad("%s has %d bytes", f.Name, f.Size)
		case i > 0 && m.Files[i-1].Name >= f.Name:
			return bad("%s follows %s", f.Name, m.Files[i-1].Name)
		}
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
