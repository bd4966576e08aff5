package integration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/commands"
)

// The reference pages of docs are rendered from the tables that the server itself works with:
// COMMANDS.md from the command table, SETTINGS.md from the settings.

// pageNotice begins every page.
const pageNotice = "<!-- Made by `make docs` from the declarations in the code. Do not edit. -->\n\n"

const commandsIntro = `# Commands

Every command of the server; ` + "`COMMAND DOCS <name>`" + ` returns the same to a client. In a syntax line, [brackets] mean
optional, <a | b> is a choice, and ... means repeatable. Replies and error texts
are Redis' wherever Redis has the command.
`

// groups are the headings, in the order of the page. Groups that are not here
// come after them.
var groups = []struct{ name, title string }{
	{"counter", "Idempotent counters"},
	{"table", "Tables"},
	{"fbf", "Forgetful Bloom filters"},
	{"bloom", "Bloom filters"},
	{"cms", "Count-min sketches"},
	{"string", "Counters as Redis knows them"},
	{"generic", "Keys"},
	{"transactions", "Transactions"},
	{"connection", "Connections"},
	{"server", "Server"},
}

// commandsPage renders docs/COMMANDS.md.
func commandsPage() string {
	byGroup := map[string][]*commands.Command{}
	var refused []*commands.Command
	order := make([]string, len(groups))
	titles := map[string]string{}
	for i, g := range groups {
		order[i], titles[g.name] = g.name, g.title
	}
	for _, c := range commands.Commands.All() {
		if c.Refusal != "" {
			refused = append(refused, c)
			continue
		}
		if !slices.Contains(order, c.Group) {
			order, titles[c.Group] = append(order, c.Group), title(c.Group)
		}
		byGroup[c.Group] = append(byGroup[c.Group], c)
	}
	var b strings.Builder
	b.WriteString(pageNotice + commandsIntro)
	for _, group := range order {
		if len(byGroup[group]) > 0 {
			fmt.Fprintf(&b, "\n## %s\n", titles[group])
		}
		for _, c := range byGroup[group] {
			writeCommand(&b, c)
		}
	}
	writeRefused(&b, refused)
	return b.String()
}

// title makes a heading of a group's name.
func title(group string) string { return strings.ToUpper(group[:1]) + group[1:] }

// writeCommand renders one command and its subcommands.
func writeCommand(b *strings.Builder, c *commands.Command) {
	name := strings.ToUpper(strings.ReplaceAll(c.FullName(), "|", " "))
	if c.Run != nil || c.Parse != nil || c.Control != nil {
		fmt.Fprintf(b, "\n### %s\n\n```text\n%s\n```\n\n%s\n\n", name, c.Syntax(), escape(c.Summary))
		fmt.Fprintf(b, "Since %s. %s. Categories: %s.\n", since(c),
			escape(strings.TrimSuffix(c.Complexity, ".")),
			strings.Join(c.Categories(), ", "))
	}
	for i := range c.Subcommands {
		if sub := &c.Subcommands[i]; sub.Name != "help" {
			writeCommand(b, sub)
		}
	}
}

// since tells whose version a command has: ours are below 1.0.
func since(c *commands.Command) string {
	if strings.HasPrefix(c.Since, "0.") {
		return "fbfkv " + c.Since
	}
	return "Redis " + c.Since
}

// writeRefused lists the commands that are answered with a reason why they are
// not there.
func writeRefused(b *strings.Builder, refused []*commands.Command) {
	byReason := map[string][]string{}
	var reasons []string
	for _, c := range refused {
		_, reason, ok := strings.Cut(c.Refusal, ": ")
		if !ok {
			reason = c.Refusal
		}
		if byReason[reason] == nil {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], "`"+strings.ToUpper(c.Name)+"`")
	}
	slices.Sort(reasons)
	b.WriteString("\n## Not supported\n\nThe server answers these with an error that says why.\n\n| " +
		"reason | commands |\n| --- | --- |\n")
	for _, r := range reasons {
		fmt.Fprintf(b, "| %s | %s |\n", r, strings.Join(byReason[r], " "))
	}
}
