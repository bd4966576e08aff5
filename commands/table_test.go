package commands

import (
	"bytes"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
)

var update = flag.Bool("update", false, "rewrite the golden `files`")

// TestTableGolden holds COMMAND's view of the table, and the syntax lines,
// against a file that a person reads in review.
func TestTableGolden(t *testing.T) {
	var got strings.Builder
	var refused []string
	for _, c := range Commands.all {
		if c.Refusal != "" {
			refused = append(refused, c.FullName()+"/"+strconv.Itoa(c.Arity))
			continue
		}
		var w resp.Writer
		row := *c
		row.Subcommands = nil
		row.writeInfo(&w)
		shown, _ := show(string(w.Bytes()))
		got.WriteString(c.Syntax() + "\n    " + c.Summary + "\n    " + c.Group + ", since " + c.Since + ", " +
			c.Complexity + "\n    " + shown + "\n")
	}
	got.WriteString("refused: " + strings.Join(refused, " ") + "\n")
	const file = "testdata/commands.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("line %d differs from %s; if it should, run with -update", i+1, file)
		}
	}
}

// Every declaration is complete and carries itself out in exactly one way.
func TestDeclarations(t *testing.T) {
	for _, c := range Commands.all {
		ways := 0
		for _, has := range []bool{c.Parse != nil, c.Run != nil, c.Control != nil, c.Refusal != ""} {
			ways += int(bit(has))
		}
		container := len(c.Subcommands) > 0
		if ways != 1 && !(container && ways == 0) {
			t.Errorf("%s has %d ways to be carried out", c.fullName, ways)
		}
		if (c.Parse != nil) != (c.Reply != nil) {
			t.Errorf("%s: Parse and Reply come together", c.fullName)
		}
		if c.Arity == 0 || c.Name != strings.ToLower(c.Name) {
			t.Errorf("%s: arity %d", c.fullName, c.Arity)
		}
		if c.Refusal != "" {
			continue
		}
		if c.Summary == "" || c.Complexity == "" || c.Since == "" || c.Group == "" {
			t.Errorf("%s lacks documentation", c.fullName)
		}
		if c.Keys.First != 0 && c.Flags&(Write|ReadOnly) == 0 && c.Name != "watch" {
			t.Errorf("%s has keys but neither reads nor writes", c.fullName)
		}
		if c.Flags&Write != 0 && c.Flags&ReadOnly != 0 {
			t.Errorf("%s both writes and does not", c.fullName)
		}
		for _, cat := range c.ACL {
			if !strings.Contains(strings.Join(c.categories(), " "), cat) {
				t.Errorf("%s: %s is not in aclOrder", c.fullName, cat)
			}
		}
		least := c.Arity
		if least < 0 {
			least = -least
		}
		if n := c.Keys.First; n >= least && !c.Keys.NumKeys && c.fullName != "region|token" &&
			c.fullName != "region|wait" { // without a key they are about all
			t.Errorf("%s: the first key at %d may be missing (arity %d)", c.fullName, n, c.Arity)
		}
	}
}

// The INCR family tells that a retry counts twice.
func TestPlainIncrementsSayNotIdempotent(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	for _, name := range []string{"incr", "incrby", "decr", "decrby"} {
		if got := c.say("COMMAND DOCS " + name); !strings.Contains(got, "Not idempotent") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestCommandCommands(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"COMMAND GETKEYS CMINCRBY op 2 a 1 b 2 WITHSTATUS", `["a" "b"]`},
		{"COMMAND GETKEYS CMINCRBY op 3 a 1 b 2", "-ERR Invalid arguments specified for command"},
		{"COMMAND GETKEYS CMINCRBY op x a 1", "-ERR Invalid arguments specified for command"},
		{"COMMAND GETKEYS CINCRBY k id 1", `["k"]`},
		{"COMMAND GETKEYS FBF.MADD f x y", `["f"]`},
		{"COMMAND GETKEYS GET", "-ERR Invalid number of arguments specified for command"},
		{"COMMAND GETKEYS RENAME a b", "-ERR Invalid command specified"},
		{"COMMAND LIST FILTERBY PATTERN cmi*", `["cmincrby"]`},
		{"COMMAND LIST FILTERBY ACLCAT table",
			`["ctable" "ctable|create" "ctable|alter" "ctable|drop" "ctable|list" "ctable|info"]`},
		{"COMMAND INFO rename", "[nil]"},
		{"COMMAND DOCS rename nope", "[]"},
		{"CTABLE HELP x", "-ERR wrong number of arguments for 'ctable|help' command"},
	})
	if got := c.say("COMMAND DOCS cmincrby"); !strings.Contains(got, `"name" "delta" "type" "integer"`) {
		t.Error(got)
	}
	if got := c.say("CTABLE HELP"); !strings.HasPrefix(got, "[+CTABLE <subcommand> [<arg> [value] [opt] "+
		"...]. Subcommands are: +CREATE name PREFIX prefix [WINDOW milliseconds]") {
		t.Error(got)
	}
	info, all := c.say("COMMAND INFO"), c.say("COMMAND")
	if info != all || strings.Count(all, `["`) < 60 || strings.Contains(all, "rename") {
		t.Errorf("COMMAND: %s", all)
	}
}

// TestResolveRemembers: what a round remembers of the last command's name
// changes nothing about what a request resolves to.
func TestResolveRemembers(t *testing.T) {
	renamed, err := Commands.Rename("get", "mget2")
	if err != nil {
		t.Fatal(err)
	}
	requests := []string{"get k", "get k", "GET k", "get", "get", "nosuch k", "get k", "gets k", "ge k", "config get x",
		"config get x", "config", "config nosuch", "set k 1", "get k", "mget2 k", "mget2 k", "cincrby k o 1", "cincrby k o"}
	var r Round
	for _, table := range []*Table{Commands, renamed, Commands} {
		for _, request := range requests {
			args := bytes.Fields([]byte(request))
			c, text := r.resolve(table, args)
			if want, wantText := table.resolve(args); c != want || text != wantText {
				t.Errorf("%s: %v %q, want %v %q", request, c, text, want, wantText)
			}
		}
	}
}

// TestUndoLeavesEmptySlots: a slot taken anew holds nothing of the request that
// was undone.
func TestUndoLeavesEmptySlots(t *testing.T) {
	var r Round
	s := r.slot()
	s.kind, s.text, s.muted = slotError, "left over", true
	r.Undo()
	if s := r.slot(); s.kind != slotOp || s.text != "" || s.muted {
		t.Errorf("%+v", *s)
	}
}
