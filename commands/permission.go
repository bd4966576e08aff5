package commands

import (
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// redisCategories are the categories that Redis has, in its order, with those
// of the modules that Redis 8 comes with. Ours follow.
var redisCategories = strings.Fields("keyspace read write set sortedset list hash string bitmap hyperloglog geo stream " +
	"pubsub admin fast slow blocking dangerous connection transaction scripting " +
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
	return acl.NewCatalog(slices.Concat(redisCategories, []string{"counter", "table"}, typeCategories("")), list)
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
	return refs, ok
}

// check decides whether a user may run a resolved command with these arguments;
// object is what is denied.
func (c *Command) check(u *acl.User, args [][]byte, refs []acl.KeyRef) (reason acl.Reason, object string, _ []acl.KeyRef) {
	if u.Everything() {
		return acl.Allowed, "", refs
	}
	refs = refs[:0]
	if c.Keys.First > 0 && u.NeedsKeys() {
		var ok bool
		if refs, ok = c.keyRefs(refs, args); !ok {
			// It will be refused by its Parse. What it would have touched is
			// not known, so whoever may not touch everything learns no more.
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
		return "NOPERM this user has no permissions to access one of the keys used as arguments"
	}
	return ""
}

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
	const text = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. " +
		"This command is no longer allowed for the following reason: "
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
	s.stats.denied[reason].Add(1)
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
