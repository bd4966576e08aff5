package commands

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

func TestTransactionAnswersInOrder(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	got := c.send("INCR a", "MULTI", "CINCRBY k id 5", "CINCRBY k id 5 WITHSTATUS", "SET a x", "GET a",
		"PING", "EXEC", "INCR a")
	want := ":1\r\n+OK\r\n" + strings.Repeat("+QUEUED\r\n", 5) +
		"*5\r\n:5\r\n*2\r\n:5\r\n:0\r\n-ERR value is not an integer or out of range: a counter holds a " +
		"signed 64-bit integer only\r\n$1\r\n1\r\n+PONG\r\n:2\r\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Transactions of one pipeline join its batch; only one that holds a command
// which answers at once ends it.
func TestTransactionsShareABatch(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	for _, line := range []string{"INCR a", "MULTI", "INCR a", "EXEC", "MULTI", "INCR a", "ECHO x", "EXEC"} {
		c.p.Do(toArgs(strings.Fields(line)), &c.w)
	}
	if len(c.p.round.batch.Ops) != 3 || c.w.Len() != 0 {
		t.Errorf("%d operations, %d bytes already answered", len(c.p.round.batch.Ops), c.w.Len())
	}
	if !c.p.round.batch.Atomic {
		t.Error("the store may execute the transactions in parts (G6)")
	}
	for _, line := range []string{"MULTI", "DBSIZE", "INCR b", "EXEC"} {
		c.p.Do(toArgs(strings.Fields(line)), &c.w)
	}
	if c.p.Pending() != 0 || c.p.round.batch.Atomic {
		t.Error("DBSIZE in a transaction would see what follows it")
	}
	if got := string(c.w.Bytes()); !strings.HasSuffix(got, "*2\r\n:2\r\n:1\r\n") {
		t.Errorf("got %q", got)
	}
}

// The queue outlives the buffer that the arguments came in.
func TestTransactionCopiesArguments(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	buf := []byte("SETk5")
	c.p.Do(toArgs([]string{"MULTI"}), &c.w)
	c.p.Do([][]byte{buf[:3], buf[3:4], buf[4:]}, &c.w)
	c.p.Flush(&c.w)
	copy(buf, "XXXXX")
	c.w.Reset()
	c.play([]step{{"EXEC", "[+OK]"}, {"GET k", `"5"`}})
}

func TestTransactionLimit(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.say("MULTI")
	big := make([]byte, maxQueued/4)
	args := [][]byte{[]byte("ECHO"), big}
	for i := range 5 {
		c.p.Do(args, &c.w)
		c.p.Flush(&c.w)
		got := string(c.w.Bytes())
		c.w.Reset()
		if refused := strings.HasPrefix(got, "-ERR the queue"); refused != (i >= 3) {
			t.Errorf("command %d: %q", i, got)
		}
	}
	if c.p.tx.queue != nil {
		t.Error("the queue is kept although the transaction will abort")
	}
	c.play([]step{{"EXEC", "-" + errExecAbort.Error()}, {"EXEC", "-ERR EXEC without MULTI"}})
}

// An error of a request in a pipeline does not split the batch.
func TestErrorsKeepTheBatchWhole(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	for _, line := range []string{"INCR a", "nope", "INCR", "INCRBY a x", "PING", "CLIENT ID",
		"COMMAND COUNT", "INCR a"} {
		c.p.Do(toArgs(strings.Fields(line)), &c.w)
	}
	if len(c.p.round.batch.Ops) != 2 || c.w.Len() != 0 {
		t.Errorf("%d operations, %d bytes already answered", len(c.p.round.batch.Ops), c.w.Len())
	}
	c.p.Flush(&c.w)
	want := fmt.Sprintf(":1\r\n-ERR unknown command 'nope', with args beginning with: \r\n"+
		"-ERR wrong number of arguments for 'incr' command\r\n-ERR value is not an integer or out of "+
		"range\r\n"+
		"+PONG\r\n:7\r\n:%d\r\n:2\r\n", len(Commands.supported()))
	if got := string(c.w.Bytes()); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A transaction that is not executed leaves its slots unanswered and uncounted,
// whatever stands around it in the pipeline.
func TestWatchInAPipeline(t *testing.T) {
	st := newStore(t)
	srv := &Server{}
	c, other := dial(t, st, srv), dial(t, st, srv)
	got := c.send("WATCH k", "INCR k", "MULTI", "INCR k", "DBSIZE", "nope", "EXEC", "MULTI", "INCR k", "EXEC")
	want := "+OK\r\n:1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n-ERR unknown command 'nope', with args beginning " +
		"with: \r\n" +
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

// Commands that answer at once in a transaction are not carried out either.
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
	want := []string{":1\r\n", ":1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n:2\r\n",
		"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n:1\r\n", ":3\r\n"}
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

// TestMultiStopsAtBound: behind an INCREX that a bound refused nothing is executed, unless CONTINUE
// was given or it saturates: else half a transfer would make money. A duplicate is no refusal.
func TestMultiStopsAtBound(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	const skipped = "-ERR not executed: a command before it was refused"
	const below = `-BOUND key "acc:a" would become -2, below 0`
	c.play([]step{
		{"MSET acc:a 3 acc:b 0", "+OK"},
		{"CMULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0 OPID t1", "+QUEUED"},
		{"CINCRBY acc:b t1 5", "+QUEUED"}, {"GET acc:a", "+QUEUED"},
		{"EXEC", "[[:3 :0] " + skipped + " " + skipped + "]"}, {"MGET acc:a acc:b", `["3" "0"]`},
		{"CSEEN acc:a t1", "nil"}, {"CSEEN acc:b t1", "nil"},
		{"CMULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0", "+QUEUED"}, {"CINCRBY acc:b t1 5", "+QUEUED"},
		{"EXEC", "[[:3 :0] " + skipped + "]"},
		{"CMULTI", "+OK"}, {"CINCRBY acc:a t1 -5 LBOUND 0", "+QUEUED"}, {"CINCRBY acc:b t1 5", "+QUEUED"},
		{"EXEC", "[" + below + " " + skipped + "]"}, {"MGET acc:a acc:b", `["3" "0"]`},
		// The same again, once there is enough, and as a retry when there is not.
		{"SET acc:a 6", "+OK"},
		{"CMULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0 OPID t1", "+QUEUED"},
		{"CINCRBY acc:b t1 5", "+QUEUED"}, {"EXEC", "[[:1 :-5] :5]"},
		{"CMULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0 OPID t1", "+QUEUED"},
		{"CINCRBY acc:b t1 5 WITHSTATUS", "+QUEUED"}, {"EXEC", "[[:1 :-5] [:5 :0]]"},
		// An INCREX that saturates was not refused, though it adds nothing, nor was its duplicate.
		{"SET acc:a 0", "+OK"},
		{"CMULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0 SATURATE OPID t2", "+QUEUED"},
		{"GET acc:a", "+QUEUED"}, {"EXEC", `[[:0 :0] "0"]`},
		{"CMULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0 OPID t2", "+QUEUED"},
		{"GET acc:a", "+QUEUED"}, {"EXEC", `[[:0 :0] "0"]`},
		// CONTINUE goes on behind a bound, not behind an error.
		{"cmulti continue", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0 OPID t3", "+QUEUED"},
		{"CINCRBY acc:a t3 -2 LBOUND 0", "+QUEUED"}, {"GET acc:a", "+QUEUED"},
		{"EXEC", "[[:0 :0] " + below + " " + skipped + "]"},
		{"MULTI", "+OK"}, {"INCREX acc:a BYINT -5 LBOUND 0", "+QUEUED"},
		{"GET acc:a", "+QUEUED"}, {"EXEC", `[[:0 :0] "0"]`},
	})
}

// TestMultiStopsOnError: behind the first refused command nothing is executed (G6), be it
// refused by the store, by its own arguments or by its size.
func TestMultiStopsOnError(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	const skipped = "-ERR not executed: a command before it was refused"
	const overflow = "-CMS: INCRBY overflow"
	c.play([]step{
		{"CMS.INITBYDIM s 10 1 CELL_SIZE 1", "+OK"},
		{"cmulti", "+OK"}, {"SET a 1", "+QUEUED"}, {"CMS.CINCRBY s op x 256", "+QUEUED"},
		{"SET p 1", "+QUEUED"},
		{"CINCRBY k op 1", "+QUEUED"}, {"GET p", "+QUEUED"},
		{"EXEC", "[+OK " + overflow + " " + skipped + " " + skipped + " " + skipped + "]"},
		{"MGET a p k", `["1" nil nil]`}, {"CSEEN k op", "nil"},
		{"CMULTI", "+OK"}, {"SET p x", "+QUEUED"}, {"SET p 1", "+QUEUED"}, {"GET p", "+QUEUED"},
		{"EXEC", "[-ERR value is not an integer or out of range: a counter holds a signed 64-bit " +
			"integer only " + skipped + " " + skipped + "]"},
		{"WATCH p", "+OK"},
		{"CMULTI", "+OK"}, {"CMS.CINCRBY s op x 255", "+QUEUED"}, {"SET p 1", "+QUEUED"},
		{"EXEC", "[[:255] +OK]"},
		{"MULTI", "+OK"}, {"CMS.CINCRBY s op2 x 1", "+QUEUED"}, {"SET p 2", "+QUEUED"},
		{"EXEC", "[" + overflow + " +OK]"},
		{"CMULTI", "+OK"}, {"PING", "-ERR CMULTI takes commands on keys only"},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors."},
		{"CMULTI now", "-ERR syntax error"}, {"CMULTI CONTINUE CONTINUE", "-ERR syntax error"},
		{"EXEC", "-ERR EXEC without MULTI"},
	})
	c.play([]step{
		{"CMULTI", "+OK"}, {"CMULTI now", "-ERR syntax error"},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors."},
	})
	// Transactions of one pipeline are one batch: a refusal stops its own transaction only.
	got := c.send("CMULTI", "CMS.CINCRBY s op3 x 1", "EXEC", "CMULTI", "SET p 3", "EXEC", "GET p")
	if !strings.HasSuffix(got, "*1\r\n"+overflow+"\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n$1\r\n3\r\n") {
		t.Errorf("got %q", got)
	}
}
