package commands

import (
	"fmt"
	"strings"
	"testing"
)

func TestTransactionAnswersInOrder(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	got := c.send("INCR a", "MULTI", "CINCRBY k id 5", "CINCRBY k id 5 WITHSTATUS", "SET a x", "GET a", "PING", "EXEC", "INCR a")
	want := ":1\r\n+OK\r\n" + strings.Repeat("+QUEUED\r\n", 5) +
		"*5\r\n:5\r\n*2\r\n:5\r\n:0\r\n-ERR value is not an integer or out of range\r\n$1\r\n1\r\n+PONG\r\n:2\r\n"
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
	for _, line := range []string{"INCR a", "nope", "INCR", "INCRBY a x", "PING", "CLIENT ID", "COMMAND COUNT", "INCR a"} {
		c.p.Do(toArgs(strings.Fields(line)), &c.w)
	}
	if len(c.p.round.batch.Ops) != 2 || c.w.Len() != 0 {
		t.Errorf("%d operations, %d bytes already answered", len(c.p.round.batch.Ops), c.w.Len())
	}
	c.p.Flush(&c.w)
	want := fmt.Sprintf(":1\r\n-ERR unknown command 'nope', with args beginning with: \r\n"+
		"-ERR wrong number of arguments for 'incr' command\r\n-ERR value is not an integer or out of range\r\n"+
		"+PONG\r\n:7\r\n:%d\r\n:2\r\n", len(Commands.supported()))
	if got := string(c.w.Bytes()); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
