package commands

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// commandInfoFile holds what Redis 7.0.15 says of the commands that both have:
// its rows of COMMAND INFO, and group and version of COMMAND DOCS. It is
// recorded as the dialogues are, see redis_test.go.
const commandInfoFile = "testdata/redis-command-info.txt"

// The fields of a row of COMMAND INFO, then two of COMMAND DOCS.
var rowFields = []string{"name", "arity", "flags", "first", "last", "step", "categories", "tips", "key specs",
	"group", "since"}

// TestCommandInfoAsRedis compares our declarations with Redis' own.
func TestCommandInfoAsRedis(t *testing.T) {
	if *redisAddr != "" {
		recordCommandInfo(t)
		return
	}
	recorded, err := os.ReadFile(commandInfoFile)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, newStore(t), new(Server))
	used := map[string]bool{}
	n := 0
	for line := range strings.Lines(string(recorded)) {
		want := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		got := commandRow(want[0], func(request string) string { return c.send(request) })
		if got == nil {
			t.Errorf("%s is gone", want[0])
			continue
		}
		n++
		for i, field := range rowFields {
			if got[i] == want[i] {
				continue
			}
			skip := differs(want[0], field)
			if skip == "" {
				t.Errorf("%s: %s is %q, Redis' is %q", want[0], field, got[i], want[i])
			}
			used[skip] = true
		}
	}
	for skip, reason := range otherwise {
		if !used[skip] {
			t.Errorf("no difference at %q: %s", skip, reason)
		}
	}
	if n < 100 {
		t.Errorf("only %d commands were compared", n)
	}
}

// differs returns the key in otherwise that allows a difference, or "".
func differs(name, field string) string {
	for _, key := range []string{name + " " + field, "* " + field} {
		if otherwise[key] != "" {
			return key
		}
	}
	return ""
}

// commandRow returns the description of a command, rendered field by field; nil if it is not known.
func commandRow(name string, ask func(request string) string) []string {
	reply, _ := decode(ask("COMMAND INFO " + name))
	rows := reply.([]any)
	if len(rows) != 1 || rows[0] == nil || len(rows[0].([]any)) == 0 {
		return nil
	}
	row := rows[0].([]any)
	fields := []string{}
	for i, v := range row[:9] {
		switch i {
		case 2, 6, 7: // sets: their order means nothing
			fields = append(fields, sortedWords(v))
		default:
			fields = append(fields, fmt.Sprint(v))
		}
	}
	reply, _ = decode(ask("COMMAND DOCS " + name))
	docs := reply.([]any)
	if len(docs) != 2 {
		return nil
	}
	pairs := docs[1].([]any)
	for _, want := range []string{"group", "since"} {
		value := ""
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == want {
				value = fmt.Sprint(pairs[i+1])
			}
		}
		fields = append(fields, value)
	}
	return fields
}

// sortedWords renders a list in alphabetical order.
func sortedWords(v any) string {
	var words []string
	for _, w := range v.([]any) {
		words = append(words, fmt.Sprint(w))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// decode reads the first reply of b: strings, int64, nil, and []any of them.
func decode(b string) (v any, rest string) {
	line, rest, _ := strings.Cut(b, "\r\n")
	n, _ := strconv.ParseInt(line[1:], 10, 64)
	switch line[0] {
	case '$':
		if n < 0 {
			return nil, rest
		}
		return rest[:n], rest[n+2:]
	case ':':
		return n, rest
	case '*':
		if n < 0 {
			return nil, rest
		}
		list := make([]any, n)
		for i := range list {
			list[i], rest = decode(rest)
		}
		return list, rest
	}
	return line[1:], rest
}

// recordCommandInfo asks a real Redis about the commands that are ours too.
func recordCommandInfo(t *testing.T) {
	conn, err := net.Dial("tcp", *redisAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(request string) string { return ask(t, conn, request) }
	var b strings.Builder
	for _, c := range Commands.all {
		if c.Refusal != "" {
			continue
		}
		if row := commandRow(c.fullName, ask); row != nil {
			b.WriteString(strings.Join(row, "\t") + "\n")
		}
	}
	if err := os.WriteFile(commandInfoFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// otherwise lists where our declarations differ from Redis' on purpose: "name
// field" or "* field", and why.
var otherwise = map[string]string{
	"set key specs":                 "without Redis' note",
	"getex key specs":               "without Redis' note",
	"command|getkeys arity":         "as since Redis 7.2: the command asked for may have no arguments",
	"command|getkeysandflags arity": "as since Redis 7.2: the command asked for may have no arguments",
}
