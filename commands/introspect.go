package commands

import (
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/server/resp"
)

// aclOrder is the order in which categories are shown.
func aclOrder() []string {
	return slices.Concat([]string{"@keyspace", "@read", "@write", "@string", "@counter", "@table"}, typeCategories("@"),
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
		"@fast": has(Fast), "@slow": !has(Fast), "@dangerous": has(Admin),
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

// write writes the key specifications, of which a command here has at most
// one.
func (k *KeySpec) write(w *resp.Writer) {
	if k.First == 0 {
		w.Set(0)
		return
	}
	w.Set(1)
	w.Map(3)
	w.BulkString("flags")
	statusSet(w, strings.Fields(k.Flags))
	w.BulkString("begin_search")
	writeSpec(w, "index", specNumber{"index", k.First})
	w.BulkString("find_keys")
	if k.NumKeys {
		writeSpec(w, "keynum", specNumber{"keynumidx", 0}, specNumber{"firstkey", 1}, specNumber{"keystep", k.Step})
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
	w.BulkString("type")
	w.BulkString(kind)
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
	pairs := [][2]string{{"summary", c.Summary}, {"since", c.Since}, {"group", c.Group}, {"complexity", c.Complexity}}
	n := len(pairs)
	if len(c.Args) > 0 {
		n++
	}
	if len(c.Subcommands) > 0 {
		n++
	}
	w.Map(n)
	for _, p := range pairs {
		w.BulkString(p[0])
		w.BulkString(p[1])
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
		w.BulkString(p[0])
		w.BulkString(p[1])
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
