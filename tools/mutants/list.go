package main

import (
	_ "embed" // the list
	"errors"
	"fmt"
	"strings"
)

// list has all mutants, as parse reads them.
//
//go:embed mutants.txt
var list string

// mutant is one edit that breaks a guarantee.
type mutant struct {
	name      string
	guarantee string
	file      string
	packages  string // to test
	tests     string // regular expression of the tests that catch it
	args      string // for the test binary
	old, new  string // whole lines
	at        int    // line of the list with its file
}

// heads are the lines of a mutant's head behind its name, in their order.
var heads = []struct {
	name  string
	value func(m *mutant) *string
}{
	{"file: ", func(m *mutant) *string { return &m.file }},
	{"packages: ", func(m *mutant) *string { return &m.packages }},
	{"tests: ", func(m *mutant) *string { return &m.tests }},
	{"args: ", func(m *mutant) *string { return &m.args }}, // may be left out
}

// parse reads a list: mutants between empty lines, and lines of comment.
func parse(text string) (all []mutant, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			i++
			continue
		}
		begin := i
		for i < len(lines) && lines[i] != "" {
			i++
		}
		m, at, err := parseOne(lines[begin:i])
		if err != nil {
			return nil, fmt.Errorf("mutants.txt:%d: %w", begin+at+1, err)
		}
		m.at = begin + 1
		all = append(all, m)
	}
	return all, nil
}

// parseOne reads the lines of one mutant. An error is at one of them.
func parseOne(lines []string) (m mutant, at int, err error) {
	first, ok := strings.CutPrefix(lines[0], "mutant ")
	if m.guarantee, m.name, _ = strings.Cut(first, ": "); !ok || m.guarantee == "" || m.name == "" {
		return m, 0, errors.New("a mutant begins with a line \"mutant GUARANTEE: NAME\" behind an empty line")
	}
	at = 1
	for i, h := range heads {
		value, ok := "", false
		if at < len(lines) {
			value, ok = strings.CutPrefix(lines[at], h.name)
		}
		switch {
		case ok && strings.TrimSpace(value) != "":
			*h.value(&m) = value
			at++
		case ok || i < len(heads)-1:
			return m, min(at, len(lines)-1), fmt.Errorf("here must be %q with what it is", h.name)
		}
	}
	for ; at < len(lines); at++ {
		line := lines[at][1:] + "\n"
		switch lines[at][0] {
		case ' ':
			m.old, m.new = m.old+line, m.new+line
		case '-':
			m.old += line
		case '+':
			m.new += line
		default:
			return m, at, errors.New("a line of an edit begins with \"-\", \"+\" or a space")
		}
	}
	switch at--; {
	case m.old == "":
		return m, at, errors.New("no line tells where the edit is: name one with \"-\" or a space in front")
	case m.old == m.new:
		return m, at, errors.New("the edit changes nothing")
	}
	return m, at, nil
}

// places are where the text of a mutant is in a file: at the beginnings of lines.
func (m mutant) places(file string) (all []int) {
	for from := 0; ; {
		n := strings.Index(file[from:], m.old)
		if n < 0 {
			return all
		}
		if from += n; from == 0 || file[from-1] == '\n' {
			all = append(all, from)
		}
		from++
	}
}

// edit makes the edit in the text of its file.
func (m mutant) edit(file string) (string, error) {
	places := m.places(file)
	if len(places) != 1 {
		return "", fmt.Errorf("its text occurs %d times in %s", len(places), m.file)
	}
	return file[:places[0]] + m.new + file[places[0]+len(m.old):], nil
}
