package commands

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// redisCategories are the categories that Redis has, in its order, with those
// of the modules that Redis 8 comes with. Ours follow.
var redisCategories = strings.Fields("keyspace read write set sortedset list hash string bitmap " +
	"hyperloglog geo stream pubsub admin fast slow blocking dangerous connection transaction scripting " +
	"json search tdigest cms bloom cuckoo topk timeseries")

// catalog is the command table as rules see it: everything about permissions
// derives from the declarations.
var catalog = newCatalog(Commands)

// newCatalog returns the catalog of a table, with its commands' indices.
// Refused commands are in it as well, so that Redis' rules can be taken over.
func newCatalog(t *Table) *acl.Catalog {
	list := make([]acl.Command, len(t.all))
	for i, c := range t.all {
		list[i] = acl.Command{Name: c.fullName, Always: c.Flags&NoAuth != 0}
		for _, category := range c.categories() {
			list[i].Categories = append(list[i].Categories, strings.TrimPrefix(category, "@"))
		}
	}
	own := slices.DeleteFunc(typeCategories(""), func(c string) bool {
		return slices.Contains(redisCategories, c)
	})
	return acl.NewCatalog(slices.Concat(redisCategories, []string{"counter", "table", "sketch"}, own), list)
}

// Catalog returns what rules can permit: every command of the table.
func Catalog() *acl.Catalog { return catalog }

// accessOf returns what a key specification's flags say of the use of keys.
func accessOf(flags string) (a acl.Access) {
	for _, f := range strings.Fields(flags) {
		switch f {
		case "access":
			a |= acl.Read
		case "insert", "update", "delete":
			a |= acl.Write
		}
	}
	return a
}

// keyFlags returns the key specification flags of one request.
func (c *Command) keyFlags(args [][]byte) string {
	if c.KeyFlags != nil {
		return c.KeyFlags(args)
	}
	return c.Keys.Flags
}

// keyRefs appends the keys of a request and their use. A request that does not
// hold the number of keys it announces gets none and is not ok.
func (c *Command) keyRefs(refs []acl.KeyRef, args [][]byte) (_ []acl.KeyRef, ok bool) {
	access := c.access
	if c.KeyFlags != nil {
		access = accessOf(c.KeyFlags(args))
	}
	first, last, ok := c.Keys.span(args)
	for i := first; ok && i <= last && i < len(args); i += c.Keys.Step {
		refs = append(refs, acl.KeyRef{Pos: i, Access: access})
	}
	if c.Keys.Sources > 0 {
		sources := c.Keys.sources()
		if first, last, ok = sources.span(args); ok {
			for i := first; i <= last; i++ {
				refs = append(refs, acl.KeyRef{Pos: i, Access: acl.Read})
			}
		}
	}
	return refs, ok
}

// check decides whether a user may run a resolved command with these arguments;
// object is what is denied.
func (c *Command) check(u *acl.User, args [][]byte, refs []acl.KeyRef) (reason acl.Reason, object string,
	_ []acl.KeyRef) {
	if u.Everything() {
		return acl.Allowed, "", refs
	}
	refs = refs[:0]
	if c.Keys.First > 0 && u.NeedsKeys() {
		var ok bool
		if refs, ok = c.keyRefs(refs, args); !ok {
			// Its Parse will refuse it. Its keys are not known, so a user
			// without access to all keys learns no more.
			refs = append(refs, acl.KeyRef{Pos: c.Keys.First, Access: c.access})
		}
	}
	reason, pos := u.Check(c.index, args, refs)
	switch reason {
	case acl.DeniedKey:
		object = string(args[pos])
	case acl.DeniedCommand:
		object = c.fullName
	}
	return reason, object, refs
}

// unrestricted reports whether nothing the client asks for can be denied. It is
// the one test that a user with all rights costs a command.
func (s *Session) unrestricted() bool {
	return s.authenticated && s.account.Load().User().Everything()
}

// denied returns the refusal of a request that the client may not make, or "".
func (p *Pipeline) denied(c *Command, args [][]byte) string {
	if p.loginMissing(c) {
		return string(errNoAuth.(refusal))
	}
	switch p.permit(c, args, c, p.tx.open) {
	case acl.DeniedCommand:
		return "NOPERM this user has no permissions to run the '" + c.fullName + "' command"
	case acl.DeniedKey:
		return string(errKeyDenied.(refusal))
	}
	return ""
}

var errKeyDenied error = refusal("NOPERM this user has no permissions to access one of the keys used as arguments")

// loginMissing reports whether the client has to log in before a command.
func (p *Pipeline) loginMissing(c *Command) bool {
	return !p.ses.authenticated && c.Flags&NoAuth == 0 && p.srv.Users.LoginNeeded()
}

// permit checks a request, perhaps of a transaction, and logs a denial; asked is the
// command that the client has sent, nil: EXEC.
func (p *Pipeline) permit(c *Command, args [][]byte, asked *Command, multi bool) (reason acl.Reason) {
	s := p.ses
	var object string
	reason, object, s.keyRefs = c.check(s.account.Load().User(), args, s.keyRefs)
	if reason != acl.Allowed {
		if asked == nil {
			asked = p.table.named("exec")
		}
		s.lastCmd.Store(asked)
		p.srv.logDenial(s, multi, reason, object, s.User())
	}
	return reason
}

// withdrawn returns the error of a command of a transaction that was permitted
// when it was queued and is not any more, or "".
func (p *Pipeline) withdrawn(q *queued) string {
	if p.ses.unrestricted() {
		return ""
	}
	const text = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the " +
		"EXEC call. This command is no longer allowed for the following reason: "
	switch p.permit(q.cmd, q.args, nil, true) {
	case acl.DeniedCommand:
		return text + "no permission to execute the command or subcommand"
	case acl.DeniedKey:
		return text + "no permission to touch the specified keys"
	}
	return ""
}

// logDenial enters a denial in ACL LOG.
func (s *Server) logDenial(ses *Session, multi bool, reason acl.Reason, object, user string) {
	context := "toplevel"
	if multi {
		context = "multi"
	}
	s.Observer.Stats.Denied(reason)
	now := time.Now()
	s.ACLLog.Add(acl.Entry{Reason: reason, Context: context, Object: object, User: user,
		Client: ses.describe(now), Time: now})
}

// User is the name of the user that the client is.
func (s *Session) User() string { return s.account.Load().Name() }

// UserGone reports whether the user that the client is was deleted, so that the
// connection has to be closed.
func (s *Session) UserGone() bool { return s.account.Load().Gone() }

// login makes the client a user.
func (s *Session) login(a *acl.Account) {
	s.account.Store(a)
	s.authenticated = true
}

// logout makes the client what a new one is.
func (s *Session) logout(users *acl.Users) {
	s.account.Store(users.Default())
	s.authenticated = !users.LoginNeeded()
}

// words returns arguments as strings.
func words(args [][]byte) []string {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = string(a)
	}
	return list
}

// aclSetUser is ACL SETUSER username [rule …]: all of the rules or none.
func aclSetUser(c *Context) {
	rules, err := acl.MergeSelectors(words(c.Args[3:]))
	if err == nil {
		err = c.Server.Users.Set(string(c.Args[2]), rules)
	}
	var wrong *acl.RuleError
	if errors.As(err, &wrong) {
		err = refusal("ERR Error in ACL SETUSER modifier '" + wrong.Rule + "': " + wrong.Err.Error())
	}
	c.ok(err)
}

// aclGetUser is ACL GETUSER username.
func aclGetUser(c *Context) {
	u := c.Server.Users.Get(string(c.Args[2]))
	if u == nil {
		c.W.Null()
		return
	}
	c.W.Map(6)
	c.W.BulkString("flags")
	flags := u.Flags()
	c.W.Set(len(flags))
	for _, f := range flags {
		c.W.BulkString(f)
	}
	c.W.BulkString("passwords")
	c.W.BulkStrings(u.Passwords())
	selectors := u.Selectors()
	c.permissions(selectors[0])
	c.W.BulkString("selectors")
	c.W.Array(len(selectors) - 1)
	for _, s := range selectors[1:] {
		c.W.Map(3)
		c.permissions(s)
	}
}

// permissions writes the pairs that describe a selector.
func (c *Context) permissions(p acl.Permissions) {
	c.W.Pair("commands", p.Commands)
	c.W.Pair("keys", p.Keys)
	c.W.Pair("channels", p.Channels)
}

// aclList is ACL LIST.
func aclList(c *Context) {
	users := c.Server.Users.List()
	c.W.Array(len(users))
	for _, u := range users {
		c.W.BulkString(u.String())
	}
}

// aclDelUser is ACL DELUSER username …; their connections are closed.
func aclDelUser(c *Context) {
	n, err := c.Server.Users.Delete(words(c.Args[2:]))
	if c.failed(err) {
		return
	}
	c.closeGone()
	c.W.Int(int64(n))
}

// closeGone closes the connections of users that are gone; the own one after
// its reply.
func (c *Context) closeGone() {
	if c.Server.Kill != nil {
		c.Server.Kill(func(s *Session) bool { return s != c.Session && s.UserGone() })
	}
	if c.Session.UserGone() {
		c.Session.closing.Store(true)
	}
}

// aclCat is ACL CAT [category].
func aclCat(c *Context) {
	catalog := c.Server.Users.Catalog()
	switch len(c.Args) {
	case 2:
		c.W.BulkStrings(catalog.Categories())
	case 3:
		names, ok := catalog.Members(string(c.Args[2]))
		if !ok {
			c.fail(refusal("ERR Unknown category '" + string(cString(c.Args[2], maxQuoted)) + "'"))
			return
		}
		c.W.BulkStrings(names)
	default:
		c.fail(tooManyArguments("ACL", c.Args[1]))
	}
}

// defaultDenials is how many entries ACL LOG shows unless told otherwise.
const defaultDenials = 10

// aclLog is ACL LOG [count | RESET].
func aclLog(c *Context) {
	n := int64(defaultDenials)
	switch {
	case len(c.Args) > 3:
		c.fail(tooManyArguments("ACL", c.Args[1]))
		return
	case len(c.Args) == 3 && is(c.Args[2], "RESET"):
		c.Server.ACLLog.Reset()
		c.W.Status("OK")
		return
	case len(c.Args) == 3:
		var ok bool
		if n, ok = parseInt(c.Args[2]); !ok {
			c.fail(errNotInteger)
			return
		}
	}
	entries := c.Server.ACLLog.Latest(int(max(n, 0)))
	now := time.Now()
	c.W.Array(len(entries))
	for _, e := range entries {
		c.W.Map(10)
		c.W.BulkString("count")
		c.W.Int(e.Count)
		c.W.Pair("reason", e.Reason.String())
		c.W.Pair("context", e.Context)
		c.W.Pair("object", e.Object)
		c.W.Pair("username", e.User)
		c.W.BulkString("age-seconds")
		c.W.Double(float64(max(now.Sub(e.Time), 0).Milliseconds()) / 1000)
		c.W.Pair("client-info", e.Client)
		c.W.BulkString("entry-id")
		c.W.Int(e.ID)
		c.W.BulkString("timestamp-created")
		c.W.Int(e.Created.UnixMilli())
		c.W.BulkString("timestamp-last-updated")
		c.W.Int(e.Time.UnixMilli())
	}
}

// errNoACLFile is Redis' own text.
var errNoACLFile error = refusal("ERR This Redis instance is not configured to use an ACL file. You may " +
	"want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have " +
	"a Redis configuration file set) in order to store users in the Redis configuration.")

// aclLoad is ACL LOAD: all of the file or, if a line is wrong, nothing of it.
// Connections of users who are gone or changed are closed.
func aclLoad(c *Context) {
	if c.Server.LoadUsers == nil {
		c.fail(errNoACLFile)
		return
	}
	err := c.Server.LoadUsers()
	c.closeGone()
	c.ok(err)
}

// aclSave is ACL SAVE.
func aclSave(c *Context) {
	if c.Server.SaveUsers == nil {
		c.fail(errNoACLFile)
		return
	}
	if c.Server.SaveUsers() != nil {
		c.fail(refusal("ERR There was an error trying to save the ACLs. Please check the server logs for " +
			"more information"))
		return
	}
	c.W.Status("OK")
}

// aclDryRun is ACL DRYRUN username command [arg …].
func aclDryRun(c *Context) {
	u := c.Server.Users.Get(string(c.Args[2]))
	if u == nil {
		c.fail(refusal("ERR User '" + string(cString(c.Args[2], maxQuoted)) + "' not found"))
		return
	}
	args := c.Args[3:]
	cmd, refused := c.table.resolve(args)
	switch {
	case cmd == nil:
		c.fail(refusal("ERR Command '" + string(cString(args[0], maxQuoted)) + "' not found"))
		return
	case refused != "":
		c.W.Error(refused)
		return
	}
	switch reason, object, _ := cmd.check(u, args, nil); reason {
	case acl.DeniedCommand:
		c.W.BulkString("This user has no permissions to run the '" + object + "' command")
	case acl.DeniedKey:
		c.W.BulkString("This user has no permissions to access the '" + object + "' key")
	default:
		c.W.Status("OK")
	}
}

// The bits that ACL GENPASS makes.
const (
	defaultPasswordBits = 256
	maxPasswordBits     = 4096
)

// aclGenPass is ACL GENPASS [bits]: random hexadecimal digits.
func aclGenPass(c *Context) {
	bits := int64(defaultPasswordBits)
	switch {
	case len(c.Args) > 3:
		c.fail(tooManyArguments("ACL", c.Args[1]))
		return
	case len(c.Args) == 3:
		var ok bool
		if bits, ok = parseInt(c.Args[2]); !ok {
			c.fail(errNotInteger)
			return
		}
	}
	if bits < 1 || bits > maxPasswordBits {
		c.fail(refusal("ERR ACL GENPASS argument must be the number of bits for the output password, a " +
			"positive number up to 4096"))
		return
	}
	digits := (bits + 3) / 4
	random := make([]byte, (digits+1)/2)
	rand.Read(random) // never fails
	c.W.BulkString(hex.EncodeToString(random)[:digits])
}

// The flags of ACL's subcommands.
const (
	aclFlags      = NoScript | Loading | Stale
	aclAdminFlags = aclFlags | Admin
)

// aclSub declares a subcommand of ACL.
func aclSub(name string, arity int, flags Flags, summary string, run func(*Context), args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: flags, Group: groupServer, Since: "6.0.0",
		Complexity: "O(N), where N is the number of users, rules or entries concerned", Summary: summary,
		Args: args, Run: run, Secret: secretFrom(2),
	}
}

// aclCommands are ACL and its subcommands.
var aclCommands = []Command{{
	Name: "acl", Arity: -2, Group: groupServer, Since: "6.0.0",
	Summary: "A container for commands on users and what they may do.",
	Subcommands: []Command{
		aclSub("cat", -2, aclFlags, "Lists the categories of commands, or the commands of one.", aclCat,
			opt(strArg("category"))),
		audited(auditAll, aclSub("deluser", -3, aclAdminFlags, "Deletes users and closes their connections.",
			aclDelUser,
			multi(strArg("username")))),
		since("7.0.0", aclSub("dryrun", -4, aclAdminFlags, "Says whether a user may run a command, "+
			"without running it.",
			aclDryRun, strArg("username"), strArg("command"), opt(multi(strArg("arg"))))),
		aclSub("genpass", -2, aclFlags, "Returns a random password.", aclGenPass, opt(intArg("bits"))),
		aclSub("getuser", 3, aclAdminFlags, "Returns a user's rules.", aclGetUser, strArg("username")),
		aclSub("list", 2, aclAdminFlags, "Returns all users with their rules, as in an ACL file.", aclList),
		audited(auditAll, aclSub("load", 2, aclAdminFlags,
			"Reads the users of the ACL file, all of them or, if a line is wrong, none.", aclLoad)),
		audited(denialsAudit, aclSub("log", -2, aclAdminFlags, "Lists the latest denied commands, keys "+
			"and logins, or forgets them.",
			aclLog, opt(oneOf("operation", intArg("count"), word("RESET"))))),
		audited(auditAll, aclSub("save", 2, aclAdminFlags, "Writes the users to the ACL file.", aclSave)),
		audited(userAudit, aclSub("setuser", -3, aclAdminFlags, "Creates or changes a user by rules.",
			aclSetUser,
			strArg("username"), opt(multi(strArg("rule"))))),
		aclSub("users", 2, aclAdminFlags, "Returns the names of all users.",
			func(c *Context) { c.W.BulkStrings(c.Server.Users.Names()) }),
		aclSub("whoami", 2, aclFlags, "Returns the name of the connection's user.",
			func(c *Context) { c.W.BulkString(c.Session.User()) }),
		since("6.0.0", helpFor("acl", groupServer)),
	},
}}
