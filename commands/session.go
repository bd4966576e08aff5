package commands

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// replyMode is what CLIENT REPLY asked for.
type replyMode uint8

const (
	replyOn   replyMode = iota
	replyOff            // no replies until CLIENT REPLY ON
	replySkip           // no reply to the next command
)

// Session is the state of one connection that commands read and change. The
// connection's goroutine owns it; what other goroutines read (CLIENT LIST,
// CLIENT KILL) is atomic or behind mu.
type Session struct {
	// ID numbers the connections of a server's life, from 1.
	ID int64
	// Addr and LocalAddr are the peer's and our end, as host:port.
	Addr, LocalAddr string

	srv           *Server
	created       time.Time
	authenticated bool // only the owner reads and writes it
	failures      int  // to log in
	keyRefs       []acl.KeyRef
	reply         replyMode
	tap           *observe.Tap        // of a client that monitors
	tracked       *tracked            // of a client that is told of changes
	stream        *store.BackupStream // of a client that reads a backup
	told          *regions.Told       // of a client that is another region
	following     *following          // of a client that follows the counters

	// TLS says that the client uses it. Gone, unless it is nil, tells whether the client has left;
	// only the connection's owner may call it. The server sets both before it serves the connection.
	TLS  bool
	Gone func() bool

	mu      sync.Mutex
	name    string
	libName string
	libVer  string

	account    atomic.Pointer[acl.Account]
	proto      atomic.Int32
	closing    atomic.Bool
	noEvict    atomic.Bool
	monitors   atomic.Bool
	tracks     atomic.Bool
	readonly   atomic.Bool  // READONLY: a replica may answer
	killed     atomic.Bool  // by CLIENT KILL; its connection is about to be gone
	multi      atomic.Int64 // commands queued by MULTI, -1 outside
	lastActive atomic.Int64 // unix nanoseconds
	lastCmd    atomic.Pointer[Command]

	// QueryBuffer and OutputBuffer are the bytes in the connection's buffers, and SpareBuffer
	// is the memory that these take beyond that; the server keeps them up to date if it likes.
	QueryBuffer, OutputBuffer, SpareBuffer atomic.Int64
	// bytes of the commands that MULTI has queued and MONITOR is to show, of watched keys, and of messages
	queued, monitored, watched, invalid atomic.Int64
}

// Held is how much memory the client makes the server hold: buffers of requests that are not yet carried
// out and of unread replies, and the data of MULTI, MONITOR, WATCH and
// CLIENT TRACKING. Safe for concurrent use.
func (s *Session) Held() int64 {
	return s.QueryBuffer.Load() + s.OutputBuffer.Load() + s.SpareBuffer.Load() + s.queued.Load() +
		s.monitored.Load() + s.watched.Load() + s.invalid.Load()
}

// NoEvict reports whether the client stays connected whatever memory it holds (CLIENT NO-EVICT).
// Safe for concurrent use.
func (s *Session) NoEvict() bool { return s.noEvict.Load() }

// NewSession returns the session of a connection that was just accepted. It
// is the user default, and authenticated at once if that one needs no password;
// a password set later leaves it so, as in Redis.
func NewSession(id int64, addr, localAddr string, srv *Server) *Session {
	s := &Session{ID: id, Addr: addr, LocalAddr: localAddr, created: time.Now(), srv: srv}
	srv.prepare()
	s.logout(srv.Users)
	s.proto.Store(2)
	s.multi.Store(-1)
	s.lastActive.Store(s.created.UnixNano())
	return s
}

// Closing reports whether the connection must be closed once its replies are
// written: after QUIT, or CLIENT KILL of itself.
func (s *Session) Closing() bool { return s.closing.Load() }

// Authenticated reports whether the client may run commands; until then the
// server applies its tighter limits. Only the connection's goroutine may ask.
func (s *Session) Authenticated() bool { return s.authenticated }

// Proto is the RESP version the client speaks: 2 or 3.
func (s *Session) Proto() int { return int(s.proto.Load()) }

// LastActive is when the client's last pipeline was executed.
func (s *Session) LastActive() time.Time { return time.Unix(0, s.lastActive.Load()) }

// Name is the name given with CLIENT SETNAME, or "".
func (s *Session) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// setName sets the name of the connection.
func (s *Session) setName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = name
}

// setLibrary sets the client library's name or version, whichever is not nil.
func (s *Session) setLibrary(name, version *string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != nil {
		s.libName = *name
	}
	if version != nil {
		s.libVer = *version
	}
}

// library returns the client library's name and version.
func (s *Session) library() (name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.libName, s.libVer
}

// takeMute reports whether the next request is to get no reply.
func (s *Session) takeMute() bool {
	switch s.reply {
	case replyOff:
		return true
	case replySkip:
		s.reply = replyOn
		return true
	}
	return false
}

// touch notes the client's last command, nil to keep it, and its time.
func (s *Session) touch(c *Command, at time.Time) {
	if c != nil {
		s.lastCmd.Store(c)
	}
	s.lastActive.Store(at.UnixNano())
}

// describe renders the line of CLIENT LIST and CLIENT INFO, with Redis' field
// names; fields of features that do not exist here have their idle value.
func (s *Session) describe(now time.Time) string {
	cmd := "NULL"
	if c := s.lastCmd.Load(); c != nil {
		cmd = c.FullName()
	}
	lib, ver := s.library()
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=-1 name=%s age=%d idle=%d flags=%s db=0 sub=0 "+
		"psub=0 ssub=0 "+
		"multi=%d qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=%d oll=0 omem=0 tot-mem=%d "+
		"events=r "+
		"cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s",
		s.ID, s.Addr, s.LocalAddr, s.Name(),
		int64(now.Sub(s.created)/time.Second), int64(now.Sub(s.LastActive())/time.Second), s.flagLetters(),
		s.multi.Load(), s.QueryBuffer.Load(), s.OutputBuffer.Load(), s.Held(),
		cmd, s.User(), s.redirect(), s.Proto(), lib, ver)
}

// redirect is 0 for a client that is told of changes itself, and -1 for one that is told of none.
func (s *Session) redirect() int {
	if s.tracks.Load() {
		return 0
	}
	return -1
}

// flagLetters renders the flags column of CLIENT LIST.
func (s *Session) flagLetters() string {
	var b []byte
	if s.monitors.Load() {
		b = append(b, 'O')
	}
	if s.multi.Load() >= 0 {
		b = append(b, 'x')
	}
	if s.Closing() {
		b = append(b, 'c')
	}
	if s.tracks.Load() {
		b = append(b, 't', 'B')
	}
	if s.noEvict.Load() {
		b = append(b, 'e')
	}
	if s.readonly.Load() {
		b = append(b, 'r')
	}
	if len(b) == 0 {
		return "N"
	}
	return string(b)
}

// gone reports whether nobody waits for replies any more, as far as can be told.
func (s *Session) gone() bool { return s.killed.Load() || s.Gone != nil && s.Gone() }

// Pushed reports whether the client is sent more than replies, by MONITOR or CLIENT TRACKING.
func (s *Session) Pushed() bool { return s.monitors.Load() || s.tracks.Load() }

// Answered tells the session that all replies so far were handed to the
// connection. Only the connection's owner may call it.
func (s *Session) Answered() {
	if s.tap != nil {
		s.tap.Ready()
	}
	if s.tracked != nil {
		s.tracked.tap.Ready()
	}
}

// End tells the session that its connection is closed. Only the connection's
// owner may call it, once it calls nothing else.
func (s *Session) End() {
	if t := s.tap; t != nil {
		t.Close()
		s.tap = nil
		s.monitors.Store(false)
	}
	s.untrack()
	s.endStream()
}

// doPing answers PONG, or its argument.
func doPing(c *Context) {
	switch len(c.Args) {
	case 1:
		c.W.Status("PONG")
	case 2:
		c.W.Bulk(c.Args[1])
	default:
		c.W.Error(wrongArity(c.table.Get(c.Args[0])))
	}
}

// doSelect accepts the one database there is.
func doSelect(c *Context) {
	n, ok := parseInt(c.Args[1])
	switch {
	case !ok:
		c.fail(errNotInteger)
	case n != int64(int32(n)):
		c.fail(errNotInt32)
	case n != 0 && c.Server.Cluster != nil:
		c.fail(refusal("ERR SELECT is not allowed in cluster mode"))
	case n != 0:
		c.fail(errDBIndex)
	default:
		c.W.Status("OK")
	}
}

// helloRequest is HELLO while its options are read.
type helloRequest struct {
	proto          int // 0: not given
	user, password []byte
	name           []byte // nil: not given
}

// parseHello reads HELLO's arguments.
func parseHello(args [][]byte) (h helloRequest, err error) {
	if len(args) == 1 {
		return h, nil
	}
	v, ok := parseInt(args[1])
	switch {
	case !ok:
		return h, errProtoNotInteger
	case v != 2 && v != 3:
		return h, errProtoUnsupported
	}
	h.proto = int(v)
	for i := 2; i < len(args); {
		left := len(args) - i - 1
		switch {
		case is(args[i], "AUTH") && left >= 2:
			h.user, h.password = args[i+1], args[i+2]
			i += 3
		case is(args[i], "SETNAME") && left >= 1:
			h.name = args[i+1]
			if err := checkName("Client names", h.name); err != nil {
				return h, err
			}
			i += 2
		default:
			return h, refusal("ERR Syntax error in HELLO option '" + string(cString(args[i], maxQuoted)) +
				"'")
		}
	}
	return h, nil
}

// doHello is HELLO [protover [AUTH username password] [SETNAME name]].
func doHello(c *Context) {
	h, err := parseHello(c.Args)
	if err == nil && h.user != nil {
		err = c.authenticate(h.user, h.password)
	}
	if err == nil && !c.Session.authenticated && c.Server.Users.LoginNeeded() {
		err = errHelloNoAuth
	}
	if c.failed(err) {
		return
	}
	if h.name != nil {
		c.Session.setName(string(h.name))
	}
	if h.proto != 0 {
		c.setProto(h.proto)
	}
	c.W.Map(7)
	c.W.Pair("server", "redis")
	c.W.Pair("version", CompatVersion)
	c.W.BulkString("proto")
	c.W.Int(int64(c.Session.Proto()))
	c.W.BulkString("id")
	c.W.Int(c.Session.ID)
	v, mode := c.clusterView(), "standalone"
	if v != nil {
		mode = "cluster"
	}
	c.W.Pair("mode", mode)
	c.W.Pair("role", v.role("replica"))
	c.W.BulkString("modules")
	c.W.Array(0)
}

// setProto changes the protocol version of this and later replies.
func (c *Context) setProto(v int) {
	if v != 3 {
		c.Session.untrack() // nothing can be pushed to it
	}
	c.Session.proto.Store(int32(v))
	c.W.Proto = v
}

// doReset brings the connection back to the state of a new one.
func doReset(c *Context) {
	s := c.Session
	s.End()
	*c.tx = transaction{}
	c.watch.clear()
	s.queued.Store(0)
	s.watched.Store(0)
	s.multi.Store(-1)
	s.setName("")
	s.noEvict.Store(false)
	s.readonly.Store(false)
	c.unmute = s.reply == replyOff // a reply to be skipped is still skipped
	s.reply = replyOn
	s.logout(c.Server.Users)
	c.setProto(2)
	c.W.Status("RESET")
}

// doQuit says goodbye.
func doQuit(c *Context) {
	c.Session.closing.Store(true)
	c.W.Status("OK")
}

const groupConnection = "connection"

var connectionACL = []string{"@connection"}

// authFlags are the flags of the commands that work before authentication.
const authFlags = NoScript | Loading | Stale | Fast | NoAuth | AllowBusy

// doAuth is AUTH [username] password.
func doAuth(c *Context) {
	user, password := []byte(acl.Default), c.Args[1]
	switch {
	case len(c.Args) > 3:
		c.fail(errSyntax)
		return
	case len(c.Args) == 3:
		user, password = c.Args[1], c.Args[2]
	case c.Server.Users.Default().User().NoPass():
		c.fail(errNoPassword)
		return
	}
	c.ok(c.authenticate(user, password))
}

// connectionCommands concern the connection itself.
var connectionCommands = family(Command{Group: groupConnection, ACL: connectionACL}, []Command{
	{
		Name: "ping", Arity: -1, Flags: Fast | pure, Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Summary: "Answers PONG, or the message.", Args: []Arg{opt(strArg("message"))}, Run: doPing,
	},
	{
		Name: "echo", Arity: 2, Flags: Loading | Stale | Fast | pure, Since: "1.0.0",
		Summary: "Answers the message.", Args: []Arg{strArg("message")},
		Run: func(c *Context) { c.W.Bulk(c.Args[1]) },
	},
	{
		Name: "select", Arity: 2, Flags: Loading | Stale | Fast | pure, Since: "1.0.0",
		Summary: "Selects the database. There is only database 0.", Args: []Arg{intArg("index")},
		Run: doSelect,
	},
	{
		Name: "auth", Arity: -2, Flags: authFlags, Since: "1.0.0", Summary: "Authenticates the connection.",
		Args: []Arg{opt(strArg("username")), strArg("password")}, Run: doAuth, Secret: secretFrom(1),
	},
	{
		Name: "hello", Arity: -1, Flags: authFlags, Since: "6.0.0",
		Summary: "Chooses the protocol version, 2 or 3, and describes the server.",
		Args: []Arg{opt(block("arguments", intArg("protover"),
			opt(with("AUTH", block("auth", strArg("username"), strArg("password")))),
			opt(with("SETNAME", strArg("clientname")))))},
		Run: doHello, Secret: helloSecret,
	},
	{
		Name: "quit", Arity: -1, Flags: authFlags | immediate, Since: "1.0.0",
		Summary: "Closes the connection once everything is answered.", Run: doQuit,
	},
	{
		Name: "reset", Arity: 1, Flags: authFlags | immediate | unwatches, Since: "6.2.0",
		Summary: "Resets the connection to the state of a new one.", Run: doReset,
	},
})
