package main

import (
	"bytes"
	"errors"
	"fmt"
)

// failed counts an error reply. Only the first of its kind costs more than that.
func (t *tally) failed(text []byte) {
	code, _, _ := bytes.Cut(text, []byte(" "))
	if t.errors == nil {
		t.errors = map[string]int64{}
	}
	t.errors[string(code)]++
	if t.first == "" {
		t.first = fmt.Sprintf("%.300q", text) // it may have what ends up in a terminal
	}
}

// errorReplies is how many replies were errors.
func (r *Result) errorReplies() (n int64) {
	for _, k := range r.errors {
		n += k
	}
	return n
}

// Err says why the run is no success although it came to its end, or returns nil: the server only refused, or counts
// wrongly, or refused what was to be verified.
func (r *Result) Err() error {
	n := r.errorReplies()
	switch v := r.Verified; {
	case n > 0 && n == r.Sent:
		return fmt.Errorf("every reply was an error: %s", r.first)
	case v == nil:
		return nil
	case n > 0:
		return errors.Join(v.Err(), fmt.Errorf("not verified: %d operations were refused: %s", n, r.first))
	}
	return r.Verified.Err()
}
