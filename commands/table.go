package commands

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// Table is the set of commands, looked up by name in any letter case. It does
// not change and is safe for concurrent use.
type Table struct {
	byName map[string]*Command
	sorted []*Command // by name
	all    []*Command // with subcommands; all[i].index == i
}

// Commands is the table of every command there is; whatever needs to know
// about commands (dispatch, arity, MULTI, COMMAND, the tests) derives from it.
var Commands = newTable(slices.Concat([][]Command{
	counterCommands, // CINCRBY and its family
	throttleCommands,
	holdCommands,  // CHOLD and its family, CGETDEL
	tableCommands, // CTABLE
}, typeFamilies(), [][]Command{ // FBF.*
	stringCommands, // GET, SET, INCR, …
	increxCommands,
	keyCommands, // DEL, EXPIRE, SCAN, …
	objectCommands,
	memoryCommands,
	connectionCommands,
	clientCommands,
	transactionCommands, // MULTI, WATCH
	commandCommands,
	aclCommands, // users and what they may do
	configCommands,
	serverCommands,
	observeCommands, // SLOWLOG, LATENCY, MONITOR
	hotkeysCommands,
	standaloneCommands, // REPLICAOF, MODULE
	clusterCommands,
	regionCommands,
	regionPullCommands,
	followCommands,
	topCommands,
	refusedCommands,
})...)

// named returns the command or subcommand with this full name, by which it was
// declared; nil if there is none.
func (t *Table) named(fullName string) *Command {
	for _, c := range t.all {
		if c.fullName == fullName {
			return c
		}
	}
	return nil
}

// Rename returns the table with another name for a command, or without it if
// the new name is empty. Permissions, statistics and COMMAND go on calling it
// by its first name.
func (t *Table) Rename(name, to string) (*Table, error) {
	c := t.Get([]byte(name))
	to = strings.ToLower(to)
	switch {
	case c == nil:
		return nil, errors.New("No such command in rename-command")
	case to != "" && t.Get([]byte(to)) != nil:
		return nil, errors.New("Target command name already exists")
	case len(to) > maxName:
		return nil, errors.New("Target command name is too long")
	}
	renamed := &Table{byName: maps.Clone(t.byName), sorted: t.sorted, all: t.all}
	delete(renamed.byName, strings.ToLower(name))
	if to != "" {
		renamed.byName[to] = c
		return renamed, nil
	}
	renamed.sorted = slices.DeleteFunc(slices.Clone(t.sorted), func(other *Command) bool {
		return other == c
	})
	return renamed, nil
}

// maxName is the longest name of a command or subcommand.
const maxName = 32

// newTable builds the table from the families' declarations. A mistake in
// them is a bug found by any test, so it panics.
func newTable(families ...[]Command) *Table {
	t := &Table{byName: map[string]*Command{}}
	for _, family := range families {
		for i := range family {
			c := &family[i]
			c.fullName = c.Name
			if container, name, ok := strings.Cut(c.Name, "|"); ok { // refused: not among its Subcommands
				c.Name = name
				t.addSub(t.byName[container], c)
				continue
			}
			t.add(t.byName, c)
			t.sorted = append(t.sorted, c)
			for j := range c.Subcommands {
				t.addSub(c, &c.Subcommands[j])
			}
		}
	}
	slices.SortFunc(t.sorted, byName)
	return t
}

// family gives commands what they have in common, where they do not say it themselves.
func family(common Command, all []Command) []Command {
	for i := range all {
		c := &all[i]
		c.Group, c.Since = cmp.Or(c.Group, common.Group), cmp.Or(c.Since, common.Since)
		if c.ACL == nil {
			c.ACL = common.ACL
		}
	}
	return all
}

// byName orders commands.
func byName(a, b *Command) int { return strings.Compare(a.fullName, b.fullName) }

// names returns the full names of all commands and subcommands, by index.
func (t *Table) names() []string {
	list := make([]string, len(t.all))
	for i, c := range t.all {
		list[i] = c.fullName
	}
	return list
}

// addSub enters a subcommand.
func (t *Table) addSub(container, sub *Command) {
	sub.parent = container
	sub.Group, sub.Since = cmp.Or(sub.Group, container.Group), cmp.Or(sub.Since, container.Since)
	sub.fullName = container.Name + "|" + sub.Name
	if container.subs == nil {
		container.subs = map[string]*Command{}
	}
	t.add(container.subs, sub)
}

// add enters a command or subcommand under its name.
func (t *Table) add(names map[string]*Command, c *Command) {
	if len(c.Name) > maxName || names[c.Name] != nil {
		panic("commands: bad or repeated name " + c.fullName)
	}
	if c.index = len(t.all); c.index >= observe.MaxCommands {
		panic("commands: raise observe.MaxCommands")
	}
	c.access = accessOf(c.Keys.Flags)
	if len(c.Subcommands) > 0 {
		c.Complexity = cmp.Or(c.Complexity, "Depends on subcommand.")
	} else if c.Refusal == "" {
		c.Complexity = cmp.Or(c.Complexity, "O(1)")
	}
	t.all = append(t.all, c)
	names[c.Name] = c
}

// Get returns the command with this name, in any letter case, or nil.
func (t *Table) Get(name []byte) *Command { return lookup(t.byName, name) }

// sub returns the subcommand with this name, in any letter case, or nil.
func (c *Command) sub(name []byte) *Command { return lookup(c.subs, name) }

// lookup folds name to lower case on the stack and finds it without an
// allocation.
func lookup(names map[string]*Command, name []byte) *Command {
	if len(name) > maxName {
		return nil
	}
	var lower [maxName]byte
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return names[string(lower[:len(name)])]
}

// resolve finds the command or subcommand that a request asks for and checks
// its arity. If it is refused, text is the error reply.
func (t *Table) resolve(args [][]byte) (c *Command, text string) {
	c = t.Get(args[0])
	if c == nil {
		return nil, unknownCommand(args)
	}
	if c.subs != nil && len(args) > 1 {
		sub := c.sub(args[1])
		switch {
		case sub != nil:
			c = sub
		case c.Refusal == "":
			return c, unknownSubcommand(c, args[1])
		}
	}
	if !c.arityOK(len(args)) {
		return c, wrongArity(c)
	}
	return c, ""
}

// supported lists the commands that are not refused, by name.
func (t *Table) supported() []*Command {
	list := make([]*Command, 0, len(t.sorted))
	for _, c := range t.sorted {
		if c.Refusal == "" {
			list = append(list, c)
		}
	}
	return list
}

// find returns the command with a full name such as "get" or "config|get", in
// any letter case, or nil. Refused commands are not found.
func (t *Table) find(name []byte) *Command {
	var sub []byte
	i := slices.Index(name, '|')
	if i >= 0 {
		name, sub = name[:i], name[i+1:]
	}
	c := t.Get(name)
	if c != nil && i >= 0 {
		c = c.sub(sub)
	}
	if c == nil || c.Refusal != "" {
		return nil
	}
	return c
}

// All returns every command by name, those that are refused included. The
// declarations belong to the table and must not be changed.
func (t *Table) All() []*Command { return slices.Clone(t.sorted) }

// Categories returns the command's ACL categories, such as "@write": those it
// declares and those that follow from its flags.
func (c *Command) Categories() []string { return c.categories() }
