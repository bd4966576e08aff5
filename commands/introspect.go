package commands

import (
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/resp"
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
	"PATTERN": func(c *Command, v []byte) bool {
		return Match([]byte(strings.ToLower(string(v))), []byte(c.fullName))
	},
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
		for i, k := range keys {
			if flags {
				c.W.Array(2)
			}
			c.W.Bulk(k)
			if flags {
				use := cmd.keyFlags(args)
				if cmd.Keys.Sources > 0 && i > 0 {
					use = keyRead
				}
				statusSet(c.W, strings.Fields(use))
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

// unorderedTip is of a command whose reply is in no certain order.
var unorderedTip = []string{"nondeterministic_output_order"}

// commandCommands are COMMAND and its subcommands.
var commandCommands = []Command{{
	Name: "command", Arity: -1, Flags: commandFlags, Group: groupServer, ACL: connectionACL, Since: "2.8.13",
	Complexity: "O(N), where N is the number of commands", Tips: unorderedTip,
	Summary: "Describes all commands.", Run: doCommand,
	Subcommands: []Command{
		commandSub("count", 2, "2.8.13", "Returns the number of commands.",
			func(c *Context) { c.W.Int(int64(len(c.table.supported()))) }),
		withTips(commandSub("info", -2, "2.8.13", "Describes some or all commands to programs.", commandInfo,
			opt(multi(strArg("command-name")))), unorderedTip...),
		withTips(commandSub("docs", -2, "7.0.0", "Documents some or all commands.", commandDocs,
			opt(multi(strArg("command-name")))), unorderedTip...),
		withTips(commandSub("list", -2, "7.0.0", "Lists the names of commands.", commandList,
			opt(with("FILTERBY", oneOf("filterby", with("MODULE", strArg("module-name")),
				with("ACLCAT", strArg("category")), with("PATTERN", patArg("pattern")))))), unorderedTip...),
		commandSub("getkeys", -3, "2.8.13", "Returns the keys among the arguments of a command.",
			commandKeys(false),
			strArg("command"), opt(multi(strArg("arg")))),
		commandSub("getkeysandflags", -3, "7.0.0", "Returns the keys among the arguments of a command, "+
			"and their use.",
			commandKeys(true), strArg("command"), opt(multi(strArg("arg")))),
		since("5.0.0", helpFor("command", groupServer, connectionACL...)),
	},
}}

// aclOrder is the order in which categories are shown.
func aclOrder() []string {
	return slices.Concat([]string{"@keyspace", "@read", "@write", "@string", "@counter", "@table", "@sketch"},
		typeCategories("@"),
		[]string{"@admin", "@fast", "@slow", "@dangerous", "@connection", "@transaction"})
}

// categories returns a command's ACL categories: those it declares and those
// that follow from its flags. A refused command declares all of them.
func (c *Command) categories() []string {
	if c.Refusal != "" {
		return c.ACL
	}
	has := func(f Flags) bool { return c.Flags&f != 0 }
	implied := map[string]bool{
		"@read": has(ReadOnly), "@write": has(Write), "@admin": has(Admin),
		"@fast": has(Fast), "@slow": !has(Fast) && !slices.Contains(c.ACL, "@fast"), "@dangerous": has(Admin),
	}
	var list []string
	for _, cat := range aclOrder() {
		if implied[cat] || slices.Contains(c.ACL, cat) {
			list = append(list, cat)
		}
	}
	return list
}

// legacyKeys returns first, last and step as COMMAND INFO shows them; they
// are 0 for commands whose keys they cannot describe.
func (k *KeySpec) legacyKeys() (first, last, step int) {
	if k.NumKeys {
		return 0, 0, 0
	}
	return k.First, k.Last, k.Step
}

// statusSet writes words as a set of status replies.
func statusSet(w *resp.Writer, words []string) {
	w.Set(len(words))
	for _, s := range words {
		w.Status(s)
	}
}

// writeInfo writes the row of COMMAND INFO; a nil command is null.
func (c *Command) writeInfo(w *resp.Writer) {
	if c == nil {
		w.Null()
		return
	}
	w.Array(10)
	w.BulkString(c.fullName)
	w.Int(int64(c.Arity))
	statusSet(w, c.Flags.names())
	first, last, step := c.Keys.legacyKeys()
	w.Int(int64(first))
	w.Int(int64(last))
	w.Int(int64(step))
	statusSet(w, c.categories())
	w.Set(len(c.Tips))
	for _, t := range c.Tips {
		w.BulkString(t)
	}
	c.Keys.write(w)
	w.Set(len(c.Subcommands))
	for i := range c.Subcommands {
		c.Subcommands[i].writeInfo(w)
	}
}

// write writes the key specifications.
func (k *KeySpec) write(w *resp.Writer) {
	switch {
	case k.First == 0:
		w.Set(0)
	case k.Sources > 0:
		w.Set(2)
		k.writeOne(w)
		sources := k.sources()
		sources.writeOne(w)
	default:
		w.Set(1)
		k.writeOne(w)
	}
}

// writeOne writes one key specification.
func (k *KeySpec) writeOne(w *resp.Writer) {
	w.Map(3)
	w.BulkString("flags")
	statusSet(w, strings.Fields(k.Flags))
	w.BulkString("begin_search")
	writeSpec(w, "index", specNumber{"index", k.First})
	w.BulkString("find_keys")
	if k.NumKeys {
		writeSpec(w, "keynum", specNumber{"keynumidx", 0}, specNumber{"firstkey", 1},
			specNumber{"keystep", k.Step})
		return
	}
	last := k.Last // relative to the first key, unless it counts from the end
	if last > 0 {
		last -= k.First
	}
	writeSpec(w, "range", specNumber{"lastkey", last}, specNumber{"keystep", k.Step}, specNumber{"limit", 0})
}

// specNumber is a named number of a key specification.
type specNumber struct {
	name  string
	value int
}

// writeSpec writes one step of a key specification.
func writeSpec(w *resp.Writer, kind string, numbers ...specNumber) {
	w.Map(2)
	w.Pair("type", kind)
	w.BulkString("spec")
	w.Map(len(numbers))
	for _, n := range numbers {
		w.BulkString(n.name)
		w.Int(int64(n.value))
	}
}

// writeDocs writes a command's name and its documentation.
func (c *Command) writeDocs(w *resp.Writer) {
	w.BulkString(c.fullName)
	pairs := [][2]string{{"summary", c.Summary}, {"since", c.Since}, {"group", c.Group}, {"complexity",
		c.Complexity}}
	n := len(pairs)
	if len(c.Args) > 0 {
		n++
	}
	if len(c.Subcommands) > 0 {
		n++
	}
	w.Map(n)
	for _, p := range pairs {
		w.Pair(p[0], p[1])
	}
	if len(c.Args) > 0 {
		w.BulkString("arguments")
		writeArgs(w, c.Args)
	}
	if len(c.Subcommands) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.Subcommands))
		for i := range c.Subcommands {
			c.Subcommands[i].writeDocs(w)
		}
	}
}

// writeArgs writes the documentation of arguments.
func writeArgs(w *resp.Writer, args []Arg) {
	w.Array(len(args))
	for i := range args {
		args[i].writeDocs(w)
	}
}

// writeDocs writes the documentation of one argument.
func (a *Arg) writeDocs(w *resp.Writer) {
	pairs := [][2]string{{"name", a.Name}, {"type", string(a.Type)}}
	if a.Token != "" {
		pairs = append(pairs, [2]string{"token", a.Token})
	}
	var flags []string
	if a.Optional {
		flags = append(flags, "optional")
	}
	if a.Multiple {
		flags = append(flags, "multiple")
	}
	n := len(pairs)
	for _, more := range []bool{a.Type == TypeKey, len(flags) > 0, len(a.Args) > 0} {
		n += int(bit(more))
	}
	w.Map(n)
	for _, p := range pairs {
		w.Pair(p[0], p[1])
	}
	if a.Type == TypeKey {
		w.BulkString("key_spec_index")
		w.Int(0)
	}
	if len(flags) > 0 {
		w.BulkString("flags")
		statusSet(w, flags)
	}
	if len(a.Args) > 0 {
		w.BulkString("arguments")
		writeArgs(w, a.Args)
	}
}

// helpFor declares the HELP subcommand of a container, whose text is rendered
// from the declarations beside it; acl are its categories. One that Redis has, too, is
// declared with the version in which it got it.
func helpFor(container, group string, acl ...string) Command {
	return Command{
		Name: "help", Arity: 2, Flags: Loading | Stale | pure, Group: group, ACL: acl, Since: "0.2.0",
		Summary: "Returns helpful text about the subcommands.",
		Run: func(c *Context) {
			lines := c.table.named(container).helpLines()
			c.W.Array(len(lines))
			for _, l := range lines {
				c.W.Status(l)
			}
		},
	}
}

// helpLines renders the HELP of a container in the layout of Redis'.
func (c *Command) helpLines() []string {
	lines := []string{strings.ToUpper(c.Name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for i := range c.Subcommands {
		sub := &c.Subcommands[i]
		lines = append(lines, strings.TrimPrefix(sub.Syntax(), strings.ToUpper(c.Name)+" "),
			"    "+sub.Summary)
	}
	return lines
}
