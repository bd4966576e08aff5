package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// failure is an error reply that is shown to people; the zero value is none.
type failure struct {
	text  string
	later bool // the operation may yet be applied, see mayRetry
}

// maxFailure bounds what is shown of an error reply, bytes.
const maxFailure = 300

// failed counts an error reply. Only the first of its kind costs more than that.
func (t *tally) failed(text []byte, later bool) {
	code, _, _ := bytes.Cut(text, []byte(" "))
	if t.errors == nil {
		t.errors = map[string]int64{}
	}
	t.errors[string(code)]++
	if !later {
		t.refused++
	}
	if t.first.text == "" || t.first.later && !later {
		t.first = failure{text: printable(text), later: later}
	}
}

// printable is what can be shown of an error reply; never empty.
func printable(text []byte) string {
	shown := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(text[:min(len(text), maxFailure)]), "?"))
	if shown == "" {
		return "(no text)"
	}
	return shown
}

// errorReplies is how many replies were errors.
func (r *Result) errorReplies() (n int64) {
	for _, k := range r.Errors {
		n += k
	}
	return n
}

// Err says why the run is no success although it came to its end, or returns nil:
// the server only refused, or counts wrongly, or refused what was to be verified.
func (r *Result) Err() error {
	if n := r.errorReplies(); n > 0 && n == r.Sent {
		return fmt.Errorf("every reply was an error: %s", r.FirstError)
	}
	v := r.Verified
	if v == nil {
		return nil
	}
	err := v.Err()
	if r.tally.refused > 0 {
		err = errors.Join(err, fmt.Errorf("not verified: %d operations were refused: %s", r.tally.refused, r.FirstError))
	}
	return err
}
