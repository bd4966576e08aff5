package main

import (
	"bytes"
	"strings"
	"testing"
)

const someReplies = ":1\r\n:-42\r\n$3\r\n123\r\n$-1\r\n_\r\n+OK\r\n-OOM no room\r\n:9223372036854775807\r\n$0\r\n\r\n#t\r\n*2\r\n:1\r\n$1\r\nx\r\n"

// TestScanReply cuts replies at every byte: what is there in full is found, and nothing else.
func TestScanReply(t *testing.T) {
	for cut := range len(someReplies) + 1 {
		rest, pieces, failures := []byte(someReplies[:cut]), 0, 0
		for {
			n, failure, err := scanReply(rest)
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if n == 0 {
				break
			}
			if failure != nil {
				failures++
				if string(failure) != "OOM no room" {
					t.Fatalf("failure %q", failure)
				}
			}
			rest, pieces = rest[n:], pieces+1
		}
		if want := whole(someReplies[:cut]); pieces != want {
			t.Fatalf("cut at %d: %d replies, want %d", cut, pieces, want)
		}
		if wantFailure := strings.Contains(someReplies[:cut], "room\r\n"); (failures == 1) != wantFailure {
			t.Fatalf("cut at %d: %d failures", cut, failures)
		}
	}
}

// whole counts the replies that end within a beginning of someReplies.
func whole(beginning string) (n int) {
	end := 0
	for _, r := range []string{":1", ":-42", "$3\r\n123", "$-1", "_", "+OK", "-OOM no room", ":9223372036854775807", "$0\r\n", "#t", "*2\r\n:1\r\n$1\r\nx"} {
		if end += len(r) + 2; end <= len(beginning) {
			n++
		}
	}
	return n
}

func TestScanBadReply(t *testing.T) {
	for _, text := range []string{"*0\r\n", "*65\r\n", "*1\r\n*1\r\n", "*1\r\nx\r\n", "HTTP/1.1 400\r\n", "\r\n\r\n", "$x\r\n", "$-2\r\n", "$99999999\r\n", "$1\r\nabc", ":1\n:2\n",
		strings.Repeat("x", maxReply+1)} {
		if n, _, err := scanReply([]byte(text)); err == nil {
			t.Errorf("%.20q: length %d", text, n)
		}
	}
}

// TestReceived feeds a connection replies in pieces of every size.
func TestReceived(t *testing.T) {
	replies := []byte(strings.Repeat(":7\r\n", 8) + "-OOM later\r\n" + strings.Repeat("$2\r\n11\r\n", 7))
	for size := 1; size <= len(replies); size++ {
		w, c := testWorker(t, 16)
		if b := c.compose(0); bytes.Count(b, []byte("CINCRBY")) != 16 {
			t.Fatalf("composed %q", b)
		}
		for from := 0; from < len(replies); from += size {
			piece := replies[from:min(from+size, len(replies))]
			done, err := c.received(copy(c.in[c.inBytes:], piece), 1000)
			if last := from+size >= len(replies); err != nil || done != last {
				t.Fatalf("pieces of %d: done %v, last %v, %v", size, done, last, err)
			}
		}
		var acked uint32
		for _, n := range w.acked {
			acked += n
		}
		if acked != 15 || w.inFlight != 0 || w.tally.errors["OOM"] != 1 || w.recorder.done != 16 {
			t.Fatalf("pieces of %d: %d acknowledged, %d in flight, errors %v", size, acked, w.inFlight, w.tally.errors)
		}
	}
	_, c := testWorker(t, 1)
	c.compose(0)
	if _, err := c.received(copy(c.in, ":1\r\n:2\r\n"), 1000); err == nil {
		t.Error("more replies than requests were taken")
	}
}

// testWorker is a worker with one connection to nowhere.
func testWorker(t testing.TB, pipeline int) (*worker, *conn) {
	o := defaultOptions()
	o.Pipeline, o.Keys = pipeline, "uniform:100"
	if err := o.prepare(); err != nil {
		t.Fatal(err)
	}
	f := testFrame(o.keys, o.format)
	w := &worker{frame: f, recorder: newRecorder(0, 1e9), acked: make([]uint32, 100)}
	c := newConn(w, 0, &o, f, -1)
	w.conns = []*conn{c}
	return w, c
}

// TestNoAllocation holds the steady path to none.
func TestNoAllocation(t *testing.T) {
	_, c := testWorker(t, 64)
	replies := []byte(strings.Repeat(":1234\r\n", 64))
	if n := testing.AllocsPerRun(100, func() {
		c.compose(1)
		c.received(copy(c.in, replies), 2)
	}); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
}
