package commands

import (
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// checkName refuses a name that would garble CLIENT LIST: anything but
// printable ASCII without spaces.
func checkName(what string, name []byte) error {
	for _, c := range name {
		if c < '!' || c > '~' {
			return refusal("ERR " + what + " cannot contain spaces, newlines or special characters.")
		}
	}
	return nil
}

// clientSetName is CLIENT SETNAME name; an empty name takes the name away.
func clientSetName(c *Context) {
	err := checkName("Client names", c.Args[2])
	if err == nil {
		c.Session.setName(string(c.Args[2]))
	}
	c.ok(err)
}

// clientGetName is CLIENT GETNAME.
func clientGetName(c *Context) {
	if name := c.Session.Name(); name != "" {
		c.W.BulkString(name)
	} else {
		c.W.Null()
	}
}

// libraryFields are what CLIENT SETINFO can set.
var libraryFields = []option[Session]{
	{token: "LIB-NAME", value: func(s *Session, v []byte) error {
		name := string(v)
		s.setLibrary(&name, nil)
		return checkName("lib-name", v)
	}},
	{token: "LIB-VER", value: func(s *Session, v []byte) error {
		version := string(v)
		s.setLibrary(nil, &version)
		return checkName("lib-ver", v)
	}},
}

// clientSetInfo is CLIENT SETINFO LIB-NAME name | LIB-VER version.
func clientSetInfo(c *Context) {
	f := findOption(libraryFields, c.Args[2])
	if f == nil {
		c.fail(refusal("ERR Unrecognized option '" + string(cString(c.Args[2], maxQuoted)) + "'"))
		return
	}
	name, version := c.Session.library()
	err := f.value(c.Session, c.Args[3])
	if err != nil {
		c.Session.setLibrary(&name, &version)
	}
	c.ok(err)
}

// clientNoEvict is CLIENT NO-EVICT ON | OFF.
func clientNoEvict(c *Context) {
	on := is(c.Args[2], "ON")
	if !on && !is(c.Args[2], "OFF") {
		c.fail(errSyntax)
		return
	}
	c.Session.noEvict.Store(on)
	c.W.Status("OK")
}

// clientReply is CLIENT REPLY ON | OFF | SKIP; only ON is answered.
func clientReply(c *Context) {
	s := c.Session
	switch {
	case is(c.Args[2], "ON"):
		s.reply, c.unmute = replyOn, true
		c.W.Status("OK")
	case is(c.Args[2], "OFF"):
		s.reply = replyOff
	case is(c.Args[2], "SKIP"):
		if s.reply != replyOff {
			s.reply = replySkip
		}
	default:
		c.fail(errSyntax)
	}
}

// clientPause is CLIENT PAUSE milliseconds [WRITE | ALL].
func clientPause(c *Context) {
	ms, err := parseTimeout(c.Args[2])
	switch {
	case len(c.Args) > 4:
		c.fail(errSyntax)
	case len(c.Args) == 4 && !is(c.Args[3], "WRITE") && !is(c.Args[3], "ALL"):
		c.fail(refusal("ERR CLIENT PAUSE mode must be WRITE or ALL"))
	case err != nil:
		c.fail(err)
	default:
		ms = min(ms, int64(maxPause/time.Millisecond))
		c.pause(time.Now().Add(time.Duration(ms)*time.Millisecond), len(c.Args) == 4 &&
			is(c.Args[3], "WRITE"))
	}
}

// maxPause is the longest CLIENT PAUSE, and the greatest age for CLIENT KILL.
const maxPause = 100 * 366 * 24 * time.Hour

// pause holds clients back until a time.
func (c *Context) pause(until time.Time, writesOnly bool) {
	if c.Server.Pause == nil {
		c.fail(refusal("ERR CLIENT PAUSE is not supported here"))
		return
	}
	c.Server.Pause(until, writesOnly)
	c.W.Status("OK")
}

// clientTypes are the types of clients that CLIENT LIST and KILL know; every
// client here is a normal one.
var clientTypes = []string{"NORMAL", "MASTER", "REPLICA", "SLAVE", "PUBSUB"}

// parseClientType reads a type and reports whether normal clients are of it.
func parseClientType(v []byte) (normal bool, err error) {
	i := slices.IndexFunc(clientTypes, func(t string) bool { return is(v, t) })
	if i < 0 {
		return false, refusal("ERR Unknown client type '" + string(cString(v, maxQuoted)) + "'")
	}
	return i == 0, nil
}

// sessions returns the connected clients, oldest first.
func (c *Context) sessions() []*Session {
	if c.Server.Sessions == nil {
		return []*Session{c.Session}
	}
	return c.Server.Sessions()
}

// clientList is CLIENT LIST [TYPE type] [ID id …].
func clientList(c *Context) {
	wanted, err := parseListFilter(c.Args[2:])
	if c.failed(err) {
		return
	}
	var b strings.Builder
	now := time.Now()
	for _, s := range c.sessions() {
		if wanted(s) && !s.killed.Load() {
			b.WriteString(s.describe(now))
			b.WriteByte('\n')
		}
	}
	c.W.Verbatim(b.String())
}

// parseListFilter reads the arguments of CLIENT LIST.
func parseListFilter(args [][]byte) (wanted func(*Session) bool, err error) {
	switch {
	case len(args) == 0:
		return func(*Session) bool { return true }, nil
	case len(args) == 2 && is(args[0], "TYPE"):
		normal, err := parseClientType(args[1])
		return func(*Session) bool { return normal }, err
	case len(args) > 1 && is(args[0], "ID"):
		ids := map[int64]bool{}
		for _, a := range args[1:] {
			id, ok := parseInt(a)
			if !ok {
				return nil, refusal("ERR Invalid client ID")
			}
			ids[id] = true
		}
		return func(s *Session) bool { return ids[s.ID] }, nil
	}
	return nil, errSyntax
}

// killFilter is what CLIENT KILL selects by.
type killFilter struct {
	ids         map[int64]bool // nil: any
	addr, laddr string         // "": any
	user        string         // "": any
	users       *acl.Users     // that there are
	none        bool           // the type asked for has no clients
	age         time.Duration  // at least so long connected; 0: any
	me          bool           // SKIPME no
}

// killOptions are the filters of CLIENT KILL. Of one that is repeated the last
// counts, but for the IDs, which are added up.
var killOptions = []option[killFilter]{
	{token: "ID", many: true, value: func(f *killFilter, v []byte) error {
		id, ok := parseInt(v)
		if !ok || id < 1 {
			return refusal("ERR client-id should be greater than 0")
		}
		if f.ids == nil {
			f.ids = map[int64]bool{}
		}
		f.ids[id] = true
		return nil
	}},
	{token: "ADDR", value: func(f *killFilter, v []byte) error { f.addr = string(v); return nil }},
	{token: "LADDR", value: func(f *killFilter, v []byte) error { f.laddr = string(v); return nil }},
	{token: "TYPE", value: func(f *killFilter, v []byte) error {
		normal, err := parseClientType(v)
		f.none = !normal
		return err
	}},
	{token: "USER", value: func(f *killFilter, v []byte) error {
		if f.user = string(v); f.users.Get(f.user) == nil {
			return refusal("ERR No such user '" + string(cString(v, maxQuoted)) + "'")
		}
		return nil
	}},
	{token: "MAXAGE", value: func(f *killFilter, v []byte) error {
		seconds, ok := parseInt(v)
		if !ok || seconds < 1 || seconds > int64(maxPause/time.Second) {
			return refusal("ERR maxage is not an integer or out of range")
		}
		f.age = time.Duration(seconds) * time.Second
		return nil
	}},
	{token: "SKIPME", value: func(f *killFilter, v []byte) error {
		if f.me = is(v, "NO"); !f.me && !is(v, "YES") {
			return errSyntax
		}
		return nil
	}},
}

// matches reports whether the filter selects a client.
func (f *killFilter) matches(s *Session) bool {
	return !f.none && (f.ids == nil || f.ids[s.ID]) && (f.addr == "" || f.addr == s.Addr) &&
		(f.laddr == "" || f.laddr == s.LocalAddr) && (f.user == "" || f.user == s.User()) &&
		(f.age == 0 || time.Since(s.created) >= f.age)
}

// clientKill is CLIENT KILL addr, which answers OK, or CLIENT KILL with
// filters, which answers how many clients there were.
func clientKill(c *Context) {
	f := killFilter{users: c.Server.Users, me: true}
	if len(c.Args) == 3 {
		f.addr = string(c.Args[2])
		if c.kill(&f) == 0 {
			c.fail(refusal("ERR No such client"))
			return
		}
		c.W.Status("OK")
		return
	}
	f.me = false
	if _, err := parseOptions(&f, killOptions, c.Args[2:], ""); c.failed(err) {
		return
	}
	c.W.Int(int64(c.kill(&f)))
}

// kill closes the connections a filter selects. The own one is closed only
// after its reply was written.
func (c *Context) kill(f *killFilter) int {
	n := 0
	if c.Server.Kill != nil {
		n = c.Server.Kill(func(s *Session) bool {
			return s != c.Session && f.matches(s) && s.killed.CompareAndSwap(false, true)
		})
	}
	if f.me && f.matches(c.Session) {
		c.Session.closing.Store(true)
		n++
	}
	return n
}

// The flags of CLIENT's subcommands.
const (
	clientFlags      = NoScript | Loading | Stale
	clientAdminFlags = clientFlags | Admin
)

// clientSub declares a subcommand of CLIENT.
func clientSub(name string, arity int, flags Flags, since, summary string, run func(*Context),
	args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: flags, Group: groupConnection, ACL: connectionACL, Since: since,
		Summary: summary, Args: args, Run: run,
	}
}

// onOff documents an argument that is ON or OFF.
func onOff(name string) Arg { return oneOf(name, word("ON"), word("OFF")) }

// clientCommands are CLIENT and its subcommands.
var clientCommands = []Command{{
	Name: "client", Arity: -2, Flags: unpaused, Group: groupConnection, Since: "2.4.0",
	Summary: "A container for commands on client connections.",
	Subcommands: append([]Command{
		clientSub("id", 2, clientFlags|pure, "5.0.0", "Returns the number of the connection.",
			func(c *Context) { c.W.Int(c.Session.ID) }),
		withTips(clientSub("info", 2, clientFlags, "6.2.0", "Describes the connection.",
			func(c *Context) { c.W.Verbatim(c.Session.describe(time.Now()) + "\n") }), changingTip...),
		withTips(clientSub("list", -2, clientAdminFlags, "2.4.0", "Describes all connections.", clientList,
			opt(with("TYPE", oneOf("client-type", word("NORMAL"), word("MASTER"), word("REPLICA"),
				word("PUBSUB")))),
			opt(with("ID", multi(intArg("client-id"))))), changingTip...),
		clientSub("setname", 3, clientFlags, "2.6.9", "Names the connection.", clientSetName,
			strArg("connection-name")),
		clientSub("getname", 2, clientFlags, "2.6.9", "Returns the connection's name.", clientGetName),
		clientSub("setinfo", 4, clientFlags, "7.2.0", "Sets the name or version of the client library.",
			clientSetInfo,
			oneOf("attr", with("LIB-NAME", strArg("libname")), with("LIB-VER", strArg("libver")))),
		clientSub("no-evict", 3, clientAdminFlags, "7.0.0", "Spares the connection: maxmemory-clients then "+
			"neither counts its memory nor closes it.",
			clientNoEvict, onOff("enabled")),
		clientSub("reply", 3, clientFlags, "3.2.0", "Turns replies on or off, or skips the next.",
			clientReply,
			oneOf("action", word("ON"), word("OFF"), word("SKIP"))),
		audited(auditAll, clientSub("kill", -3, clientAdminFlags, "2.4.0", "Closes connections.", clientKill,
			oneOf("filter", strArg("ip:port"), block("new-format",
				opt(with("ID", multi(intArg("client-id")))),
				opt(with("TYPE", oneOf("client-type", word("NORMAL"), word("MASTER"), word("REPLICA"),
					word("PUBSUB")))),
				opt(with("USER", strArg("username"))), opt(with("ADDR", strArg("ip:port"))),
				opt(with("LADDR", strArg("ip:port"))), opt(with("MAXAGE", intArg("maxage"))),
				opt(with("SKIPME", oneOf("yes/no", word("YES"), word("NO")))))))),
		clientSub("pause", -3, clientAdminFlags, "2.9.50", "Makes clients wait for a time.", clientPause,
			intArg("milliseconds"), opt(oneOf("mode", word("WRITE"), word("ALL")))),
		clientSub("unpause", 2, clientAdminFlags, "6.2.0", "Ends CLIENT PAUSE.",
			func(c *Context) { c.pause(time.Time{}, false) }),
		since("5.0.0", helpFor("client", groupConnection, connectionACL...)),
	}, trackingCommands...),
}}
