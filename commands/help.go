package commands

import "strings"

// helpFor declares the HELP subcommand of a container, whose text is rendered
// from the declarations beside it; acl are its categories.
func helpFor(container, group string, acl ...string) Command {
	return Command{
		Name: "help", Arity: 2, Flags: Loading | Stale | pure, Group: group, ACL: acl, Since: "0.1.0", Complexity: "O(1)",
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
		lines = append(lines, strings.TrimPrefix(sub.Syntax(), strings.ToUpper(c.Name)+" "), "    "+sub.Summary)
	}
	return lines
}
