package commands

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
			return h, refusal("ERR Syntax error in HELLO option '" + string(cString(args[i], maxQuoted)) + "'")
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
	if err != nil {
		c.fail(err)
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
	c.W.Pair("mode", "standalone")
	c.W.Pair("role", "master")
	c.W.BulkString("modules")
	c.W.Array(0)
}

// setProto changes the protocol version of this and later replies.
func (c *Context) setProto(v int) {
	c.Session.proto.Store(int32(v))
	c.W.Proto = v
}

// doReset brings the connection back to the state of a new one.
func doReset(c *Context) {
	s := c.Session
	s.End()
	*c.tx = transaction{}
	c.watch.clear()
	s.multi.Store(-1)
	s.setName("")
	s.noEvict.Store(false)
	s.noTouch.Store(false)
	c.unmute = s.reply == replyOff // a reply that is to be skipped stays so
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

// connectionCommands concern the connection itself.
var connectionCommands = []Command{
	{
		Name: "ping", Arity: -1, Flags: Fast | pure, Group: groupConnection, ACL: connectionACL, Since: "1.0.0",
		Complexity: "O(1)", Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Summary: "Answers PONG, or the message.", Args: []Arg{opt(strArg("message"))}, Run: doPing,
	},
	{
		Name: "echo", Arity: 2, Flags: Loading | Stale | Fast | pure, Group: groupConnection, ACL: connectionACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Answers the message.", Args: []Arg{strArg("message")},
		Run: func(c *Context) { c.W.Bulk(c.Args[1]) },
	},
	{
		Name: "select", Arity: 2, Flags: Loading | Stale | Fast | pure, Group: groupConnection, ACL: connectionACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Selects the database. There is only database 0.",
		Args: []Arg{intArg("index")}, Run: doSelect,
	},
	{
		Name: "auth", Arity: -2, Flags: authFlags, Group: groupConnection, ACL: connectionACL, Since: "1.0.0",
		Complexity: "O(1)", Summary: "Authenticates the connection.",
		Args: []Arg{opt(strArg("username")), strArg("password")}, Run: doAuth, Secret: secretFrom(1),
	},
	{
		Name: "hello", Arity: -1, Flags: authFlags, Group: groupConnection, ACL: connectionACL, Since: "6.0.0",
		Complexity: "O(1)", Summary: "Chooses the protocol version, 2 or 3, and describes the server.",
		Args: []Arg{opt(block("arguments", intArg("protover"),
			opt(with("AUTH", block("auth", strArg("username"), strArg("password")))),
			opt(with("SETNAME", strArg("clientname")))))},
		Run: doHello, Secret: helloSecret,
	},
	{
		Name: "quit", Arity: -1, Flags: authFlags | immediate, Group: groupConnection, ACL: connectionACL, Since: "1.0.0",
		Complexity: "O(1)", Summary: "Closes the connection once everything is answered.", Run: doQuit,
	},
	{
		Name: "reset", Arity: 1, Flags: authFlags | immediate | unwatches, Group: groupConnection, ACL: connectionACL, Since: "6.2.0",
		Complexity: "O(1)", Summary: "Resets the connection to the state of a new one.", Run: doReset,
	},
}
