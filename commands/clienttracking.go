package commands

import (
	"bytes"
	"slices"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/commands/tracking"
	"github.com/fbfkv/fbfkv/store"
)

// Client-side caching is Redis' in BCAST mode alone: a client names prefixes, and is told of every change
// of a key that begins with one. The server does not remember its reads.

// tracked is the tracking of one client. Only the connection's owner changes it.
type tracked struct {
	client tracking.Client
	tap    *observe.Tap
	world  tracking.World
}

// trackingRequest is CLIENT TRACKING while its options are read.
type trackingRequest struct {
	prefixes      [][]byte
	bcast, noloop bool
	opted         bool // OPTIN or OPTOUT
	redirected    bool
}

// maxPrefixes is how many prefixes a client may track, and maxPrefixBytes how long they are together.
const (
	maxPrefixes    = 1024
	maxPrefixBytes = 64 << 10
)

// Why CLIENT TRACKING is refused.
var (
	errOnlyBcast error = refusal("ERR CLIENT TRACKING works in BCAST mode only: add BCAST, and PREFIX for " +
		"each prefix of the keys that are cached")
	errOptBcast error = refusal("ERR OPTIN and OPTOUT are not compatible with BCAST")
	errRedirect error = refusal("ERR CLIENT TRACKING REDIRECT is not supported: with HELLO 3 the " +
		"connection itself is told")
	errTrackProto error = refusal("ERR CLIENT TRACKING needs RESP3: send HELLO 3 first")
	errTrackPush  error = refusal("ERR CLIENT TRACKING is not supported here")
	errPrefixes   error = refusal("ERR CLIENT TRACKING takes at most 1024 prefixes, of 64 KiB together: name fewer " +
		"and shorter ones")

	errNotTracking error = refusal("ERR CLIENT CACHING can be called only when the client is in tracking " +
		"mode with OPTIN or OPTOUT mode enabled")
)

// trackingOptions are the options of CLIENT TRACKING.
var trackingOptions = []option[trackingRequest]{
	{token: "REDIRECT", value: func(r *trackingRequest, v []byte) error {
		if _, ok := parseInt(v); !ok {
			return errNotInteger
		}
		r.redirected = true
		return nil
	}},
	{token: "PREFIX", again: true, value: func(r *trackingRequest, v []byte) error {
		r.prefixes = append(r.prefixes, bytes.Clone(v))
		return nil
	}},
	{token: "BCAST", flag: func(r *trackingRequest) { r.bcast = true }},
	{token: "OPTIN", flag: func(r *trackingRequest) { r.opted = true }},
	{token: "OPTOUT", flag: func(r *trackingRequest) { r.opted = true }},
	{token: "NOLOOP", flag: func(r *trackingRequest) { r.noloop = true }},
}

// clientTracking is CLIENT TRACKING ON | OFF ….
func clientTracking(c *Context) {
	var r trackingRequest
	_, err := parseOptions(&r, trackingOptions, c.Args[3:], "")
	on := is(c.Args[2], "ON")
	switch {
	case c.failed(err):
	case on:
		c.ok(c.track(&r))
	case is(c.Args[2], "OFF"):
		c.Session.untrack()
		c.W.Status("OK")
	default:
		c.fail(errSyntax)
	}
}

// track begins tracking, or adds prefixes.
func (c *Context) track(r *trackingRequest) error {
	ses := c.Session
	switch {
	case r.redirected:
		return errRedirect
	case !r.bcast:
		return errOnlyBcast
	case r.opted:
		return errOptBcast
	case ses.Proto() != 3:
		return errTrackProto
	case c.Server.Push == nil:
		return errTrackPush
	}
	var has [][]byte
	if ses.tracked != nil {
		has = ses.tracked.client.Prefixes
	}
	if err := checkPrefixes(has, r.prefixes); err != nil {
		return err
	}
	if len(r.prefixes) == 0 {
		r.prefixes = [][]byte{{}}
	}
	c.retrack(append(has[:len(has):len(has)], r.prefixes...), r.noloop)
	return nil
}

// checkPrefixes refuses prefixes of which one begins with another, as Redis does.
func checkPrefixes(has, more [][]byte) error {
	if all := slices.Concat(has, more); len(all) > maxPrefixes || len(bytes.Join(all, nil)) > maxPrefixBytes {
		return errPrefixes
	}
	for i, p := range more {
		for _, other := range has {
			if overlap(p, other) {
				return overlapping(p, "an existing", other)
			}
		}
		for _, other := range more[i+1:] {
			if overlap(p, other) {
				return overlapping(p, "another provided", other)
			}
		}
	}
	return nil
}

func overlap(a, b []byte) bool { return bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a) }

func overlapping(p []byte, which string, other []byte) error {
	return refusal("ERR Prefix '" + string(cString(p, maxQuoted)) + "' overlaps with " + which +
		" prefix '" + string(cString(other, maxQuoted)) + "'. Prefixes for a single client must not overlap.")
}

// retrack tracks the prefixes. The client is told of no change less than before, for it joins with them
// before it leaves as it was.
func (c *Context) retrack(prefixes [][]byte, noloop bool) {
	ses, srv, old := c.Session, c.Server, c.Session.tracked
	t := &tracked{world: srv.trackingWorld(c.Store)}
	if old != nil {
		t.tap = old.tap
	} else {
		push := func(b []byte) error { return srv.Push(ses, b) }
		t.tap = srv.Observer.NewTap(push, tracking.All, &ses.invalid)
	}
	t.client = tracking.Client{Prefixes: prefixes, Send: t.tap.Send, May: ses.mayRead}
	if noloop {
		t.client.Own = ses.ID
	}
	srv.tracking.Join(&t.client, t.world)
	if old != nil {
		srv.tracking.Leave(&old.client, old.world)
	}
	ses.tracked = t
	ses.tracks.Store(true)
}

// trackingWorld is what the hub of this server's tracking clients needs to know.
func (s *Server) trackingWorld(st *store.Store) tracking.World {
	w := tracking.World{Tell: st.TellChanges}
	if cluster := s.Cluster; cluster != nil {
		w.Changed = cluster.Changed
		w.Stale = func() bool {
			v := cluster.View()
			return v.is != leads && v.own != nil && cluster.isStale(v)
		}
	}
	return w
}

// mayRead reports whether the client's user may read a key. Safe for concurrent use.
func (s *Session) mayRead(key []byte) bool { return s.account.Load().User().MayRead(key) }

// untrack ends tracking.
func (s *Session) untrack() {
	t := s.tracked
	if t == nil {
		return
	}
	s.srv.tracking.Leave(&t.client, t.world)
	t.tap.Close()
	s.tracked = nil
	s.tracks.Store(false)
}

// source is whose changes the client's batches are told to be; 0: nobody minds.
func (s *Session) source() int64 {
	if s.tracked == nil {
		return 0
	}
	return s.tracked.client.Own
}

// clientTrackingInfo is CLIENT TRACKINGINFO.
func clientTrackingInfo(c *Context) {
	flags, prefixes := []string{"off"}, [][]byte(nil)
	if t := c.Session.tracked; t != nil {
		flags, prefixes = []string{"on", "bcast"}, t.client.Prefixes
		if t.client.Own != 0 {
			flags = append(flags, "noloop")
		}
	}
	c.W.Map(3)
	c.W.BulkString("flags")
	c.W.Set(len(flags))
	for _, flag := range flags {
		c.W.BulkString(flag)
	}
	c.W.BulkString("redirect")
	c.W.Int(int64(c.Session.redirect()))
	c.W.BulkString("prefixes")
	c.W.Array(len(prefixes))
	for _, p := range prefixes {
		c.W.Bulk(p)
	}
}

// clientGetRedir is CLIENT GETREDIR.
func clientGetRedir(c *Context) { c.W.Int(int64(c.Session.redirect())) }

// trackingCommands are the subcommands of CLIENT about client-side caching.
var trackingCommands = []Command{
	clientSub("tracking", -3, clientFlags, "6.0.0",
		"Tells the connection, which speaks RESP3, of every change of a key with one of the prefixes. "+
			"Only BCAST is supported.",
		clientTracking,
		onOff("status"), opt(with("REDIRECT", intArg("client-id"))),
		opt(multi(with("PREFIX", strArg("prefix")))),
		opt(word("BCAST")), opt(word("OPTIN")), opt(word("OPTOUT")), opt(word("NOLOOP"))),
	clientSub("caching", 3, clientFlags, "6.0.0", "Refused: only CLIENT TRACKING BCAST is supported.",
		func(c *Context) { c.fail(errNotTracking) },
		oneOf("mode", word("YES"), word("NO"))),
	clientSub("getredir", 2, clientFlags, "6.0.0", "Returns 0, or -1 if the connection does not track.",
		clientGetRedir),
	clientSub("trackinginfo", 2, clientFlags, "6.2.0", "Returns what CLIENT TRACKING has turned on.",
		clientTrackingInfo),
}
