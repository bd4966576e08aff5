package integration

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/commands"
)

// Everything that one server does, the leader of a shard does. These tests play the tables of
// others to a leader, with a hash tag at the end of every key.

// tag is the hash tag, at the end of keys, so that the prefixes of tables and users hold.
const tag = "{t}"

// maxTagged is the longest key that is tagged. Longer ones are there to try the limits.
const maxTagged = 1000

// taggedArgs returns a command with a tag at the end of all its keys, and of patterns for keys.
func taggedArgs(args []string) []string {
	args = append([]string(nil), args...)
	mark := func(i int) {
		if i < len(args) && args[i] != "" && len(args[i]) <= maxTagged {
			args[i] += tag
		}
	}
	if len(args) == 0 {
		return args
	}
	c := commands.Commands.Get([]byte(args[0]))
	switch {
	case c == nil:
		return args
	case c.Name == "keys":
		mark(1)
	case c.Name == "scan":
		for i := 2; i < len(args); i += 2 {
			if strings.EqualFold(args[i], "match") {
				mark(i + 1)
			}
		}
	}
	if len(args) > 1 {
		for i := range c.Subcommands {
			if strings.EqualFold(c.Subcommands[i].Name, args[1]) {
				c = &c.Subcommands[i]
				break
			}
		}
	}
	first, last, step := c.Keys.First, c.Keys.Last, c.Keys.Step
	switch {
	case first == 0:
		return args
	case c.Keys.NumKeys && first < len(args):
		n, err := strconv.Atoi(args[first])
		if err != nil || n < 1 || n > len(args) {
			return args
		}
		first, last = first+1, first+1+step*(n-1)
	case last < 0:
		last += len(args)
	}
	for i := first; i <= last && i < len(args); i += step {
		mark(i)
	}
	return args
}

// maxShardSteps is how much of a script a shard plays, which waits for three disks.
const maxShardSteps = 800

// tagged returns the script with a tag at the end of all keys.
func (s *script) tagged() *script {
	tag := &script{name: s.name + "/shard"}
	for _, e := range s.steps[:min(len(s.steps), maxShardSteps)] {
		tagged := *e
		switch e.kind {
		case rawSend:
		case scanAll:
			tagged.args = taggedArgs(append([]string{"SCAN", "0"}, e.args...))[2:]
		default:
			tagged.args = taggedArgs(e.args)
			tagged.bytes = frame(tagged.args...)
		}
		tag.steps = append(tag.steps, &tagged)
	}
	return tag
}

// shardLeader starts three nodes, whose leader nothing but their death changes, and returns it.
func shardLeader(t testing.TB, args ...string) *server {
	t.Helper()
	return leaderOf(t, startCluster(t, 3, append(args, "--cluster-node-timeout", "5000")...)...)
}
