package process

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// TestIncrement: an operation goes to who leads its counter, and twins have the same.
func TestIncrement(t *testing.T) {
	l := Load{Keys: Keys(50)}
	for i := range l.Keys {
		l.Keys[i].Leader = i % 2
	}
	out, waiting := make([][]byte, 2), make([]int, 2)
	for range 100 {
		l.increment(out, waiting)
	}
	for i := range out {
		words := strings.Split(string(out[i]), "\r\n")
		if n := (len(words) - 1) / 9; waiting[i] != n || words[2] != "CINCRBY" || len(words[4]) != 6 || len(words)%9 != 1 {
			t.Errorf("leader %d waits for %d of %d: %.200q", i, waiting[i], n, out[i])
		}
		if id, err := uuid.Parse(words[6]); err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%v: %v", id, err)
		}
	}
	if waiting[0] == 0 || waiting[1] == 0 {
		t.Errorf("%v", waiting)
	}
	twin := newID()
	l.Twin = func(uuid.UUID) uuid.UUID { return twin }
	out = make([][]byte, 2)
	l.increment(out, waiting)
	l.increment(out, waiting)
	if s := string(out[0]) + string(out[1]); s[:len(s)/2] != s[len(s)/2:] {
		t.Errorf("twins: %q", s)
	}
}

func TestReadNumber(t *testing.T) {
	for answer, want := range map[string]error{":12\r\n": nil, "-MOVED 3 127.0.0.1:7\r\n": ErrMoved, "-TRYAGAIN later\r\n": ErrMoved} {
		if err := readNumber(bufio.NewReader(strings.NewReader(answer))); !errors.Is(err, want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
	for _, answer := range []string{"", "-ERR x\r\n", "+OK\r\n", ":1"} {
		if err := readNumber(bufio.NewReader(strings.NewReader(answer))); err == nil || errors.Is(err, ErrMoved) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
