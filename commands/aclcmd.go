package commands

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

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
	if err != nil {
		c.fail(err)
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

// tooManyArguments is the refusal of an optional argument too many, in the words
// that Redis has for it in these subcommands.
func tooManyArguments(args [][]byte) error {
	return refusal("ERR unknown subcommand or wrong number of arguments for '" + string(cString(args[1], maxQuoted)) +
		"'. Try ACL HELP.")
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
		c.fail(tooManyArguments(c.Args))
	}
}

// defaultDenials is how many entries ACL LOG shows unless told otherwise.
const defaultDenials = 10

// aclLog is ACL LOG [count | RESET].
func aclLog(c *Context) {
	n := int64(defaultDenials)
	switch {
	case len(c.Args) > 3:
		c.fail(tooManyArguments(c.Args))
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
var errNoACLFile error = refusal("ERR This Redis instance is not configured to use an ACL file. You may want to specify users via " +
	"the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order " +
	"to store users in the Redis configuration.")

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
		c.fail(refusal("ERR There was an error trying to save the ACLs. Please check the server logs for more information"))
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
		c.fail(tooManyArguments(c.Args))
		return
	case len(c.Args) == 3:
		var ok bool
		if bits, ok = parseInt(c.Args[2]); !ok {
			c.fail(errNotInteger)
			return
		}
	}
	if bits < 1 || bits > maxPasswordBits {
		c.fail(refusal("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"))
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
		Complexity: "O(N), where N is the number of users, rules or entries concerned",
		Summary:    summary, Args: args, Run: run, Secret: secretFrom(2),
	}
}

// aclCommands are ACL and its subcommands.
var aclCommands = []Command{{
	Name: "acl", Arity: -2, Group: groupServer, Since: "6.0.0", Complexity: "Depends on subcommand.",
	Summary: "A container for commands on users and what they may do.",
	Subcommands: []Command{
		aclSub("cat", -2, aclFlags, "Lists the categories of commands, or the commands of one.", aclCat,
			opt(strArg("category"))),
		audited(auditAll, aclSub("deluser", -3, aclAdminFlags, "Deletes users and closes their connections.", aclDelUser,
			multi(strArg("username")))),
		since("7.0.0", aclSub("dryrun", -4, aclAdminFlags, "Says whether a user may run a command, without running it.",
			aclDryRun, strArg("username"), strArg("command"), opt(multi(strArg("arg"))))),
		aclSub("genpass", -2, aclFlags, "Returns a random password.", aclGenPass, opt(intArg("bits"))),
		aclSub("getuser", 3, aclAdminFlags, "Returns a user's rules.", aclGetUser, strArg("username")),
		aclSub("list", 2, aclAdminFlags, "Returns all users with their rules, as in an ACL file.", aclList),
		audited(auditAll, aclSub("load", 2, aclAdminFlags,
			"Reads the users of the ACL file, all of them or, if a line is wrong, none.", aclLoad)),
		audited(denialsAudit, aclSub("log", -2, aclAdminFlags, "Lists the latest denied commands, keys and logins, or forgets them.",
			aclLog, opt(oneOf("operation", intArg("count"), word("RESET"))))),
		audited(auditAll, aclSub("save", 2, aclAdminFlags, "Writes the users to the ACL file.", aclSave)),
		audited(userAudit, aclSub("setuser", -3, aclAdminFlags, "Creates or changes a user by rules.", aclSetUser,
			strArg("username"), opt(multi(strArg("rule"))))),
		aclSub("users", 2, aclAdminFlags, "Returns the names of all users.",
			func(c *Context) { c.W.BulkStrings(c.Server.Users.Names()) }),
		aclSub("whoami", 2, aclFlags, "Returns the name of the connection's user.",
			func(c *Context) { c.W.BulkString(c.Session.User()) }),
		helpFor("acl", groupServer),
	},
}}
