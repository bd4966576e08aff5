package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A script of the differential tests has one step a line:
//
//	> SET a 1             a command, and its reply is compared
//	b> GET a              the same on another connection, opened when it is first named
//	>~near PTTL a         the replies are compared after this normaliser (or several: ~name,name)
//	scan> MATCH a*        SCAN from cursor 0 until it is 0 again: all the keys, sorted
//	raw> "PING\r\n"       these bytes as they are, and one reply
//	mute> CLIENT REPLY OFF   a command that gets no reply
//	next>                 one more reply, to bytes that were sent before
//	fields> INFO memory   every section and field of Redis' reply is in ours
//	sleep 20ms
//	# a comment
//
// The words raw, mute, next, scan and fields may follow a connection's name: "b raw>".
// Arguments are written as in dialogues, see splitCommand.
type script struct {
	name  string // of the file, without its extension
	steps []*exchange
}

// exchange is one step of a script.
type exchange struct {
	where       string // file and line
	text        string // as the script has it
	conn        string
	kind        stepKind
	args        []string
	bytes       string // what is sent
	normalisers []string
	pause       time.Duration // instead of an exchange
}

// stepKind says what a step does.
type stepKind string

const (
	command stepKind = ""     // send and read
	rawSend stepKind = "raw"  // send other bytes than a command's frame, and read
	mute    stepKind = "mute" // send only
	next    stepKind = "next" // read only
	scanAll stepKind = "scan" // a whole SCAN
	fields  stepKind = "fields"
)

// command is the step as the skip list matches it.
func (e *exchange) command() string {
	return strings.TrimSpace(string(e.kind) + " " + e.text)
}

// stepLine is a line of a script: connection, kind, normalisers, arguments.
var stepLine = regexp.MustCompile(`^(?:([a-z]\w*)??(?:(?:^| )(raw|mute|next|scan|fields))?|)>(?:~([a-z,]+))?(?: (.*))?$`)

// readScript reads a script.
func readScript(t *testing.T, file string) *script {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{name: strings.TrimSuffix(filepath.Base(file), ".script")}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseStep(line)
		if err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		e.where = fmt.Sprintf("%s:%d", file, i+1)
		s.steps = append(s.steps, e)
	}
	return s
}

// parseStep reads a line of a script.
func parseStep(line string) (*exchange, error) {
	if pause, ok := strings.CutPrefix(line, "sleep "); ok {
		d, err := time.ParseDuration(pause)
		return &exchange{pause: d}, err
	}
	m := stepLine.FindStringSubmatch(line)
	if m == nil {
		return nil, fmt.Errorf("not a step: %q", line)
	}
	e := &exchange{conn: m[1], kind: stepKind(m[2]), text: m[4]}
	var err error
	if e.args, err = splitCommand(e.text); err != nil {
		return nil, err
	}
	e.bytes = frame(e.args...)
	switch e.kind {
	case rawSend:
		e.bytes = strings.Join(e.args, "")
	case scanAll:
		e.normalisers = []string{"sorted"}
	}
	if m[3] != "" {
		e.normalisers = append(e.normalisers, strings.Split(m[3], ",")...)
	}
	for _, name := range e.normalisers {
		if normalisers[name] == nil {
			return nil, fmt.Errorf("there is no normaliser %q", name)
		}
	}
	return e, nil
}

// skipList holds the differences that are meant.
type skipList struct {
	file  string
	lines []*skip
}

// skip is one line: where it applies, which commands, and whether it hid a
// difference.
type skip struct {
	line    int
	where   *regexp.Regexp // script/RESPn or script/shard/RESPn
	command *regexp.Regexp
	used    chan struct{} // has an element once used
}

// skipLine is a line of the list: "script: command -- reason". The script may
// be followed by /shard, and by /RESP2 or /RESP3; * stands for anything in both.
var skipLine = regexp.MustCompile(`^(\S+): (.+) -- (\S.{9,})$`)

// readSkips reads the list.
func readSkips(t *testing.T, file string) *skipList {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := &skipList{file: file}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		m := skipLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%s:%d: want \"script: command -- reason\"", file, i+1)
		}
		list.lines = append(list.lines, &skip{line: i + 1, used: make(chan struct{}, 1),
			where:   regexp.MustCompile(`^` + wildcards(m[1]) + `(/shard)?(/RESP[23])?$`),
			command: regexp.MustCompile(`(?i)^` + wildcards(m[2]) + `$`)})
	}
	return list
}

// wildcards makes a regular expression of a text in which * stands for anything.
func wildcards(text string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, `.*`)
}

// covers reports whether a difference is meant.
func (l *skipList) covers(script, proto, command string) bool {
	covered := false
	for _, s := range l.lines {
		if s.where.MatchString(script+"/RESP"+proto) && s.command.MatchString(command) {
			covered = true
			select {
			case s.used <- struct{}{}:
			default:
			}
		}
	}
	return covered
}

// checkUsed fails the test for every line that hid nothing.
func (l *skipList) checkUsed(t *testing.T) {
	t.Helper()
	for _, s := range l.lines {
		if len(s.used) == 0 {
			t.Errorf("%s:%d hides no difference: remove it", l.file, s.line)
		}
	}
}
