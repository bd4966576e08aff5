package raftgroup

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// NewID draws an id: of a cluster, a shard or a node.
func NewID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Config returns what the Raft groups have in common. The parts are of the node timeout; elected is told when
// the node begins to lead, or ends.
func Config(id string, timeout time.Duration, election, lease, commit float64, elected chan bool,
	log *slog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	part := func(p float64) time.Duration { return time.Duration(p * float64(timeout)) }
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout = part(election),
		part(election), part(lease), part(commit)
	c.NoLegacyTelemetry = true // each of its measures again under another name
	c.NotifyCh = elected
	c.Logger = hclog.FromStandardLogger(slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		&hclog.LoggerOptions{Level: hclog.Info})
	return c
}

// Begin makes this node the first and only voter of a new Raft group, unless that has a log or a
// snapshot already.
func Begin(c *raft.Config, logs raft.LogStore, stable *Stable, t raft.Transport) error {
	last, err := logs.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	if meta, err := stable.Last(); err != nil || meta != nil {
		return err
	}
	// An earlier attempt may have ended between the term and the log; nobody else knows of it.
	if err := stable.SetUint64([]byte(TermValue), 0); err != nil {
		return err
	}
	only := raft.Configuration{Servers: []raft.Server{{ID: c.LocalID, Address: t.LocalAddr()}}}
	return raft.BootstrapCluster(c, logs, stable, stable, t, only)
}

// LeadAlone lets this node lead at once if it is the only voter of its Raft group. Raft would wait for an
// election timeout first, lest there be a leader that it has not heard. That could only be the node itself.
func LeadAlone(r *raft.Raft, id string) {
	if voters := Voters(r); len(voters) != 1 || voters[0] != raft.ServerID(id) {
		return
	}
	// A follower whose timeout becomes shorter ends its wait at once. Raft refuses timeouts of less than some
	// milliseconds: then the wait is short anyway.
	c := r.ReloadableConfig()
	c.HeartbeatTimeout--
	_ = r.ReloadConfig(c)
}

// Own is a snapshot of what this node has applied, a raft.FSMSnapshot. A Stable takes no other one,
// unless snapshots have the whole state.
type Own struct {
	Content []byte
	// Sync makes durable what was applied: Raft begins behind the snapshot at the next start, so that
	// recovery must reach it.
	Sync func() error
}

// Persist implements raft.FSMSnapshot.
func (o Own) Persist(sink raft.SnapshotSink) error {
	err := o.Sync()
	if err == nil {
		sink.(*snapshotSink).own = true
		_, err = sink.Write(o.Content)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (o Own) Release() {}
