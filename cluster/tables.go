package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fbfkv/fbfkv/store"
)

const (
	// tablesPart is the part of the node timeout for which CTABLE waits for all shards.
	tablesPart = 2
	// tablesRetry is how long the leader of a shard waits until it tries again to log the tables.
	tablesRetry = 200 * time.Millisecond
	// tablesPoll is how often CTABLE looks who has them.
	tablesPoll = 5 * time.Millisecond
	maxRefusal = 200
)

// ErrScale: one shard could take another SCALE while another one has counters of the old one.
var ErrScale = errors.New("SCALE cannot change in a cluster: count the smallest unit, such as cents, as an " +
	"integer, or use one server")

// Tables are the definitions that CTABLE changes. The leader of each shard brings its own to what they
// say (TableKeeper).
type Tables struct {
	// Version counts their changes; a cluster begins with 1, or behind what its data have seen.
	Version uint64 `json:"version"`
	// Dropped is the table that the newest change has dropped, so that who got no answer can ask
	// again; "": it was another change.
	Dropped string `json:"dropped,omitempty"`
	// Set has all tables.
	Set store.TableSet `json:"set"`
}

func (t Tables) equal(o Tables) bool {
	return t.Version == o.Version && t.Dropped == o.Dropped && t.Set.Equal(o.Set)
}

// follows checks that t may take the place of older tables.
func (t Tables) follows(old Tables) error {
	same := old
	if !t.Set.Equal(old.Set) {
		same = Tables{Version: old.Version + 1, Dropped: t.Dropped, Set: t.Set}
	}
	if !t.equal(same) {
		return invalid("the tables' version %d follows %d", t.Version, old.Version)
	}
	return nil
}

func (t Tables) valid() error {
	if err := t.Set.Validate(); err != nil {
		return invalid("%v", err)
	}
	b, err := json.Marshal(t)
	switch {
	case err != nil:
		return invalid("its tables: %v", err)
	case t.Version == 0:
		return invalid("its tables have no version")
	case len(b) > maxTables:
		return invalid("its tables have %d bytes, more than %d: take fewer, or shorter names and prefixes",
			len(b), maxTables)
	case len(t.Dropped) > store.MaxTableName || !utf8.ValidString(t.Dropped):
		return invalid("the name of the table that was dropped has %d bytes, or is not UTF-8", len(t.Dropped))
	case slices.ContainsFunc(t.Set, func(o store.TableOptions) bool { return o.Name == t.Dropped }):
		return invalid("the table %q was dropped and is there", t.Dropped)
	}
	return nil
}

// TableKeeper is this node's part in keeping the tables of all shards the same. CTABLE changes the
// configuration's Tables. While the node leads its shard it makes the shard's tables equal to them:
// by one entry of its log, which has their version, so that a leader that knows an older
// configuration than one before it takes nothing back. Safe for concurrent use.
type TableKeeper struct {
	node    *Node
	meta    *Meta
	leaders *Leaders
	shard   string // of this node
	onNews  func()
	kept    atomic.Pointer[keptTables]
}

// keptTables is what this node has logged as the leader of its shard.
type keptTables struct {
	version uint64
	refusal string // why it could not log the next one
}

// KeepTables begins to keep the tables, until the node is closed. onNews is called when Kept
// returns something else.
func KeepTables(node *Node, meta *Meta, leaders *Leaders, shard string, onNews func()) *TableKeeper {
	k := &TableKeeper{node: node, meta: meta, leaders: leaders, shard: shard, onNews: onNews}
	k.kept.Store(new(keptTables))
	node.running.Go(k.run)
	return k
}

// Kept returns the version of the tables that this node has logged in its shard, as the leader, and
// why it cannot log the newest; "": it can.
func (k *TableKeeper) Kept() (version uint64, refusal string) {
	kept := k.kept.Load()
	return kept.version, kept.refusal
}

func (k *TableKeeper) run() {
	for {
		leads, configured := k.node.Changed(), k.meta.Changed()
		var again <-chan time.Time
		if k.node.Leads() && !k.keep() {
			again = time.After(tablesRetry)
		}
		select {
		case <-leads:
		case <-configured:
		case <-again:
		case <-k.node.stop:
			return
		}
	}
}

// keep logs the newest tables in the partitions that lack them, and reports whether all have them.
func (k *TableKeeper) keep() bool {
	c, was := k.meta.Configuration(), k.kept.Load()
	if c.Version == 0 {
		return true
	}
	now := *was
	err := k.node.st.SetTables(c.Tables.Set, c.Tables.Version)
	switch {
	case err == nil:
		now = keptTables{version: max(was.version, c.Tables.Version)}
	case errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrUndecided):
		now.refusal = ""
	default:
		now.refusal = strings.ToValidUTF8(err.Error()[:min(len(err.Error()), maxRefusal)], "")
	}
	if now != *was {
		if now.refusal != "" {
			k.node.o.Logger.Warn("this shard cannot apply the cluster's tables yet", "version",
				c.Tables.Version, "error", err)
		}
		k.kept.Store(&now)
		k.onNews()
	}
	return err == nil
}

// CreateTable adds a table to all shards. Like the two below it returns nil once every shard has
// logged that, and does so if it was so already. Errors: those of package store, or one that is
// store.ErrUndecided and says who lacks it: it comes there later, or the same command asks again.
func (k *TableKeeper) CreateTable(o store.TableOptions) error {
	return k.change(func(t Tables) (store.TableSet, error) { return t.Set.Create(o) }, "")
}

// AlterTable changes a table's options.
func (k *TableKeeper) AlterTable(name string, ch store.TableChange) error {
	return k.change(func(t Tables) (store.TableSet, error) { return t.Set.Alter(name, ch) }, "")
}

// DropTable drops a table. One that the newest change has dropped already is no error.
func (k *TableKeeper) DropTable(name string) error {
	return k.change(func(t Tables) (store.TableSet, error) {
		if name != "" && t.Dropped == name {
			return t.Set, nil
		}
		return t.Set.Drop(name)
	}, name)
}

// change changes the tables and waits until all shards have them.
func (k *TableKeeper) change(change func(Tables) (store.TableSet, error), dropped string) error {
	ctx, cancel := context.WithTimeout(context.Background(), tablesPart*k.meta.o.Timeout)
	defer cancel()
	changed := false
	configure := func() error {
		return k.meta.Configure(ctx, func(c *Configuration) error {
			next, err := change(c.Tables)
			if err != nil || next.Equal(c.Tables.Set) {
				return err
			}
			if c.Tables.Set.Rescales(next) {
				return ErrScale
			}
			if err := k.node.st.CheckTables(next); err != nil {
				return err // what this node has no room for the others would not have either
			}
			changed, c.Tables = true, Tables{Version: c.Tables.Version + 1, Dropped: dropped, Set: next}
			return nil
		})
	}
	err := configure()
	if !changed { // perhaps it is another node's change that makes it possible, or necessary
		if err = k.meta.CatchUp(ctx); err == nil {
			err = configure()
		}
	}
	if errors.Is(err, errNoMeta) {
		return undecided(err.Error())
	}
	if err != nil {
		return err
	}
	version := k.meta.Configuration().Tables.Version
	poll := time.NewTicker(tablesPoll)
	defer poll.Stop()
	for {
		lacks, why := k.lacks(version)
		if lacks == "" {
			return nil
		}
		select {
		case <-poll.C:
			continue
		case <-ctx.Done():
		case <-k.node.stop:
		}
		if why != "" {
			why = ": " + why
		}
		return undecided(fmt.Sprintf("the cluster's tables have changed, but the shard %.8s does not have "+
			"that yet%s. It follows as soon as it can; "+
			"the same command waits for it again", lacks, why))
	}
}

// undecided is an error that is store.ErrUndecided, with a text of its own.
type undecided string

func (u undecided) Error() string        { return string(u) }
func (u undecided) Is(target error) bool { return target == store.ErrUndecided }

// lacks returns a shard that, as far as this node knows, has not logged a version of the tables, and why it
// cannot; "": all have. One that nobody has begun counts if it has partitions.
func (k *TableKeeper) lacks(version uint64) (shard, why string) {
	for _, s := range k.meta.Configuration().Shards {
		var has uint64
		switch {
		case s.Founder == "" && s.Count() == 0:
			continue
		case s.ID != k.shard:
			leader, _, _ := k.leaders.Of(s.ID)
			has, why = leader.Tables, leader.Refusal
		case k.node.Leads():
			has, why = k.Kept()
		default: // what is redone here was committed
			has, _, _ = k.node.st.TablesVersion()
		}
		if has < version {
			return s.ID, why
		}
	}
	return "", ""
}
