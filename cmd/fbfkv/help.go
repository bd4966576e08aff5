package main

import (
	"fmt"
	"strings"

	"github.com/fbfkv/fbfkv/server"
)

const helpIntro = `fbfkv is a counter server whose increments can be retried safely. Every increment
carries an operation id. The server applies it once within a window of time,
however often it arrives, across reconnects, crashes and restarts. Use any Redis
client:

  $ redis-cli CINCRBY visits 018f3c2e-7b1a-7c3d 1
  (integer) 1
  $ redis-cli CINCRBY visits 018f3c2e-7b1a-7c3d 1    # a retry changes nothing
  (integer) 1

Usage:
  fbfkv [/path/to/fbfkv.conf] [--setting value ...]

  fbfkv                                 serve 127.0.0.1:6379 from ./fbfkv-data
  fbfkv --port 6380 --dir /var/lib/fbfkv
  fbfkv /etc/fbfkv.conf --loglevel debug
  fbfkv --check-config /etc/fbfkv.conf  print everything wrong with it, or ok
  fbfkv --appendfsync everysec          do not wait for the disk
  fbfkv check DIR                       check a data directory or a backup
  fbfkv backup [HOST:PORT] DIR          copy a running server's data (-: stdout)
  fbfkv restore BACKUP DIR              make a data directory of it (-: stdin)
  fbfkv verify BACKUP                   test whether a backup can be restored
  fbfkv import redis://HOST:PORT        copy the counters of a Redis to a server
  fbfkv export [HOST:PORT]              write a server's counters to stdout
  fbfkv follow [HOST:PORT]              write changes of counters to stdout
  fbfkv stream train --cms KEY          feed stdin to a filter or sketch
  fbfkv top [HOST:PORT]                 watch a server in a terminal
  fbfkv healthcheck                     ask a running server whether it is ready
  fbfkv cluster COMMAND                 make a cluster of servers, look after it
  fbfkv region COMMAND                  make servers regions, look after them

A configuration file contains one setting per line in redis.conf's syntax, without
the dashes (port 6380). include reads another file, or those that match a pattern.
A redis.conf works too: the log lists settings that have no effect here, and the
server refuses those that you would miss. The command line overrides the file.

SIGTERM, SIGINT and the command SHUTDOWN stop the server in an orderly way; a
second signal stops it at once. Neither loses anything acknowledged. SIGHUP opens
the log file again and reads the TLS certificates again.

  fbfkv --help settings                 all settings
  fbfkv --version                       version, commit and compiler
`

const settingsIntro = `Settings are given as --setting value, or as lines of a configuration file,
without the dashes. Defaults are in parentheses. Settings marked with * can be
changed while the server runs: redis-cli CONFIG SET <setting> <value>. Sizes take
the units kb, mb, gb (1024) and k, m, g (1000), times ms, s, m, h and d.
`

// The widths of the help text.
const (
	helpWidth  = 82
	helpIndent = 6
)

// settingsText renders the settings, group by group, from their declarations.
func settingsText() string {
	var b strings.Builder
	b.WriteString(settingsIntro)
	group := ""
	for i := range server.Settings {
		s := &server.Settings[i]
		if s.Fixed {
			continue
		}
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		mark := " "
		if s.Mutable {
			mark = "*"
		}
		fmt.Fprintf(&b, "\n %s --%s %s   (%s)\n", mark, s.Name, s.Syntax(), s.Default)
		b.WriteString(wrap(s.Doc, helpIndent, helpWidth))
	}
	return b.String()
}

// wrap breaks text into lines of at most width, indented.
func wrap(text string, indent, width int) string {
	var b strings.Builder
	column := 0
	for _, w := range strings.Fields(text) {
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		case column+1+len(w) > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(w)
		column += len(w)
	}
	b.WriteByte('\n')
	return b.String()
}
