package commands

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// What regions ask each other. All but the conversation with the client is package regions'.

// doRegionPull is REGION.PULL. It runs alone, so that nobody but its own connection waits for it.
func doRegionPull(c *Context) {
	if c.Server.Regions == nil {
		c.W.Error("NOREGION " + store.ErrNoRegions.Error())
		return
	}
	if cluster := c.Server.Cluster; cluster != nil {
		if why := cluster.NotReady(); why != "" { // another node of the shard knows more
			c.W.Error("ERR " + why)
			return
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	// The answer has RESP2's types whatever the connection speaks. Its bound is the one that
	// was asked for, with a section of the op log: were it client-output-buffer-limit, a section
	// larger than that could never be read.
	proto, limit := c.W.Proto, c.W.Limit
	defer func() { c.W.Proto, c.W.Limit = proto, limit }()
	c.W.Proto, c.W.Limit = 2, 0
	if c.Session.told == nil {
		c.Session.told = new(regions.Told)
	}
	c.watched(ctx, cancel, func() { c.Server.Regions.Pull(ctx, c.Session.told, c.Args[1:], c.W) })
}

// watched calls do, whose context is canceled when nobody waits for the reply any more or the server stops.
// Meanwhile only do uses the connection.
func (c *Context) watched(ctx context.Context, cancel func(), do func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.watchFor(ctx, cancel)
	}()
	do()
	cancel()
	<-ended // the session is the connection's again
}

// watchFor calls end when nobody waits for the reply any more or the server stops, unless ctx
// is done before. Meanwhile the connection's owner must leave the session alone.
func (c *Context) watchFor(ctx context.Context, end func()) {
	look := time.NewTicker(lookAfterHeld)
	defer look.Stop()
	for !c.Session.gone() {
		select {
		case <-ctx.Done():
			return
		case <-c.Server.Stopping:
			end()
			return
		case <-look.C:
		}
	}
	end()
}

// regionPullCommands are what regions ask each other.
var regionPullCommands = []Command{
	{
		Name: "region.pull", Arity: -2,
		Flags: Admin | NoScript | NoAsyncLoading | NoMulti | SkipSlowlog | unpaused | untimed,
		Group: groupRegions, Since: "0.2.0",
		Complexity: "O(N), where N is the number of bytes that are answered; with DIGEST, " +
			"the number of keys in the slots",
		Tips: changingTip, Run: doRegionPull,
		Summary: "The request of a region to another one: it returns the log entries after the given " +
			"sequences, and waits up to BLOCK milliseconds if there are none. A word before the arguments " +
			"asks for something else. NEXT: the entries after those of the request before. STATE: a page " +
			"of the counters and opids of slots. DIGEST: a digest of the counters of slots. MEMBERS: the " +
			"set of regions. SHARDS: the shards and nodes of a region that is a cluster. TABLES: its " +
			"tables. Clients do not use it; the user of a region needs no other command.",
		Args: []Arg{strArg("group"), intArg("region"), strArg("incarnation"), with("MAX", intArg("bytes")),
			with("BLOCK", intArg("milliseconds")),
			multi(block("range", intArg("partition"), intArg("first-slot"), intArg("last-slot"),
				strArg("after"), strArg("proof"), strArg("acknowledged")))},
	},
}

// RegionStatus returns how the other regions are read; false: this server is no member of any.
func (s *Server) RegionStatus() (status regions.NodeStatus, member bool) {
	if s.Regions == nil {
		return status, false
	}
	status = s.Regions.Status()
	return status, status.Member
}

// maxShownError is how much INFO shows of an error.
const maxShownError = 120

// infoRegions is INFO regions.
func (s *Server) infoRegions(_ *observe.View, b *observe.Lines) {
	r, member := s.RegionStatus()
	b.Add("region_member", bit(member))
	if !member {
		return
	}
	b.Add("region_name", lineSafe(r.Name))
	b.Add("region_number", r.Number)
	b.Add("region_members_version", r.Version)
	b.Add("region_ids_heard", r.Operations.Heard)
	b.Add("region_ids_late", r.Operations.Late)
	b.Add("region_twins_seen", r.Operations.Twins)
	b.Add("region_takebacks", r.Operations.TakenBack)
	b.Add("region_takebacks_owed", r.Operations.Owed)
	b.Add("region_ids_unchecked", r.Operations.Unchecked)
	b.Add("region_beyond_bounds", r.Operations.BeyondBounds)
	b.Add("region_changes_aside", r.Operations.Aside)
	b.Add("region_ills", len(r.Ills))
	b.Add("region_reads", bit(r.Reads))
	for i := range r.Shards {
		if s := &r.Shards[i]; s.Own && !r.Reads {
			b.Add("region_reader", s.Leader())
		}
	}
	for i := range r.Peers {
		p := &r.Peers[i]
		behind, failure := int64(-1), ""
		if ops, known := p.Behind(); known {
			behind = int64(ops)
		}
		if p.State() == "failing" {
			failure = lineSafe(p.LastError)
		}
		b.Add("region"+strconv.Itoa(i),
			fmt.Sprintf("name=%s,state=%s,lag_ms=%d,lag_ops=%d,waiting_ops=%d,pulls=%d,bytes=%d,state_exchanges=%d,clock_skew_ms=%d,digest_mismatch=%d,digest_checked=%d,digest_missed=%d,ids_heard=%d,ids_late=%d,twins_seen=%d,takebacks=%d,ids_unchecked=%d,last_error=%s",
				lineSafe(p.Name), p.State(), p.LagMs, behind, p.WaitingOps, p.Pulls, p.Bytes,
				p.StateExchanges, p.ClockSkewMs,
				p.DigestMismatch, p.DigestCheckedMs/1000, p.DigestMissed, p.Operations.Heard,
				p.Operations.Late, p.Operations.Twins, p.Operations.TakenBack, p.Operations.Unchecked,
				failure[:min(len(failure), maxShownError)]))
	}
}
