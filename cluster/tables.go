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
	// preparePart is how long it waits for all shards to be searched (store.TableSet.NeedsSearch), comingPart
	// after how long each node takes that back: the node that waits may have ended.
	preparePart, comingPart = 8, 16
	// tablesRetry is how long the leader of a shard waits until it tries again to log the tables.
	tablesRetry = 200 * time.Millisecond
	// tablesPoll is how often CTABLE looks who has them.
	tablesPoll = 5 * time.Millisecond
	maxRefusal = 300
)

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
	// Next, unless it is nil, are the tables that the cluster is about to have, if no shard finds anything in
	// their way (store.TableSet.NeedsSearch). No shard lets the keys concerned be written meanwhile.
	Next store.TableSet `json:"next,omitempty"`
}

func (t Tables) equal(o Tables) bool {
	return t.Version == o.Version && t.Dropped == o.Dropped && t.Set.Equal(o.Set) && t.Next.Equal(o.Next)
}

// follows checks that t may take the place of older tables. shared: other regions count the
// same keys.
func (t Tables) follows(old Tables, shared bool) error {
	same := old
	if !t.Set.Equal(old.Set) || !t.Next.Equal(old.Next) {
		same = Tables{Version: old.Version + 1, Dropped: t.Dropped, Set: t.Set, Next: t.Next}
	}
	if !t.equal(same) {
		return invalid("the tables' version %d follows %d", t.Version, old.Version)
	}
	if old.Set.NeedsSearch(t.Set, shared) && (len(old.Next) == 0 || old.Next.NeedsSearch(t.Set, shared)) {
		return invalid("the shards were not searched for what is in the way of other tables")
	}
	return nil
}

func (t Tables) valid() error {
	if err := t.Set.Validate(); err != nil {
		return invalid("%v", err)
	}
	if len(t.Next) > 0 {
		if err := t.Next.Validate(); err != nil {
			return invalid("%v", err)
		}
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
	var coming Tables
	var since time.Time
	for {
		leads, configured := k.node.Changed(), k.meta.Changed()
		var again, tooLong <-chan time.Time
		if k.node.Leads() && !k.keep() {
			again = time.After(tablesRetry)
		}
		if now := k.meta.Configuration().Tables; !now.equal(coming) {
			coming, since = now, time.Now()
		}
		if len(coming.Next) > 0 { // the node that began this may have ended
			tooLong = time.After(comingPart*k.meta.o.Timeout - time.Since(since))
		}
		select {
		case <-leads:
		case <-configured:
		case <-again:
		case <-tooLong:
			_ = k.giveUp(coming)
			since = time.Now()
		case <-k.node.stop:
			return
		}
	}
}

// giveUp takes back that tables are coming.
func (k *TableKeeper) giveUp(coming Tables) error {
	ctx, cancel := context.WithTimeout(context.Background(), tablesPart*k.meta.o.Timeout)
	defer cancel()
	return k.meta.Configure(ctx, func(c *Configuration) error {
		if c.Tables.equal(coming) {
			c.Tables = Tables{Version: coming.Version + 1, Dropped: coming.Dropped, Set: coming.Set}
		}
		return nil
	})
}

// keep logs the newest tables in the partitions that lack them, and reports whether all have them.
func (k *TableKeeper) keep() bool {
	c, was := k.meta.Configuration(), k.kept.Load()
	if c.Version == 0 {
		return true
	}
	now := *was
	err := k.node.st.SetTables(c.Tables.Set, c.Tables.Next, c.Tables.Version)
	if err == nil && len(c.Tables.Next) > 0 && was.version < c.Tables.Version {
		err = k.node.st.SearchTables()
	}
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

// change changes the tables and waits until all shards have them. If that needs a search, all shards are
// prepared for it first.
func (k *TableKeeper) change(change func(Tables) (store.TableSet, error), dropped string) error {
	prepared := uint64(0) // the version of the tables for which all shards are prepared
	for range maxRounds {
		ctx, cancel := context.WithTimeout(context.Background(), tablesPart*k.meta.o.Timeout)
		defer cancel()
		t, err := k.configure(ctx, change, dropped, prepared)
		if err != nil {
			return err
		}
		if len(t.Next) == 0 {
			return k.await(ctx, t.Version)
		}
		if err := k.prepare(t); err != nil {
			if k.giveUp(t) == nil {
				_ = k.await(ctx, t.Version+1) // the shards' refusals are no longer about this change
			}
			return err
		}
		prepared = t.Version
	}
	return errComing
}

// maxRounds is how often a change is prepared again because others give it up.
const maxRounds = 4

// configure changes the tables in the configuration, or has all shards prepare for that first. It returns
// them as they are then.
func (k *TableKeeper) configure(ctx context.Context, change func(Tables) (store.TableSet, error),
	dropped string, prepared uint64) (now Tables, err error) {
	changed := false
	configure := func() error {
		return k.meta.Configure(ctx, func(c *Configuration) error {
			t := c.Tables
			now = t
			next, err := change(t)
			if err != nil || next.Equal(t.Set) || next.Equal(t.Next) && t.Version != prepared {
				return err
			}
			if err := k.node.st.CheckTables(next); err != nil {
				return err // what this node has no room for the others would not have either
			}
			c.Tables = Tables{Version: t.Version + 1, Dropped: dropped, Set: next}
			switch searches := t.Set.NeedsSearch(next, c.Regions.Shared()); {
			case len(t.Next) > 0 && (t.Version != prepared || !next.Equal(t.Next)):
				return errComing
			case searches && t.Version != prepared && len(c.Moves) > 0:
				return errMovesFirst
			case searches && t.Version != prepared:
				c.Tables = Tables{Version: t.Version + 1, Dropped: t.Dropped, Set: t.Set, Next: next}
			}
			changed, now = true, c.Tables
			return nil
		})
	}
	err = configure()
	if !changed { // perhaps it is another node's change that makes it possible, or necessary
		if err = k.meta.CatchUp(ctx); err == nil {
			err = configure()
		}
	}
	if errors.Is(err, errNoMeta) {
		err = undecided(err.Error())
	}
	return now, err
}

// The refusals of a change that needs a search before any shard is asked.
var (
	errComing     error = unchanged("SCALE, MIN or MAX of another table is being changed: try again")
	errMovesFirst error = unchanged("partitions are moving: change SCALE, MIN or MAX when they arrived")
)

// unchanged is a store.ErrTableChanging with a text of its own: nothing has changed, and it may
// go well if it is tried again.
type unchanged string

func (u unchanged) Error() string        { return string(u) }
func (u unchanged) Is(target error) bool { return target == store.ErrTableChanging }

// prepare waits until every shard has searched for counters and operations in the way.
func (k *TableKeeper) prepare(t Tables) error {
	ctx, cancel := context.WithTimeout(context.Background(), preparePart*k.meta.o.Timeout)
	defer cancel()
	lacks, why := k.poll(ctx, t.Version, func(why string) bool { return why != "" })
	switch {
	case lacks == "":
		return nil
	case why != "":
		return refusedTables(why)
	case ctx.Err() == nil:
		return undecided("this node ends")
	}
	return unchanged(fmt.Sprintf("the shard %.8s could not be searched in time for counters in the way, and "+
		"nothing has changed: try again", lacks))
}

// refusedTables returns the error with which a node has refused tables, of which only the text has come here.
func refusedTables(why string) error {
	for _, err := range []error{store.ErrTableChanging, store.ErrDiskFull} {
		if why == err.Error() {
			return err // which clients are told by a code of its own
		}
	}
	return errors.New(why)
}

// await waits until all shards have a version of the tables.
func (k *TableKeeper) await(ctx context.Context, version uint64) error {
	lacks, why := k.poll(ctx, version, func(string) bool { return false })
	if lacks == "" {
		return nil
	}
	if why != "" {
		why = ": " + why
	}
	return undecided(fmt.Sprintf("the cluster's tables have changed, but the shard %.8s does not have "+
		"that yet%s. It follows as soon as it can; "+
		"the same command waits for it again", lacks, why))
}

// poll is lacks, once all shards have the version, end says so, ctx is done, or this node ends.
func (k *TableKeeper) poll(ctx context.Context, version uint64, end func(why string) bool) (shard,
	why string) {
	poll := time.NewTicker(tablesPoll)
	defer poll.Stop()
	for {
		if shard, why = k.lacks(version); shard == "" || end(why) {
			return shard, why
		}
		select {
		case <-poll.C:
			continue
		case <-ctx.Done():
		case <-k.node.stop:
		}
		return shard, why
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
		case s.ID == k.shard && k.node.Leads():
			has, why = k.Kept()
		default:
			leader, _, _ := k.leaders.Of(s.ID)
			has, why = leader.Tables, leader.Refusal
		}
		if has < version {
			return s.ID, why
		}
	}
	return "", ""
}
