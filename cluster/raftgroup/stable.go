package raftgroup

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// The names of a node's own values; Raft's have its own names.
const (
	nodeValue     = "fbfkv.node"
	snapshotValue = "fbfkv.snapshot"
	startsValue   = "fbfkv.starts"
)

// TermValue is Raft's name of the term.
const TermValue = "CurrentTerm"

// MaxContent bounds the content of a snapshot, bytes: an encoded configuration of the cluster.
const MaxContent = 128 << 10

// Stable has what belongs to this node alone: its id, a Raft group's term and vote, and what Raft
// calls a snapshot. It is the file CLUSTER of the data directory, which no backup has (R9). It
// is a raft.StableStore and a raft.SnapshotStore. Safe for concurrent use.
//
// All is durable when the call returns but Raft's numbers. Raft sets up to two of them before
// it votes, and each would cost the election as much as the vote itself. They become durable
// with the vote, or with Settle before anything else rests on them: before a message leaves
// (Transport) or the log changes (LogStore). Without that nobody can tell a
// crash after the number was set from one before.
type Stable struct {
	values *persistence.Values
	node   string
	prefix string // of the names of the group's values; "": of the shard's
	whole  bool   // snapshots have the whole state, so that another node's is as good

	closing longlock.Mutex // a snapshot, which is compared with the last one before
}

// OpenStable opens the values of a data directory, which need not exist; nil is the
// operating system's file system. A new one draws the node's id.
func OpenStable(fsys vfs.FS, dir string) (*Stable, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	v, err := persistence.OpenValues(fsys, dir)
	if err != nil {
		return nil, err
	}
	id, err := v.Get(nodeValue)
	if err == nil && len(id) == 0 {
		id = []byte(NewID())
		err = v.Set(nodeValue, id)
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return &Stable{values: v, node: string(id)}, nil
}

// Meta returns the same of the meta group, in the same file, which it does not close.
func (s *Stable) Meta() *Stable {
	return &Stable{values: s.values, node: s.node, prefix: "meta.", whole: true}
}

// Node returns the node's id, which was drawn with the directory: 40 hexadecimal digits.
func (s *Stable) Node() string { return s.node }

// startBits are the low bits of a start's number, which are drawn at random. So if a copy of the
// directory is put back and started as often as the original, its number is another one: a lower
// one, or one that looks like a later start, whose log must hold what the original has acknowledged
// since.
const startBits = 24

// CountStart raises the number of the directory's start, durably, and returns it (R9).
func (s *Stable) CountStart() (number uint64, err error) {
	if number, err = s.GetUint64([]byte(startsValue)); err == nil {
		number = (number>>startBits+1)<<startBits | rand.Uint64N(1<<startBits)
		err = s.Set([]byte(startsValue), binary.BigEndian.AppendUint64(nil, number))
	}
	return number, err
}

// Close closes the file.
func (s *Stable) Close() error { return s.values.Close() }

// Work is the file's writes and fsyncs, for oplog's Watch.
func (s *Stable) Work() *disk.Work { return s.values.Work() }

// Set sets a value durably; a nil one deletes it.
func (s *Stable) Set(key, value []byte) error { return s.values.Set(s.prefix+string(key), value) }

// Get returns a value, empty if there is none.
func (s *Stable) Get(key []byte) ([]byte, error) { return s.values.Get(s.prefix + string(key)) }

// SetUint64 sets a number, which is durable after the next Set or Settle.
func (s *Stable) SetUint64(key []byte, n uint64) error {
	return s.values.SetSoon(s.prefix+string(key), binary.BigEndian.AppendUint64(nil, n))
}

// ForRaft returns the Stable as Raft uses it. Raft panics if a number cannot be set; here the process ends
// with the reason, and until then nothing leaves the node and the log does not change, because
// Settle fails as well.
func (s *Stable) ForRaft(fail func(error)) raft.StableStore { return numbers{s, fail} }

type numbers struct {
	*Stable
	fail func(error)
}

// SetUint64 implements raft.StableStore.
func (s numbers) SetUint64(key []byte, n uint64) error {
	if err := s.Stable.SetUint64(key, n); err != nil {
		s.fail(err)
	}
	return nil
}

// Settle makes durable what SetUint64 has set.
func (s *Stable) Settle() error { return s.values.Settle() }

// GetUint64 returns a number, 0 if there is none.
func (s *Stable) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	switch {
	case err != nil || len(b) == 0:
		return 0, err
	case len(b) != 8:
		return 0, fmt.Errorf("%w: value %q is no number", persistence.ErrCorrupt, key)
	}
	return binary.BigEndian.Uint64(b), nil
}

// snapshot is what is kept of Raft's last snapshot: what it is of. Its state is the data
// directory.
type snapshot struct {
	Meta    raft.SnapshotMeta
	Content []byte
}

// snapshotSink is a raft.SnapshotSink.
type snapshotSink struct {
	s    *Stable
	snap snapshot
	own  bool // of what this node has applied, or whole
	done bool
}

// errNotOwn refuses a snapshot that a leader has sent (cluster/catchup.go).
var errNotOwn = errors.New("a node takes no snapshot of another")

// Create begins a snapshot, which takes the place of the last one as it is closed.
func (s *Stable) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("snapshot version %d is not supported", version)
	}
	return &snapshotSink{s: s, own: s.whole, snap: snapshot{Meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}}, nil
}

// SetLast makes a snapshot the last one, durably, which has no content; nil: there is none.
func (s *Stable) SetLast(meta *raft.SnapshotMeta) error {
	var b []byte
	if meta != nil {
		var err error
		if b, err = json.Marshal(snapshot{Meta: *meta}); err != nil {
			return err
		}
	}
	return s.Set([]byte(snapshotValue), b)
}

// last returns the last snapshot, nil if there is none.
func (s *Stable) last() (*snapshot, error) {
	b, err := s.Get([]byte(snapshotValue))
	if err != nil || len(b) == 0 {
		return nil, err
	}
	var last snapshot
	if err := json.Unmarshal(b, &last); err != nil {
		return nil, fmt.Errorf("%w: the snapshot's value: %w", persistence.ErrCorrupt, err)
	}
	return &last, nil
}

// Last returns what the last snapshot is of, nil if there is none.
func (s *Stable) Last() (*raft.SnapshotMeta, error) {
	last, err := s.last()
	if err != nil || last == nil {
		return nil, err
	}
	return &last.Meta, nil
}

// List returns the last snapshot, if there is one.
func (s *Stable) List() ([]*raft.SnapshotMeta, error) {
	last, err := s.last()
	if err != nil || last == nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{&last.Meta}, nil
}

// Open opens the snapshot with an id.
func (s *Stable) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	last, err := s.last()
	if err != nil {
		return nil, nil, err
	}
	if last == nil || last.Meta.ID != id {
		return nil, nil, fmt.Errorf("snapshot %q is gone", id)
	}
	return &last.Meta, io.NopCloser(bytes.NewReader(last.Content)), nil
}

// ID returns the snapshot's id.
func (k *snapshotSink) ID() string { return k.snap.Meta.ID }

// Write adds to the snapshot's content.
func (k *snapshotSink) Write(p []byte) (int, error) {
	if len(k.snap.Content)+len(p) > MaxContent {
		return 0, fmt.Errorf("a snapshot has more than %d bytes", MaxContent)
	}
	k.snap.Content = append(k.snap.Content, p...)
	return len(p), nil
}

// Close makes it the last snapshot, durably, unless it was cancelled or closed. It is refused if
// there is a newer one: the leader's may come while this node takes its own, and the log does not
// reach back to the older one any more.
func (k *snapshotSink) Close() error {
	if k.done {
		return nil
	}
	if !k.own {
		return errNotOwn
	}
	k.done = true
	k.snap.Meta.Size = int64(len(k.snap.Content))
	b, err := json.Marshal(k.snap)
	if err != nil {
		return err
	}
	k.s.closing.Lock()
	defer k.s.closing.Unlock()
	last, err := k.s.Last()
	if err != nil {
		return err
	}
	if last != nil && last.Index > k.snap.Meta.Index {
		return fmt.Errorf("there is a snapshot of entry %d already, which is newer than entry %d", last.Index,
			k.snap.Meta.Index)
	}
	return k.s.Set([]byte(snapshotValue), b)
}

// Cancel drops it.
func (k *snapshotSink) Cancel() error {
	k.done = true
	return nil
}
