package commands

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// REGION is how an operator, or fbfkv region for one, makes a server one of several regions and
// looks after it. Regions ask each other with REGION.PULL.

const groupRegions = "regions"

const (
	noRegionCluster = refusal("ERR this node is not a member of a cluster yet: first create the cluster; " +
		"then it can become a region")
	noRegion = refusal("ERR this server is not a region: fbfkv region create makes it the first " +
		"one, fbfkv region join adds it to others")
	badRegionJSON = refusal("ERR the argument is not the JSON that was expected")
)

// admitTime bounds REGION ADMIT and JOIN, in which two regions connect.
const admitTime = 10 * time.Second

// maxAdmission bounds the JSON of REGION ADMIT, bytes.
const maxAdmission = 8 << 10

// regionSub declares a subcommand of REGION.
func regionSub(name string, arity int, summary string, run func(*Context, *regions.Node) error,
	args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: Admin | NoScript | NoMulti | NoAsyncLoading, Group: groupRegions,
		Since: "0.2.0", Complexity: "O(N), where N is the number of regions", Summary: summary, Args: args,
		Run: func(c *Context) {
			err := noRegionNode(c.Store)
			if n := c.Server.Regions; n != nil {
				n.CatchUp()
				err = run(c, n)
			}
			c.regionFailed(err)
		},
	}
}

// noRegionNode is the refusal of a server that will be a node of a cluster and is not one yet.
func noRegionNode(st *store.Store) error {
	set, _ := st.Regions()
	if own, _ := set.Member(set.Self); len(set.Members) > 1 && own.Incarnation == st.Meta().Incarnation {
		return refusal("ERR this server is the region " + own.Name + ", and cannot become a node of a " +
			"cluster: start it with cluster-enabled no")
	}
	return noRegionCluster
}

// regionFailed answers an error that is not nil.
func (c *Context) regionFailed(err error) {
	var ask *regions.AskError
	switch {
	case errors.As(err, &ask):
		err = refusal(ask.Error())
	case errors.Is(err, store.ErrNoRegions):
		err = noRegion
	}
	c.failed(err)
}

// regionDone makes a subcommand that answers OK.
func regionDone(do func(c *Context, n *regions.Node) error) func(*Context, *regions.Node) error {
	return func(c *Context, n *regions.Node) error {
		if err := do(c, n); err != nil {
			return err
		}
		c.W.Status("OK")
		return nil
	}
}

// json answers a value as JSON.
func (c *Context) json(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		c.W.Bulk(b)
	}
	return err
}

// regionCreate is REGION CREATE name [address].
func regionCreate(c *Context, n *regions.Node) error {
	address := ""
	switch len(c.Args) {
	case 3:
	case 4:
		address = string(c.Args[3])
	default:
		return errSyntax
	}
	set, err := n.Create(string(c.Args[2]), address)
	if err == nil {
		c.W.Bulk(set.Encode())
	}
	return err
}

// regionAdmit is REGION ADMIT json.
func regionAdmit(c *Context, n *regions.Node) error {
	var a regions.Admission
	if len(c.Args[2]) > maxAdmission || json.Unmarshal(c.Args[2], &a) != nil {
		return badRegionJSON
	}
	ctx, cancel := context.WithTimeout(context.Background(), admitTime)
	defer cancel()
	set, err := n.Admit(ctx, a)
	if err == nil {
		c.W.Bulk(set.Encode())
	}
	return err
}

// regionJoin is REGION JOIN json.
func regionJoin(c *Context, n *regions.Node) error {
	set, err := store.DecodeRegionSet(c.Args[2])
	if err != nil {
		return badRegionJSON
	}
	ctx, cancel := context.WithTimeout(context.Background(), admitTime)
	defer cancel()
	return n.Join(ctx, set)
}

// regionMembers is REGION MEMBERS.
func regionMembers(c *Context, n *regions.Node) error {
	set, ok := n.Members()
	if !ok {
		return store.ErrNoRegions
	}
	c.W.Bulk(set.Encode())
	return nil
}

// regionStatus is REGION STATUS.
func regionStatus(c *Context, n *regions.Node) error {
	return c.json(n.Status())
}

// regionConflicts is REGION CONFLICTS.
func regionConflicts(c *Context, n *regions.Node) error {
	all, err := n.Conflicts()
	if err != nil {
		return err
	}
	return c.json(all)
}

// regionAcknowledge is REGION ACKNOWLEDGE count.
func regionAcknowledge(c *Context, n *regions.Node) error {
	count, err := strconv.ParseUint(string(c.Args[2]), 10, 64)
	if err != nil {
		return errNotInteger
	}
	n.Acknowledge(count)
	return nil
}

// regionRemove is REGION REMOVE heir name [name ...].
func regionRemove(c *Context, n *regions.Node) error {
	lost := make([]string, 0, len(c.Args)-3)
	for _, name := range c.Args[3:] {
		lost = append(lost, string(name))
	}
	return n.Remove(string(c.Args[2]), lost...)
}

// regionLeave is REGION LEAVE yes|no.
func regionLeave(c *Context, n *regions.Node) error {
	yes := strings.EqualFold(string(c.Args[2]), "yes")
	if !yes && !strings.EqualFold(string(c.Args[2]), "no") {
		return errSyntax
	}
	ends, err := n.Leave(yes)
	if err != nil {
		return err
	}
	return c.json(ends)
}

// regionVerify is REGION VERIFY.
func regionVerify(c *Context, n *regions.Node) error {
	ctx, cancel := context.WithCancel(context.Background())
	var all []regions.Difference
	var err error
	c.watched(ctx, cancel, func() { all, err = n.Verify(ctx) })
	if err != nil {
		return err
	}
	return c.json(n.Verdicts(all))
}

// keySlot is the slot of the key behind n arguments; of all keys, if there is none.
func (c *Context) keySlot(n int) (slot int, err error) {
	switch len(c.Args) - n {
	case 0:
		return regions.AnySlot, nil
	case 1:
		return int(store.Slot(c.Args[n])), nil
	}
	return 0, errSyntax
}

// regionToken is REGION TOKEN [key].
func regionToken(c *Context, n *regions.Node) error {
	slot, err := c.keySlot(2)
	if err != nil {
		return err
	}
	token, err := n.Token(slot)
	if err == nil {
		c.W.BulkString(token)
	}
	return err
}

// regionWait is REGION WAIT token timeout [key].
func regionWait(c *Context, n *regions.Node) error {
	slot, err := c.keySlot(4)
	if err != nil {
		return err
	}
	ms, err := parseTimeout(c.Args[3])
	if err != nil {
		return err
	}
	if ms == 0 {
		ms = math.MaxInt64
	}
	longest := time.Duration(min(ms, int64(maxWait/time.Millisecond))) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	c.Server.blocked.Add(1)
	defer c.Server.blocked.Add(-1)
	has := false
	c.watched(ctx, cancel, func() { has, err = n.Await(ctx, string(c.Args[2]), slot) })
	if err == nil {
		c.W.Int(bit(has))
	}
	return err
}

// forClients makes a subcommand of REGION one that clients use, about a key or about all keys.
func forClients(c Command, key int) Command {
	c.Flags = ReadOnly | NoScript | NoMulti | NoAsyncLoading
	c.Keys = KeySpec{First: key, Last: key, Step: 1, Flags: keyLook}
	return withTips(c, changingTip...)
}

// regionCommands look after regions.
var regionCommands = []Command{{
	Name: "region", Arity: -2, Group: groupRegions, Since: "0.2.0",
	Summary: "A container for commands on regions, which count the same counters. fbfkv region uses them.",
	Subcommands: []Command{
		audited(auditAll, regionSub("create", -3, "Makes the server the first region, which others reach "+
			"at an address, and returns the set of regions as JSON. Repeated with another address, it "+
			"changes the address.", regionCreate, strArg("name"), opt(strArg("address")))),
		audited(auditAll, regionSub("admit", 3, "Admits a server as a region. The argument is its REGION "+
			"STATUS; the reply is the set of regions as JSON, for its REGION JOIN.",
			regionAdmit, strArg("json"))),
		audited(auditAll, regionSub("join", 3, "Makes the server a region. The argument is the reply of "+
			"another region to REGION ADMIT.",
			regionDone(regionJoin), strArg("json"))),
		withTips(regionSub("members", 2, "Returns the set of regions as JSON.", regionMembers),
			changingTip...),
		withTips(regionSub("status", 2, "Returns the state of the regions as JSON. A server that is not a "+
			"region answers too.", regionStatus), changingTip...),
		withTips(regionSub("conflicts", 2, "Returns the last 10,000 operations that were applied in two "+
			"regions, as JSON, the newest first: which application counts, and which is taken back.",
			regionConflicts), changingTip...),
		audited(auditAll, regionSub("acknowledge", 3, "Acknowledges a number of unchecked operations. "+
			"REGION STATUS then reports a problem only if their count grows.",
			regionDone(regionAcknowledge), intArg("count"))),
		audited(auditAll, regionSub("remove", -4, "Removes other regions that are lost or no longer "+
			"needed. The heir looks after their counts.",
			regionDone(regionRemove), strArg("heir"), multi(strArg("name")))),
		audited(auditAll, regionSub("leave", 3, "Refuses writes until REGION LEAVE no, so that "+
			"the other regions can read everything before this one is removed. In a cluster each shard's leader "+
			"must be told. Returns, as JSON, the sequence of each partition that they must reach.",
			regionLeave, oneOf("leave", word("YES"), word("NO")))),
		audited(auditAll, regionSub("flush", 2, "Deletes every key in all regions, and also what they "+
			"write until they learn of the flush.",
			regionDone(func(_ *Context, n *regions.Node) error { return n.Flush() }))),
		audited(auditAll, regionSub("pause", 3, "Stops reading a region, until REGION RESUME or a restart.",
			regionDone(func(c *Context, n *regions.Node) error { return n.Pause(string(c.Args[2])) }),
			strArg("name"))),
		audited(auditAll, regionSub("resume", 3, "Reads a region again. A region that could not be read is "+
			"tried at once.",
			regionDone(func(c *Context, n *regions.Node) error { return n.Resume(string(c.Args[2])) }),
			strArg("name"))),
		withTips(regionSub("verify", 2, "Compares this region with each other region, waits for all of "+
			"them, and returns the slots that differ, as JSON.", regionVerify), changingTip...),
		forClients(regionSub("token", -2, "Returns what this region has applied so far, to a key's partition or "+
			"to all, for REGION WAIT in another region. In a cluster it needs the key.",
			regionToken, opt(keyArg())), 2),
		forClients(regionSub("wait", -4, "Waits until this region has taken what a token names, of a key's "+
			"partition or of all, or until the timeout. Returns 1 if it has, else 0. A timeout of 0 waits "+
			"without a limit.", regionWait, strArg("token"), intArg("timeout"), opt(keyArg())), 4),
		helpFor("region", groupRegions),
	},
}}
