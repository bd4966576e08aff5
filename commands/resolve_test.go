package commands

import (
	"bytes"
	"testing"
)

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
