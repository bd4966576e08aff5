package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
)

// ErrMember: a data directory belongs to a cluster, and was about to be used without it.
var ErrMember = errors.New("the data directory belongs to a node of a cluster")

// errRemoved: a directory has what a cluster does not need any more.
var errRemoved = errors.New("the node was removed from its cluster, and another node may have its place: " +
	"start it with an empty directory")

// errRecovered: a directory's data went to a new one, or was about to.
var errRecovered = errors.New("fbfkv cluster recover has taken what the node has, or was about to, so " +
	"that it never takes part in its cluster again: " +
	"run that once more if it was interrupted, and start this server with an empty directory")

// membershipValue is the name of what Stable has of a Directory.
const membershipValue = "fbfkv.membership"

// Directory is the data directory of a node as far as its cluster is concerned: what the
// node is, before its store is opened. What a step towards another state leaves behind when
// it is interrupted, the next OpenDirectory finishes. Safe for concurrent use.
type Directory struct {
	// Stable is the file CLUSTER in it.
	Stable *raftgroup.Stable

	fs   vfs.FS
	path string

	changing longlock.Mutex // held, before mu, over the fsync of a change

	mu     sync.Mutex // for moments only: every message of Raft asks what the directory is
	is     membership
	member *Configuration // that of is, decoded; nil: no member
}

// membership is what the file says.
type membership struct {
	// Configuration is the newest that the node has seen, encoded; nil: it is no member.
	Configuration []byte `json:"configuration,omitempty"`
	// Founder: the node has made the cluster, and may not have logged that yet.
	Founder bool `json:"founder,omitempty"`
	// Removed is the id of the cluster whose member it was.
	Removed string `json:"removed,omitempty"`
	// Recovered: Recover has made the node the only one of its cluster, which no server may go by.
	Recovered bool `json:"recovered,omitempty"`
	// Restored is the backup that the store was made from; Shard is the one that it is of if that
	// is one of several, and After the version of that cluster's configuration.
	Restored string `json:"restored,omitempty"`
	Shard    string `json:"shard,omitempty"`
	After    uint64 `json:"after,omitempty"`
	// Pending is the step that must be done before the store is opened: pendingErase, and then
	// pendingAdopt if From is a directory that takes the place of the erased one; or pendingFound.
	Pending string `json:"pending,omitempty"`
	From    string `json:"from,omitempty"`
}

// The steps that may be pending.
const (
	pendingErase = "erase"
	pendingAdopt = "adopt"
	pendingFound = "found"
)

// restoredName is where a backup is copied to before it becomes the directory.
const restoredName = "restored"

// OpenDirectory opens what a data directory says of the node, and makes both if they are
// missing. No other process may have it open. That of a node that was removed from its cluster is
// refused, and one that was recovered. fsys nil is the machine's file system.
func OpenDirectory(fsys vfs.FS, path string) (*Directory, error) {
	return openDirectory(fsys, path, false)
}

// openDirectory opens the directory at path; one that was recovered only if recovers says that it
// is recovered again.
func openDirectory(fsys vfs.FS, path string, recovers bool) (*Directory, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	stable, err := raftgroup.OpenStable(fsys, path)
	if err != nil {
		return nil, err
	}
	d := &Directory{Stable: stable, fs: fsys, path: path}
	is, err := readMembership(stable)
	if err == nil && is.Removed != "" {
		err = errRemoved
	}
	if err == nil && is.Recovered && !recovers {
		err = errRecovered
	}
	if err == nil {
		err = d.set(is)
	}
	if err == nil {
		err = d.finish()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", path, err), stable.Close())
	}
	return d, nil
}

func readMembership(s *raftgroup.Stable) (m membership, err error) {
	b, err := s.Get([]byte(membershipValue))
	if err != nil || len(b) == 0 {
		return m, err
	}
	if err := wire.Decode(b, &m); err != nil {
		return m, fmt.Errorf("%w: its membership cannot be read: %w", persistence.ErrCorrupt, err)
	}
	return m, nil
}

// finish carries out what is pending. The store is not open.
func (d *Directory) finish() error {
	if d.is.Pending == pendingFound {
		if err := d.found(); err != nil {
			return err
		}
		return d.change(func(m *membership) { m.Pending = "" })
	}
	if d.is.Pending == pendingErase {
		if err := persistence.Erase(d.fs, d.path); err != nil {
			return err
		}
		if err := d.change(func(m *membership) {
			if m.Pending = ""; m.From != "" {
				m.Pending = pendingAdopt
			}
		}); err != nil {
			return err
		}
	}
	if d.is.Pending == pendingAdopt {
		if err := persistence.Adopt(d.fs, d.is.From, d.path); err != nil {
			return err
		}
		return d.change(func(m *membership) { m.Pending, m.From = "", "" })
	}
	// Nothing is to come of what an interrupted restore has copied.
	return d.fs.RemoveAll(d.fs.PathJoin(d.path, restoredName))
}

// foundedAt is the index at which the log of a cluster begins whose founder brings data: none
// has the entry before, so that it cannot be sent to anybody.
const foundedAt = 2

// found makes the log of a cluster begin behind the data that its founder brings, as behind a
// snapshot: others do not find that data in the log, and must take the founder's files.
func (d *Directory) found() error {
	c, _ := d.Configuration()
	self := c.Member(d.ID())
	if self == nil {
		return invalid("the founder is no member")
	}
	if err := d.Stable.SetUint64([]byte(raftgroup.TermValue), 1); err != nil {
		return err
	}
	only := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(self.ID),
		Address: raft.ServerAddress(self.ClusterAddress())}}}
	sink, err := d.Stable.Create(1, foundedAt, 1, only, foundedAt, nil)
	if err != nil {
		return err
	}
	return raftgroup.Own{Sync: d.Stable.Settle}.Persist(sink)
}

// change changes what the file says, durably.
func (d *Directory) change(fn func(*membership)) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	next := d.state()
	fn(&next)
	b, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := d.Stable.Set([]byte(membershipValue), b); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set(next)
}

// set takes in what the file says.
func (d *Directory) set(is membership) error {
	d.is, d.member = is, nil
	if is.Configuration == nil {
		return nil
	}
	c, err := DecodeConfiguration(is.Configuration)
	d.member = &c
	return err
}

// ID returns the node's id.
func (d *Directory) ID() string { return d.Stable.Node() }

// Configuration returns the newest configuration that the node has seen; false: the node is
// no member of a cluster. Nobody may change what it holds.
func (d *Directory) Configuration() (c Configuration, member bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.member == nil {
		return c, false
	}
	return *d.member, true
}

// Founder reports whether the node has made its cluster and may still have to begin its log.
func (d *Directory) Founder() bool { return d.state().Founder }

func (d *Directory) state() membership {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.is
}

// Learn keeps a configuration that was committed, unless a newer one is kept: a node that was started
// again meets old ones in its log. If it went by them it would refuse the members that came later,
// and if one of these leads would never hear of the newer ones.
func (d *Directory) Learn(c Configuration) error {
	if kept, member := d.Configuration(); member && kept.Version > c.Version {
		return nil
	}
	b, err := c.Encode()
	if err != nil || bytes.Equal(b, d.state().Configuration) && !d.Founder() {
		return err
	}
	return d.change(func(m *membership) { m.Configuration, m.Founder = b, false })
}

// become makes the node a member from the next start on: of a cluster that it founds if founder is
// true, or else joins. It starts with an empty store if erase is true, or else with its present
// data, behind which the log of its shard begins.
func (d *Directory) become(c Configuration, founder, erase bool) error {
	b, err := c.Encode()
	if err != nil {
		return err
	}
	return d.change(func(m *membership) {
		*m = membership{Configuration: b, Founder: founder}
		switch {
		case erase:
			m.Pending = pendingErase
		default:
			m.Pending = pendingFound
		}
	})
}

// Leave makes the directory one that no node uses any more. Its data stays.
func (d *Directory) Leave(cluster string) error {
	return d.change(func(m *membership) { *m = membership{Removed: cluster} })
}

// retire makes the directory one that no server uses any more, but Recover.
func (d *Directory) retire() error {
	return d.change(func(m *membership) { m.Recovered = true })
}

// restore copies a backup, which takes the place of the store at the next start. of is nil if it does not say
// what it is of.
func (d *Directory) restore(backup string, of *Origin) error {
	from := d.fs.PathJoin(d.path, restoredName)
	if err := d.fs.RemoveAll(from); err != nil {
		return err
	}
	if err := persistence.Restore(d.fs, backup, from, func(_, _ int64) {}); err != nil {
		return err
	}
	return d.change(func(m *membership) {
		*m = membership{Restored: backup, Pending: pendingErase, From: from}
		if of != nil {
			if m.After = of.Version; !of.Whole() {
				m.Shard = of.Shard
			}
		}
	})
}

// Close closes the file.
func (d *Directory) Close() error { return d.Stable.Close() }

// CheckAlone refuses a data directory that belongs, or has belonged, to a node of a cluster:
// ErrMember. What a server without its cluster did there, the others would not know.
func CheckAlone(fsys vfs.FS, path string) error {
	if fsys == nil {
		fsys = vfs.Default
	}
	_, err := fsys.Stat(filepath.Join(path, persistence.ValuesName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return nil // what cannot be entered cannot be opened either, and then the store says why
	}
	stable, err := raftgroup.OpenStable(fsys, path)
	if err != nil {
		return err
	}
	m, err := readMembership(stable)
	if err := errors.Join(err, stable.Close()); err != nil {
		return err
	}
	if m.Configuration != nil || m.Removed != "" {
		return fmt.Errorf("%w: %s; start it with --cluster-enabled yes, or make a single server's "+
			"directory of a backup", ErrMember, path)
	}
	return nil
}
