package commands

import (
	"testing"

	"github.com/fbfkv/fbfkv/resp"
)

// TestRoundOfTwo: connections of one round are answered each in its own order,
// and what a request left behind that panicked is not executed.
func TestRoundOfTwo(t *testing.T) {
	st, srv := newStore(t), &Server{}
	a, b := NewPipeline(srv, NewSession(1, "", "", srv)), NewPipeline(srv, NewSession(2, "", "", srv))
	r := NewRound(st, srv, true)
	add := func(p *Pipeline, words ...string) {
		t.Helper()
		if !p.Add(toArgs(words)) {
			t.Errorf("%q must run by itself", words)
		}
	}
	r.Join(a)
	add(a, "INCR", "k")
	add(a, "NOSUCH")
	add(a, "GET", "k")
	r.Join(b)
	add(b, "INCR", "k")
	add(b, "MULTI")
	add(b, "INCR", "k")
	add(b, "EXEC")
	add(b, "INCRBY", "k", "1000")
	r.Undo()
	b.n--
	add(b, "GET", "k")
	r.Execute()
	r.Observe()
	var w, v resp.Writer
	a.Answer(&w)
	r.Undo() // as if that had panicked
	b.Answer(&v)
	r.Reset()
	const unknown = "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"
	if got, want := string(w.Bytes()), ":1\r\n"+unknown+"$1\r\n1\r\n"; got != want {
		t.Errorf("a: %q, want %q", got, want)
	}
	if got, want := string(v.Bytes()), ":2\r\n+OK\r\n+QUEUED\r\n*1\r\n:3\r\n$1\r\n3\r\n"; got != want {
		t.Errorf("b: %q, want %q", got, want)
	}
	r.Join(a)
	add(a, "GET", "k")
	r.Execute()
	w.Reset()
	a.Answer(&w)
	r.Reset()
	if got := string(w.Bytes()); got != "$1\r\n3\r\n" {
		t.Errorf("in the end: %q", got)
	}
}

// TestWhatKeepsOthersWaitingIsNotShared names what a shared round refuses.
func TestWhatKeepsOthersWaitingIsNotShared(t *testing.T) {
	st, srv := newStore(t), &Server{}
	many := make([]string, maxSharedArgs+1)
	for i := range many {
		many[i] = "k"
	}
	many[0] = "MGET"
	for _, tt := range []struct {
		words  []string
		shared bool
	}{
		{[]string{"SAVE"}, false}, {[]string{"KEYS", "*"}, false},
		{[]string{"WAITAOF", "0", "0", "0"}, false},
		{[]string{"FLUSHALL"}, false}, {many, false}, {many[:maxSharedArgs], true}, {[]string{"PING"}, true},
	} {
		r := NewRound(st, srv, true)
		p := NewPipeline(srv, NewSession(1, "", "", srv))
		r.Join(p)
		if got := p.Add(toArgs(tt.words)); got != tt.shared {
			t.Errorf("%s of %d arguments: joined %v", tt.words[0], len(tt.words), got)
		}
		if p.Add(toArgs([]string{"MULTI"})); !p.Add(toArgs(tt.words)) {
			t.Errorf("%s in MULTI is only queued", tt.words[0])
		}
	}
}
