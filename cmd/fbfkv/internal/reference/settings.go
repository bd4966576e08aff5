package reference

import (
	"fmt"
	"strings"

	"github.com/fbfkv/fbfkv/server"
)

const settingsIntro = `# Settings

Every setting can be given as a flag (` + "`--port 6380`" + `), in a file in redis.conf's syntax (` + "`fbfkv /etc/fbfkv.conf`" + `,
a line ` + "`port 6380`" + `; flags win), and is shown by ` + "`CONFIG GET`" + `. Where the meaning is the same, the name is redis.conf's.
Those marked *live* can be changed while the server runs, with ` + "`CONFIG SET`" + `; ` + "`CONFIG REWRITE`" + ` writes them to the file.
Sizes take the units kb, mb, gb (1024) and k, m, g (1000).
`

// Settings renders docs/SETTINGS.md.
func Settings() string {
	var b strings.Builder
	b.WriteString(notice + settingsIntro)
	group := ""
	for i := range server.Settings {
		s := &server.Settings[i]
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
	return b.String()
}

// defaultOf shows a setting's default.
func defaultOf(s *server.Setting) string {
	if s.Default == "" || s.Default == `""` {
		return "empty"
	}
	return "`" + s.Default + "`"
}

// liveness says when a setting can be changed.
func liveness(s *server.Setting) string {
	switch {
	case s.Fixed:
		return ", the only value: it is there for clients that ask and for files made for Redis"
	case s.Mutable:
		return " · *live*"
	}
	return ""
}

// escape keeps characters that Markdown would take for its own.
func escape(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}
