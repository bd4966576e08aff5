package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDialogues holds the server to the conversations in testdata, each on a
// new server and once in each protocol version, and in the newer one on the leader of a
// shard, which is stopped in the middle, so that another node goes on:
//
//	# a comment
//	> CINCRBY hits op-1 5
//	:5
//	> CGET nothing
//	2 $-1
//	3 _
//
// A line after a command is its reply as readReply renders it. One that begins
// with 2 or 3 is the reply in that version of the protocol, and one that begins with shard is the
// reply of the leader of a shard, where it must be another. One in /slashes/ is a regular
// expression for the whole of it. In a command, "quotes" may hold escapes, and (x*512) stands for
// 512 times x.
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.dialogue")
	if err != nil || len(files) == 0 {
		t.Fatal("no dialogues", err)
	}
	for _, file := range files {
		steps := readDialogue(t, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".dialogue")+"/shard", func(t *testing.T) {
			t.Parallel()
			all := startShard(t)
			leader := leaderOf(t, all...)
			c := leader.dial()
			c.do("HELLO", "3")
			for i, open := 0, false; i < len(steps); i++ {
				if i >= len(steps)/2 && !open && leader != nil {
					leader.stop()
					c = leaderOf(t, without(all, leader)...).dial()
					c.do("HELLO", "3")
					leader = nil
				}
				steps[i].check(c, "shard", taggedArgs(steps[i].args))
				switch strings.ToUpper(steps[i].args[0]) {
				case "MULTI", "WATCH":
					open = true
				case "EXEC", "DISCARD", "UNWATCH":
					open = false
				}
			}
		})
		for _, proto := range []string{"2", "3"} {
			name := strings.TrimSuffix(filepath.Base(file), ".dialogue")
			t.Run(name+"/RESP"+proto, func(t *testing.T) {
				t.Parallel()
				s := startServer(t)
				c := s.dial()
				c.do("HELLO", proto)
				for _, step := range steps {
					step.check(c, proto, step.args)
				}
			})
		}
	}
}

// step is one command of a dialogue and the reply it must get.
type step struct {
	where   string
	args    []string
	replies map[string]string // by version of the protocol, and of a shard
}

// check sends the command, perhaps with tagged keys, and compares the reply.
func (s *step) check(c *rawConn, proto string, args []string) {
	c.t.Helper()
	got, want := strings.ReplaceAll(c.do(args...), tag, ""), s.replies[proto]
	if pattern, ok := strings.CutPrefix(want, "/"); ok {
		pattern = "^" + strings.TrimSuffix(pattern, "/") + "$"
		if !regexp.MustCompile(pattern).MatchString(got) {
			c.t.Errorf("%s: %.100q\n got  %s\nmatch %s", s.where, s.args, got, pattern)
		}
		return
	}
	if got != want {
		c.t.Errorf("%s: %.100q\n got %s\nwant %s", s.where, s.args, got, want)
	}
}

// readDialogue reads a file of steps.
func readDialogue(t *testing.T, file string) []*step {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []*step
	for i, line := range strings.Split(string(text), "\n") {
		where := fmt.Sprintf("%s:%d", file, i+1)
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case line == "" || line[0] == '#' && !strings.HasPrefix(line, "#t") && !strings.HasPrefix(line, "#f"):
		case isCommand:
			args, err := splitCommand(command)
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			steps = append(steps, &step{where: where, args: args, replies: map[string]string{}})
		case len(steps) == 0:
			t.Fatalf("%s: a reply without a command", where)
		default:
			steps[len(steps)-1].addReply(t, line)
		}
	}
	for _, s := range steps {
		if s.replies["shard"] == "" {
			s.replies["shard"] = s.replies["3"]
		}
		if len(s.replies) != 3 {
			t.Fatalf("%s: want a reply in each version of the protocol", s.where)
		}
	}
	return steps
}

// addReply enters a line after the command.
func (s *step) addReply(t *testing.T, line string) {
	if reply, own := strings.CutPrefix(line, "shard "); own {
		s.replies["shard"] = reply
		return
	}
	for _, proto := range []string{"2", "3"} {
		reply, own := strings.CutPrefix(line, proto+" ")
		if !own && (line[0] == '2' || line[0] == '3') {
			continue
		}
		if s.replies[proto] != "" {
			t.Fatalf("%s: more than one reply", s.where)
		}
		s.replies[proto] = reply
	}
}

// word is one argument of a command in a dialogue.
var word = regexp.MustCompile(`^\s*("(?:[^"\\]|\\.)*"|\((.)\*(\d+)\)|[^\s"]+)`)

// splitCommand splits a command of a dialogue into its arguments.
func splitCommand(line string) ([]string, error) {
	var args []string
	for rest := strings.TrimSpace(line); rest != ""; {
		m := word.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("cannot split %q", rest)
		}
		arg := m[1]
		switch {
		case m[2] != "":
			n, _ := strconv.Atoi(m[3])
			arg = strings.Repeat(m[2], n)
		case arg[0] == '"':
			var err error
			if arg, err = strconv.Unquote(arg); err != nil {
				return nil, fmt.Errorf("%s: %w", m[1], err)
			}
		}
		args = append(args, arg)
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	return args, nil
}
