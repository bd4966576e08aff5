package commands

import "strings"

// helpFor declares the HELP subcommand of a container, whose text is rendered
// from the declarations beside it; acl are its categories.
func helpFor(container, group string, acl ...string) Command {
	return Command{
		Name: "help", Arity: 2, Flags: Loading | Stale | pure, Group: group, ACL: acl, Since: helpSince(container), Complexity: "O(1)",
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

// helpSince returns the version in which Redis got a container's HELP, or ours
// if Redis has no such container.
func helpSince(container string) string {
	if since, ok := redisHelp[container]; ok {
		return since
	}
	return "0.1.0"
}

// redisHelp are the versions in which Redis' containers got their HELP.
var redisHelp = map[string]string{
	"client": "5.0.0", "command": "5.0.0", "config": "5.0.0", "module": "5.0.0", "memory": "4.0.0", "acl": "6.0.0",
	"object": "6.2.0", "slowlog": "6.2.0", "latency": "2.8.13",
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
