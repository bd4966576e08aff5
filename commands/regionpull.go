package commands

import (
	"context"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// What regions ask each other. All but the conversation with the client is package regions'.

// doRegionPull is REGION.PULL. It runs alone, so that nobody but its own connection waits for it.
func doRegionPull(c *Context) {
	switch {
	case c.Server.Cluster != nil:
		c.W.Error("NOREGION " + store.ErrRegions.Error())
		return
	case c.Server.Regions == nil:
		c.W.Error("NOREGION " + store.ErrNoRegions.Error())
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watchFor(ctx, cancel)
	}()
	defer func() {
		cancel()
		<-watched // the session is the connection's again
	}()
	// The answer has RESP2's types whatever the connection speaks. Its bound is the one that
	// was asked for, with a section of the op log: were it client-output-buffer-limit, a section
	// larger than that could never be read.
	proto, limit := c.W.Proto, c.W.Limit
	defer func() { c.W.Proto, c.W.Limit = proto, limit }()
	c.W.Proto, c.W.Limit = 2, 0
	c.Server.Regions.Pull(ctx, c.Args[1:], c.W)
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
		Name: "region.pull", Arity: -2, Flags: Admin | NoScript | NoAsyncLoading | NoMulti | SkipSlowlog | unpaused | untimed, Group: groupRegions,
		Since: "0.2.0", Complexity: "O(N), where N is the number of bytes that are answered",
		Tips: changingTip, Run: doRegionPull,
		Summary: "What a region asks another one: what it did behind the sequences up to which its log was taken. Waits up to BLOCK " +
			"milliseconds while nothing follows. Not for clients; a region's user needs no other command.",
		Args: []Arg{strArg("group"), intArg("region"), strArg("incarnation"), with("MAX", intArg("bytes")), with("BLOCK", intArg("milliseconds")),
			multi(block("range", intArg("partition"), intArg("first-slot"), intArg("last-slot"), strArg("after"), strArg("acknowledged")))},
	},
}
