package commands

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// A transaction that is not executed leaves its slots unanswered and uncounted,
// whatever stands around it in the pipeline.
func TestWatchInAPipeline(t *testing.T) {
	st := newStore(t)
	srv := &Server{}
	c, other := dial(t, st, srv), dial(t, st, srv)
	got := c.send("WATCH k", "INCR k", "MULTI", "INCR k", "DBSIZE", "nope", "EXEC", "MULTI", "INCR k", "EXEC")
	want := "+OK\r\n:1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n-ERR unknown command 'nope', with args beginning with: \r\n" +
		"-EXECABORT Transaction discarded because of previous errors.\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	c.say("WATCH k")
	other.say("INCR k")
	calls := func() uint64 { return srv.Observer.Stats.Calls(Commands.Get([]byte("decr")).index) }
	before := calls()
	got = c.send("INCR a", "MULTI", "DECR k", "PING", "DECR k", "EXEC", "INCR a")
	want = ":1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n:2\r\n"
	if got != want || calls() != before {
		t.Errorf("got  %q\nwant %q, %d calls counted", got, want, calls()-before)
	}
	c.play([]step{{"HELLO 3", c.say("HELLO 3")}, {"WATCH k", "+OK"}, {"RESET", "+RESET"}})
	other.say("INCR k")
	c.play([]step{{"MULTI", "+OK"}, {"GET k", "+QUEUED"}, {"EXEC", `["4"]`}})
}

// What answers at once in a transaction is not carried out either.
func TestWatchHoldsBackWhatRunsAtOnce(t *testing.T) {
	sets := 0
	srv := &Server{
		ConfigGet: func(string) [][2]string { return [][2]string{{"timeout", "0"}} },
		ConfigSet: func([][2]string) error { sets++; return nil },
	}
	st := newStore(t)
	c, other := dial(t, st, srv), dial(t, st, srv)
	for i, want := range []int{0, 1} {
		c.say("WATCH k")
		if i == 0 {
			other.say("INCR k")
		}
		c.send("MULTI", "CONFIG SET timeout 1", "EXEC")
		if sets != want {
			t.Errorf("round %d: CONFIG SET was carried out %d times", i, sets)
		}
	}
}

func TestWatchLimits(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"WATCH", "-ERR wrong number of arguments for 'watch' command"},
		{`WATCH k ""`, "-ERR key must be 1 to 65536 bytes"},
	})
	for range 3 { // the same key again and again costs nothing
		if got := c.say("WATCH same same"); got != "+OK" || len(c.p.watch.keys) != 1 {
			t.Errorf("%s, %d keys", got, len(c.p.watch.keys))
		}
	}
	refused := 0
	for i := range 12 {
		keys := [][]byte{[]byte("WATCH")}
		for j := range 8000 {
			keys = append(keys, fmt.Appendf(nil, "k%d.%d", i, j))
		}
		c.p.Do(keys, &c.w)
		refused += bytes.Count(c.w.Bytes(), []byte("-ERR too many watched keys"))
		c.w.Reset()
	}
	if n := len(c.p.watch.keys); refused != 4 || n > store.MaxKeys {
		t.Errorf("%d keys are watched, %d requests refused", n, refused)
	}
	long := strings.Repeat("x", 60_000)
	c.p.watch.clear()
	refused = 0
	for i := range maxQueued/60_000 + 10 {
		c.p.Do([][]byte{[]byte("WATCH"), fmt.Appendf(nil, "%s%d", long, i)}, &c.w)
		refused += bytes.Count(c.w.Bytes(), []byte("-ERR too many watched keys"))
		c.w.Reset()
	}
	if refused < 10 || c.p.watch.size > maxQueued {
		t.Errorf("%d bytes are watched, %d requests refused", c.p.watch.size, refused)
	}
}

// In a round of several connections a transaction that does nothing leaves the
// others' requests alone, and sees what those before it did.
func TestWatchInASharedRound(t *testing.T) {
	st, srv := newStore(t), &Server{}
	clients := []*client{dial(t, st, srv), dial(t, st, srv), dial(t, st, srv), dial(t, st, srv)}
	clients[1].say("WATCH k")
	clients[2].say("WATCH other")
	requests := [][]string{
		{"INCR k"},
		{"INCR a", "MULTI", "INCR k", "INCR k", "EXEC", "INCR a"},
		{"MULTI", "INCR k", "INCR other", "EXEC"},
		{"INCR k"},
	}
	want := []string{":1\r\n", ":1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n:2\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n:1\r\n", ":3\r\n"}
	r := NewRound(st, srv, true)
	for i, c := range clients {
		r.Join(c.p)
		for _, line := range requests[i] {
			if !c.p.Add(toArgs(strings.Fields(line))) {
				t.Fatalf("%s does not join the round", line)
			}
		}
	}
	r.Execute()
	for i, c := range clients {
		c.p.Answer(&c.w)
		if got := string(c.w.Bytes()); got != want[i] {
			t.Errorf("connection %d got %q\nwant %q", i, got, want[i])
		}
	}
	r.Reset()
}

// A transaction with many watched keys would keep the others waiting.
func TestWatchManyKeysAlone(t *testing.T) {
	st, srv := newStore(t), &Server{}
	c := dial(t, st, srv)
	words := []string{"WATCH"}
	for i := range maxSharedArgs + 1 {
		words = append(words, fmt.Sprint("k", i))
	}
	c.send(strings.Join(words, " "), "MULTI", "INCR a")
	r := NewRound(st, srv, true)
	r.Join(c.p)
	if c.p.Add(toArgs([]string{"EXEC"})) {
		t.Error("EXEC joined a shared round")
	}
	NewRound(st, srv, false).Join(c.p)
	c.play([]step{{"EXEC", "[:1]"}})
}
