package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// form is how several operations are sent together.
type form int

const (
	pipelined   form = iota // each may be answered, or not
	transaction             // MULTI: all of them happen, or none
	joined                  // CMINCRBY: the same, with one opid
	forms
)

// group is operations on the keys of one slot that are sent together. It is a request.
type group struct {
	form form
	ops  []*Op
}

func (g *group) String() string { return fmt.Sprint(g.commands()) }

// together increments several counters of one slot at once.
func (u *user) together() {
	g := &group{form: form(u.rng.IntN(int(forms)))}
	tag, id := u.rng.IntN(u.Keys), u.id()
	members := u.rng.Perm(4)[:2+u.rng.IntN(3)]
	for i, member := range members {
		if g.form != joined {
			id = u.id()
			if i > 0 && u.rng.IntN(3) == 0 { // a counter may be incremented twice
				member = members[0]
			}
		}
		g.ops = append(g.ops, u.History.Send(fmt.Sprintf("{g%d}%d%s", tag, member, u.Suffix), id))
	}
	u.request(g)
}

// send implements request.
func (g *group) send(l *Workload, s Sender, patience time.Duration) bool {
	if g.form == pipelined {
		return l.pipeline(s, g.ops, patience)
	}
	for _, o := range g.ops {
		l.History.Sent(o)
	}
	commands := g.commands()
	replies, from, err := s.Send(g.ops[0].Key, patience, commands...)
	complete := err == nil
	for i, reply := range replies {
		complete = l.settled(commands[i], reply, from) && complete
	}
	return complete && l.whole(g, commands, replies[len(replies)-1], from)
}

// pipeline sends operations of one slot once, in one write, and reports whether all of them have
// been answered.
func (l *Workload) pipeline(s Sender, ops []*Op, patience time.Duration) bool {
	commands := make([][]string, len(ops))
	for i, o := range ops {
		l.History.Sent(o)
		commands[i] = o.command()
	}
	replies, from, err := s.Send(ops[0].Key, patience, commands...)
	complete := err == nil
	for i, reply := range replies {
		if l.settled(commands[i], reply, from) {
			l.answer(ops[i], reply, from)
		} else {
			complete = false
		}
	}
	return complete
}

// commands returns the commands of a group.
func (g *group) commands() (commands [][]string) {
	if g.form == joined {
		words := []string{"CMINCRBY", g.ops[0].ID, strconv.Itoa(len(g.ops))}
		for _, o := range g.ops {
			words = append(words, o.Key, "1")
		}
		return [][]string{append(words, "WITHSTATUS")}
	}
	for _, o := range g.ops {
		commands = append(commands, o.command())
	}
	if g.form == transaction {
		commands = slices.Concat([][]string{{"MULTI"}}, commands, [][]string{{"EXEC"}})
	}
	return commands
}

// whole takes in the reply to a group of which all happens or nothing. It reports whether that was an answer.
func (l *Workload) whole(g *group, commands [][]string, reply any, from string) bool {
	list, _ := reply.([]any)
	if g.form == joined && len(list) == 2 { // as if each had been answered by itself
		status := list[1]
		values, _ := list[0].([]any)
		list = nil
		for _, v := range values {
			list = append(list, []any{v, status})
		}
	}
	if len(list) != len(g.ops) {
		l.World.Fail("%q is answered %v by %s", commands, reply, from)
		return false
	}
	var applied, refused int
	for i, element := range list {
		switch {
		case !l.settled(commands[0], element, from):
			refused++
		case l.answer(g.ops[i], element, from):
			applied++
		}
	}
	if refused != 0 && refused != len(list) || applied != 0 && applied != len(list) {
		l.World.Fail("%q is done in part: %v by %s", commands, reply, from)
	}
	if applied != 0 {
		l.inOrder(g.ops, from)
	}
	return refused == 0
}

// inOrder fails the world unless operations that were applied in one step have answers that follow
// each other.
func (l *Workload) inOrder(ops []*Op, from string) {
	last := make(map[string]int64)
	for _, o := range ops {
		if before, is := last[o.Key]; is && o.value != before+1 {
			l.World.Fail("%s is %d and then %d in one transaction at %s", o.Key, before, o.value, from)
		}
		last[o.Key] = o.value
	}
}
