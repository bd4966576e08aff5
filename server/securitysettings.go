package server

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/acl"
)

var securitySettings = []Setting{
	{
		Name: "requirepass", Group: GroupSecurity, Default: `""`, Mutable: true,
		Doc: "The password of the user default, which clients send with AUTH or HELLO. Set it in the configuration " +
			"file: other users of the machine can read a command line.",
		kind: text(func(c *Config) *string { return &c.RequirePass }, "<password>", 512),
	}, {
		Name: "user", Group: GroupSecurity, Default: "", Lines: true,
		Doc: "A user and its permissions, one per line, in the rules of ACL SETUSER: user alice on >secret ~page:* " +
			"+@read. Cannot be combined with aclfile.",
		kind: list(func(c *Config) *[]UserLine { return &c.Users }, "<name> <rule> ...", nil, formatUsers).adding(addUser),
	}, {
		Name: "aclfile", Group: GroupSecurity, Default: `""`,
		Doc: "The file with the users, for ACL LOAD and ACL SAVE. A relative path begins in dir. requirepass has no " +
			"effect if the file has the user default.",
		kind: text(func(c *Config) *string { return &c.ACLFile }, "<path>", 4096),
	}, {
		Name: "acllog-max-len", Group: GroupSecurity, Default: "128", Mutable: true,
		Doc:  "How many denied commands, keys and logins ACL LOG keeps.",
		kind: integer(func(c *Config) *int { return &c.ACLLogMaxLen }, 0, math.MaxInt32),
	}, {
		Name: "rename-command", Group: GroupSecurity, Default: "", Lines: true,
		Doc: `Gives a command another name, one per line: rename-command FLUSHALL wipe-it-all; "" removes the command. ` +
			"The rules of users keep the old name.",
		kind: list(func(c *Config) *[]Rename { return &c.Renamed }, "<command> <name>", nil, formatRenames).adding(addRename),
	},
}

// UserLine is one user of the setting `user`: its name and its rules as ACL LIST
// shows them, without passwords in the clear.
type UserLine struct {
	Name  string
	Rules []string
}

// lineOf describes a user.
func lineOf(u *acl.User) UserLine {
	return UserLine{u.Name(), strings.Fields(strings.Join(u.Rules(), " "))}
}

// adding makes a kind whose every line adds to the value; without words it
// stays as it is.
func (k kind) adding(add func(c *Config, words []string) error) kind {
	k.parse = func(c *Config, words []string) error {
		if len(words) == 0 {
			return nil
		}
		return add(c, words)
	}
	return k
}

// addUser reads one user.
func addUser(c *Config, words []string) error {
	defined := map[string]bool{}
	for _, u := range c.Users {
		defined[u.Name] = true
	}
	users := acl.NewUsers(commands.Catalog())
	if err := users.Define(words[0], words[1:], defined); err != nil {
		return userError(words[0], err)
	}
	user := users.Get(words[0])
	c.Users = append(slices.Clip(c.Users), lineOf(user))
	return nil
}

// userError says which user a rule is wrong for, but not the rule unless it
// is about commands, keys or channels, for it may hold a password.
func userError(name string, err error) error {
	var rule *acl.RuleError
	if errors.As(err, &rule) && strings.IndexAny(rule.Rule, "+-~%&") == 0 {
		return fmt.Errorf("rule %s of %q: %w", quoteWord(rule.Rule), name, err)
	}
	return fmt.Errorf("%q: %w", name, err)
}

// formatUsers renders users as lines without the setting's name, in alphabetical
// order.
func formatUsers(users []UserLine) []string {
	lines := make([]string, len(users))
	for i, u := range users {
		line := quoteWord(u.Name)
		for _, r := range u.Rules {
			line += " " + quoteWord(r)
		}
		lines[i] = line
	}
	slices.Sort(lines)
	return lines
}

// Rename is one line of the setting `rename-command`; an empty To takes the
// command away.
type Rename struct{ Command, To string }

// addRename reads one line of rename-command.
func addRename(c *Config, words []string) error {
	if len(words) != 2 {
		return errOneWord
	}
	renamed := append(slices.Clip(c.Renamed), Rename{words[0], words[1]})
	if _, err := tableOf(renamed); err != nil {
		return err
	}
	c.Renamed = renamed
	return nil
}

// tableOf returns the command table with its renamed commands.
func tableOf(renamed []Rename) (*commands.Table, error) {
	t := commands.Commands
	for _, r := range renamed {
		var err error
		if t, err = t.Rename(r.Command, r.To); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// formatRenames renders the lines without the setting's name.
func formatRenames(renamed []Rename) []string {
	lines := make([]string, len(renamed))
	for i, r := range renamed {
		lines[i] = quoteWord(r.Command) + " " + quoteWord(r.To)
	}
	return lines
}
