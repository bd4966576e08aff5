package commands

import (
	"slices"
	"strings"
)

// doCommand is COMMAND and COMMAND INFO without names: every command's row.
func doCommand(c *Context) {
	list := c.table.supported()
	c.W.Array(len(list))
	for _, cmd := range list {
		cmd.writeInfo(c.W)
	}
}

// commandInfo is COMMAND INFO [name …]; an unknown name's row is null.
func commandInfo(c *Context) {
	if len(c.Args) == 2 {
		doCommand(c)
		return
	}
	c.W.Array(len(c.Args) - 2)
	for _, name := range c.Args[2:] {
		c.table.find(name).writeInfo(c.W)
	}
}

// commandDocs is COMMAND DOCS [name …]; unknown names are left out.
func commandDocs(c *Context) {
	list := c.table.supported()
	if len(c.Args) > 2 {
		list = nil
		for _, name := range c.Args[2:] {
			if cmd := c.table.find(name); cmd != nil {
				list = append(list, cmd)
			}
		}
	}
	c.W.Map(len(list))
	for _, cmd := range list {
		cmd.writeDocs(c.W)
	}
}

// listFilters are the filters of COMMAND LIST FILTERBY.
var listFilters = map[string]func(c *Command, value []byte) bool{
	"MODULE": func(*Command, []byte) bool { return false },
	"ACLCAT": func(c *Command, v []byte) bool {
		return slices.Contains(c.categories(), "@"+strings.ToLower(string(v)))
	},
	"PATTERN": func(c *Command, v []byte) bool { return Match([]byte(strings.ToLower(string(v))), []byte(c.fullName)) },
}

// commandList is COMMAND LIST [FILTERBY MODULE | ACLCAT | PATTERN value].
func commandList(c *Context) {
	keep, value := func(*Command, []byte) bool { return true }, []byte(nil)
	if len(c.Args) > 2 {
		if len(c.Args) != 5 || !is(c.Args[2], "FILTERBY") || checkPattern(c.Args[4]) != nil {
			c.fail(errSyntax)
			return
		}
		if keep = listFilters[strings.ToUpper(string(c.Args[3]))]; keep == nil {
			c.fail(errSyntax)
			return
		}
		value = c.Args[4]
	}
	var names []string
	for _, cmd := range c.table.supported() {
		if keep(cmd, value) {
			names = append(names, cmd.fullName)
		}
		for i := range cmd.Subcommands {
			if len(c.Args) > 2 && keep(&cmd.Subcommands[i], value) {
				names = append(names, cmd.Subcommands[i].fullName)
			}
		}
	}
	c.W.BulkStrings(names)
}

// commandKeys is COMMAND GETKEYS and GETKEYSANDFLAGS command [arg …].
func commandKeys(flags bool) func(*Context) {
	return func(c *Context) {
		args := c.Args[2:]
		cmd, refused := c.table.resolve(args)
		switch {
		case cmd == nil || cmd.Refusal != "":
			c.fail(refusal("ERR Invalid command specified"))
			return
		case cmd.Keys.First == 0:
			c.fail(refusal("ERR The command has no key arguments"))
			return
		case refused != "":
			c.fail(refusal("ERR Invalid number of arguments specified for command"))
			return
		}
		var keys [][]byte
		if !cmd.Keys.each(args, func(key []byte) bool { keys = append(keys, key); return true }) {
			c.fail(refusal("ERR Invalid arguments specified for command"))
			return
		}
		c.W.Array(len(keys))
		for _, k := range keys {
			if flags {
				c.W.Array(2)
			}
			c.W.Bulk(k)
			if flags {
				statusSet(c.W, strings.Fields(cmd.keyFlags(args)))
			}
		}
	}
}

// commandFlags are the flags of COMMAND and its subcommands.
const commandFlags = Loading | Stale | pure

// commandSub declares a subcommand of COMMAND.
func commandSub(name string, arity int, since, summary string, run func(*Context), args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: commandFlags, Group: groupServer, ACL: connectionACL, Since: since,
		Complexity: "O(N), where N is the number of commands", Summary: summary, Args: args, Run: run,
	}
}

// unordered gives a command the tip that its reply is in no certain order.
func unordered(c Command) Command {
	c.Tips = []string{"nondeterministic_output_order"}
	return c
}

// commandCommands are COMMAND and its subcommands.
var commandCommands = []Command{{
	Name: "command", Arity: -1, Flags: commandFlags, Group: groupServer, ACL: connectionACL, Since: "2.8.13",
	Complexity: "O(N), where N is the number of commands", Tips: []string{"nondeterministic_output_order"},
	Summary: "Describes all commands.", Run: doCommand,
	Subcommands: []Command{
		commandSub("count", 2, "2.8.13", "Returns the number of commands.",
			func(c *Context) { c.W.Int(int64(len(c.table.supported()))) }),
		unordered(commandSub("info", -2, "2.8.13", "Describes some or all commands to programs.", commandInfo,
			opt(multi(strArg("command-name"))))),
		unordered(commandSub("docs", -2, "7.0.0", "Documents some or all commands.", commandDocs,
			opt(multi(strArg("command-name"))))),
		unordered(commandSub("list", -2, "7.0.0", "Lists the names of commands.", commandList,
			opt(with("FILTERBY", oneOf("filterby", with("MODULE", strArg("module-name")),
				with("ACLCAT", strArg("category")), with("PATTERN", patArg("pattern"))))))),
		commandSub("getkeys", -3, "2.8.13", "Returns the keys among the arguments of a command.", commandKeys(false),
			strArg("command"), opt(multi(strArg("arg")))),
		commandSub("getkeysandflags", -3, "7.0.0", "Returns the keys among the arguments of a command, and their use.",
			commandKeys(true), strArg("command"), opt(multi(strArg("arg")))),
		helpFor("command", groupServer, connectionACL...),
	},
}}
