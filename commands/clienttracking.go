package commands

// Client-side caching does not exist here: counters change all the time, so
// that a client that cached them would mostly be told to forget them. These
// commands answer as Redis does to a client that never turned tracking on.

// clientTracking is CLIENT TRACKING ON | OFF …; it can only be off.
func clientTracking(c *Context) {
	switch {
	case is(c.Args[2], "OFF"):
		c.W.Status("OK")
	case is(c.Args[2], "ON"):
		c.fail(refusal("ERR CLIENT TRACKING is not supported: there is no client-side caching here"))
	default:
		c.fail(errSyntax)
	}
}

// clientCaching is CLIENT CACHING YES | NO.
func clientCaching(c *Context) {
	c.fail(refusal("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"))
}

// clientTrackingInfo is CLIENT TRACKINGINFO.
func clientTrackingInfo(c *Context) {
	c.W.Map(3)
	c.W.BulkString("flags")
	c.W.Set(1)
	c.W.BulkString("off")
	c.W.BulkString("redirect")
	c.W.Int(-1)
	c.W.BulkString("prefixes")
	c.W.Array(0)
}

// clientUnblock is CLIENT UNBLOCK id [TIMEOUT | ERROR]; no command blocks.
func clientUnblock(c *Context) {
	_, ok := parseInt(c.Args[2])
	switch {
	case len(c.Args) == 4 && !is(c.Args[3], "TIMEOUT") && !is(c.Args[3], "ERROR"):
		c.fail(refusal("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"))
	case len(c.Args) > 4:
		c.fail(errSyntax)
	case !ok:
		c.fail(errNotInteger)
	default:
		c.W.Int(0)
	}
}

// trackingCommands are the subcommands of CLIENT on caching and blocking.
var trackingCommands = []Command{
	clientSub("tracking", -3, clientFlags, "6.0.0", "Accepts OFF: client-side caching is not supported.", clientTracking,
		onOff("status"), opt(with("REDIRECT", intArg("client-id"))), opt(multi(with("PREFIX", strArg("prefix")))),
		opt(word("BCAST")), opt(word("OPTIN")), opt(word("OPTOUT")), opt(word("NOLOOP"))),
	clientSub("caching", 3, clientFlags, "6.0.0", "Refused: client-side caching is not supported.", clientCaching,
		oneOf("mode", word("YES"), word("NO"))),
	clientSub("getredir", 2, clientFlags, "6.0.0", "Returns -1: client-side caching is not supported.",
		func(c *Context) { c.W.Int(-1) }),
	clientSub("trackinginfo", 2, clientFlags, "6.2.0", "Says that client-side caching is not supported.", clientTrackingInfo),
	clientSub("unblock", -3, clientAdminFlags, "5.0.0", "Returns 0: no command blocks.", clientUnblock,
		intArg("client-id"), opt(oneOf("unblock-type", word("TIMEOUT"), word("ERROR")))),
}
