package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/acl"
)

// OpenUsers returns the users that the settings and the aclfile define.
// An error is one line that says where what is wrong.
func (c *Config) OpenUsers() (*acl.Users, error) {
	if c.ACLFile != "" && len(c.Users) > 0 {
		return nil, errors.New("users are defined by user lines and by an aclfile: " +
			"that would sooner or later open a hole; use one of the two")
	}
	if c.ACLFile != "" {
		return c.readACLFile()
	}
	users := acl.NewUsers(commands.Catalog())
	users.SetDefaultPassword(c.RequirePass)
	defined := map[string]bool{}
	for _, u := range c.Users {
		if err := users.Define(u.Name, u.Rules, defined); err != nil {
			return nil, userError(u.Name, err)
		}
	}
	return users, nil
}

// aclPath is where aclfile is: a relative path begins in dir.
func (c *Config) aclPath() string {
	if filepath.IsAbs(c.ACLFile) {
		return c.ACLFile
	}
	return filepath.Join(c.Dir, c.ACLFile)
}

// readACLFile reads the users of aclfile.
func (c *Config) readACLFile() (*acl.Users, error) {
	text, err := os.ReadFile(c.aclPath())
	if err != nil {
		return nil, fmt.Errorf("aclfile: %w", err)
	}
	return acl.ParseFile(commands.Catalog(), c.aclPath(), string(text), c.RequirePass)
}

// fillSecurity gives package commands the users and what concerns them. If the
// users of the settings cannot be had, which OpenUsers would have told, nobody
// gets in.
func (s *Server) fillSecurity() {
	config := s.config.Load()
	if s.commands.Users == nil {
		users, err := config.OpenUsers()
		if err != nil {
			s.log.Error("the users cannot be read, so nobody can log in", "error", err)
			users = acl.NewUsers(commands.Catalog())
			if err := users.Set(acl.Default, []string{"reset"}); err != nil {
				s.log.Error("default user", "error", err)
			}
		}
		s.commands.Users = users
	}
	table, err := tableOf(config.Renamed)
	if err != nil { // addRename has checked it
		panic("server: " + err.Error())
	}
	s.commands.Table = table
	s.commands.ACLLog = new(acl.Log)
	s.commands.LoginFailed = s.loginFailed
	s.commands.Audited = s.audited
	s.commands.Stopping = s.stop
	if config.ACLFile != "" {
		s.commands.LoadUsers = s.loadUsers
		s.commands.SaveUsers = s.saveUsers
	}
}

// securityChanges carries out changed settings.
func (s *Server) securityChanges() map[string]func(*Config) error {
	return map[string]func(*Config) error{
		"requirepass": func(c *Config) error {
			s.commands.Users.SetDefaultPassword(c.RequirePass)
			return nil
		},
	}
}

// loadUsers is ACL LOAD: all of the file or nothing.
func (s *Server) loadUsers() error {
	s.configSet.Lock()
	defer s.configSet.Unlock()
	users, err := s.config.Load().readACLFile()
	if err != nil {
		return err
	}
	gone := s.commands.Users.Replace(users)
	s.log.Info("users read", "aclfile", s.config.Load().aclPath(), "users", len(s.commands.Users.Names()),
		"gone_or_changed", gone)
	return nil
}

// saveUsers is ACL SAVE. The file is replaced as a whole or not at all.
func (s *Server) saveUsers() error {
	s.configSet.Lock()
	defer s.configSet.Unlock()
	path := s.config.Load().aclPath()
	err := replaceFile(path, []byte(s.commands.Users.File()))
	if err != nil {
		s.log.Warn("the users cannot be saved", "aclfile", path, "error", err)
	}
	return err
}

// userLines returns the users as CONFIG REWRITE writes them: none if they are in
// an aclfile, and not the user default if it is what requirepass alone makes it and
// no line was there for it.
func (s *Server) userLines(c *Config) []UserLine {
	if c.ACLFile != "" {
		return nil
	}
	plain := acl.NewUsers(commands.Catalog())
	plain.SetDefaultPassword(c.RequirePass)
	said := slices.ContainsFunc(c.Users, func(u UserLine) bool { return u.Name == acl.Default })
	var lines []UserLine
	for _, u := range s.commands.Users.List() {
		if u.Name() == acl.Default && !said && u.String() == plain.Default().User().String() {
			continue
		}
		lines = append(lines, lineOf(u))
	}
	return slices.Clip(lines)
}

// audited logs an administrative act: who did what, and from where.
func (s *Server) audited(session *commands.Session, command string) {
	s.log.Info("admin command", "command", command, "user", session.User(), "client", session.Addr,
		"client_name", session.Name())
}

// failureLogEvery is how often failed logins, or TLS handshakes, are logged at most.
const failureLogEvery = time.Second

// failureLog spares the log a line for every failure that strangers can cause.
type failureLog struct {
	mu     sync.Mutex
	last   time.Time
	silent int // failures since then
}

// due reports whether to log a failure now, and how many were not logged since the last one.
func (l *failureLog) due() (silent int, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < failureLogEvery {
		l.silent++
		return 0, false
	}
	silent = l.silent
	l.last, l.silent = now, 0
	return silent, true
}

// loginFailed logs that a client failed to log in: who, and from where, and
// never the password.
func (s *Server) loginFailed(session *commands.Session, user string) {
	if silent, yes := s.loginLog.due(); yes {
		s.log.Warn("a client failed to log in", "client", session.Addr, "user", user[:min(len(user), 64)],
			"more_since_last", silent)
	}
}

var securitySettings = []Setting{
	{
		Name: "requirepass", Group: GroupSecurity, Default: `""`, Mutable: true,
		Doc: "The password of the user default, which clients send with AUTH or HELLO. Set it in the " +
			"configuration file: other users of the machine can read a command line. It is never shown.",
		kind: password(func(c *Config) *string { return &c.RequirePass }),
	}, {
		Name: "user", Group: GroupSecurity, Default: "", Lines: true,
		Doc: "A user and its permissions, one per line, in the rules of ACL SETUSER: user alice on >secret " +
			"~page:* +@read. Cannot be combined with aclfile.",
		kind: list(func(c *Config) *[]UserLine { return &c.Users }, "<name> <rule> ...", nil,
			formatUsers).adding(addUser),
	}, {
		Name: "aclfile", Group: GroupSecurity, Default: `""`,
		Doc: "The file with the users, for ACL LOAD and ACL SAVE. A relative path begins in dir. " +
			"requirepass has no effect if the file has the user default.",
		kind: text(func(c *Config) *string { return &c.ACLFile }, "<path>", 4096),
	}, {
		Name: "rename-command", Group: GroupSecurity, Default: "", Lines: true,
		Doc: `Gives a command another name, one per line: rename-command FLUSHALL wipe-it-all; "" removes the command. ` +
			"The rules of users keep the old name.",
		kind: list(func(c *Config) *[]Rename { return &c.Renamed }, "<command> <name>", nil,
			formatRenames).adding(addRename),
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
