package integration

import (
	"fmt"
	"strings"

	daemon "github.com/fbfkv/fbfkv/server"
)

const settingsIntro = `# Settings

Give a setting as a flag (` + "`--port 6380`" + `), in a file in redis.conf's syntax (` + "`fbfkv /etc/fbfkv.conf`" + `,
a line ` + "`port 6380`" + `; flags win); ` + "`CONFIG GET`" + ` shows it. A setting with the name of one in redis.conf has its meaning.
Those marked *live* can be changed while the server runs, with ` + "`CONFIG SET`" + `; ` + "`CONFIG REWRITE`" + ` writes them to the file.
Sizes take the units kb, mb, gb (1024) and k, m, g (1000), times ms, s, m, h and d; ` + "`CONFIG GET`" + ` shows them without.

In a file, the last line with a setting counts; the lines of save, user, rename-command and client-output-buffer-limit add up.
` + "`include <path>`" + ` reads another file in its place, or all files that match a pattern, in alphabetical order. A relative path
begins at the directory in which the server is started. ` + "`fbfkv --check-config <file>`" + ` prints everything that is wrong with a file, or ok.
`

const directivesIntro = `
## Directives of Redis

The server reads a redis.conf or valkey.conf as it is. It accepts a directive that means nothing here, and lists it in one line of
its log:
`

const refusedIntro = `
It refuses a directive whose effect you would miss:

| directive | accepted with | otherwise |
| --- | --- | --- |
`

// settingsPage renders docs/SETTINGS.md.
func settingsPage() string {
	var b strings.Builder
	b.WriteString(pageNotice + settingsIntro)
	group := ""
	for i := range daemon.Settings {
		s := &daemon.Settings[i]
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		fmt.Fprintf(&b, "\n### %s\n\n", s.Name)
		fmt.Fprintf(&b, "`%s %s`, default %s%s\n", s.Name, s.Syntax(), defaultOf(s), liveness(s))
		if s.Doc != "" {
			fmt.Fprintf(&b, "\n%s\n", escape(s.Doc))
		}
	}
	writeDirectives(&b)
	return b.String()
}

// writeDirectives writes which directives of Redis' have no effect or are refused.
func writeDirectives(b *strings.Builder) {
	b.WriteString(directivesIntro)
	refused, reason, between := refusedIntro, "", ""
	for _, d := range daemon.Directives {
		if d.Refused {
			unless := ""
			if d.Unless != nil {
				unless = "`" + strings.Join(d.Unless, "`, `") + "`"
			}
			refused += fmt.Sprintf("| `%s` | %s | %s |\n", d.Name, unless, d.Reason)
			continue
		}
		if d.Reason != reason {
			fmt.Fprintf(b, "%s\n- %s: ", between, d.Reason)
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "`%s`", d.Name)
		reason, between = d.Reason, "."
	}
	b.WriteString(".\n" + refused)
}

// defaultOf shows a setting's default.
func defaultOf(s *daemon.Setting) string {
	if s.Default == "" || s.Default == `""` {
		return "empty"
	}
	return "`" + s.Default + "`"
}

// liveness says when a setting can be changed.
func liveness(s *daemon.Setting) string {
	switch {
	case s.Fixed:
		return ", always, for clients that ask and for files made for Redis"
	case s.Mutable:
		return " · *live*"
	}
	return ""
}

// escape keeps characters that Markdown would take for its own.
func escape(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}
