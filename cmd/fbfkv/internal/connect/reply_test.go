package connect

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// read reads one reply of what a server sent.
func read(sent string) (Reply, error) {
	budget := maxSum
	return readReply(bufio.NewReaderSize(strings.NewReader(sent), maxLine), 0, &budget)
}

func TestReplies(t *testing.T) {
	for sent, want := range map[string]Reply{
		"+\r\n":           {value: ""},
		"+OK\r\n":         {value: "OK"},
		"-ERR no\r\n":     {err: Error("ERR no")},
		":-5\r\n":         {value: int64(-5)},
		"$3\r\na\r\n\r\n": {value: "a\r\n"},
		"$0\r\n\r\n":      {value: ""},
		"$-1\r\n":         {},
		"*-1\r\n":         {},
		"*2\r\n*1\r\n:1\r\n-WRONGTYPE\r\n": {value: []Reply{{value: []Reply{{value: int64(1)}}},
			{err: Error("WRONGTYPE")}}},
	} {
		if got, err := read(sent); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", sent, got, err)
		}
	}
	for _, sent := range []string{"", "+OK", "\r\n", "+OK\n", ":x\r\n", ":9223372036854775808\r\n", "$-2\r\n",
		"$2\r\nabc\r\n", "$2\r\na",
		"$999999999999\r\n", "*99999999\r\n", "*999999999999999999999\r\n", "!\r\n", "%1\r\n",
		"HTTP/1.1 400 Bad Request\r\n",
		strings.Repeat("*1\r\n", maxDepth+2), "+" + strings.Repeat("x", 2*maxLine) + "\r\n"} {
		if r, err := read(sent); err == nil || IsReply(err) {
			t.Errorf("%.40q is taken for the reply %v, %v", sent, r, err)
		}
	}
}

// TestSum: all that one exchange brings is bounded, whatever its parts are.
func TestSum(t *testing.T) {
	for _, sent := range []string{"*3\r\n" + strings.Repeat("$10\r\n0123456789\r\n", 3),
		"*2\r\n*2\r\n:1\r\n:2\r\n*2\r\n:3\r\n:4\r\n",
		"*3\r\n+0123456789\r\n-0123456789\r\n+0123456789\r\n"} {
		for budget, good := range map[int]bool{4 * elementSize: false, 7*elementSize + 30: true} {
			if _, err := readReply(bufio.NewReaderSize(strings.NewReader(sent), maxLine), 0,
				&budget); good != (err == nil) {
				t.Errorf("%q with room for %v: %v", sent, good, err)
			}
		}
	}
}

// TestAnnouncements: memory grows with the bytes that have come, not with the announced length.
func TestAnnouncements(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, sent := range []string{"$536870912\r\nab", "*16777216\r\n:1\r\n",
		strings.Repeat("*16777216\r\n", maxDepth)} {
		if _, err := read(sent); err == nil {
			t.Errorf("%.20q is taken for a reply", sent)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes were taken for three short answers", used)
	}
}

func TestValues(t *testing.T) {
	r, err := read("*5\r\n:7\r\n$2\r\n42\r\n$-1\r\n-ERR no\r\n*0\r\n")
	if err != nil {
		t.Fatal(err)
	}
	list, _ := r.List()
	for i, want := range []string{"7 <nil> 7 <nil>", "42 <nil> 42 <nil>", "0 the reply is null  the " +
		"reply is null", "0 ERR no  ERR no",
		"0 the reply is not an integer  the reply is not a string"} {
		n, errInt := list[i].Int()
		text, errText := list[i].Text()
		if got := fmt.Sprint(n, " ", errInt, " ", text, " ", errText); got != want {
			t.Errorf("element %d: %s, want %s", i, got, want)
		}
	}
	if _, err := r.Ints(); !errors.Is(err, Nil) {
		t.Errorf("an array with a null has the integers %v", err)
	}
	if texts, err := list[4].Texts(); err != nil || len(texts) != 0 {
		t.Error(texts, err)
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"))
	f.Add([]byte("-ERR\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(sent), maxLine)
		for {
			budget := maxSum
			r, err := readReply(in, 0, &budget)
			if err != nil {
				return
			}
			r.Ints()
			r.Texts()
			r.Text()
		}
	})
}

// answering is a server that answers each connection's n-th piece of input with the n-th
// text, and then closes it. It returns its address, and what it read.
func answering(t *testing.T, texts ...string) (addr string, inputs <-chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	all := make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			for _, text := range texts {
				n, err := conn.Read(buf)
				if err != nil {
					break
				}
				all <- string(buf[:n])
				io.WriteString(conn, text)
			}
			conn.Close()
		}
	}()
	return l.Addr().String(), all
}

// TestClosedConnection: a connection that the server closed while nobody used it is replaced,
// and one that breaks during a command makes the command fail, which is not sent again.
func TestClosedConnection(t *testing.T) {
	addr, inputs := answering(t, ":1\r\n")
	c := &Client{addr: addr}
	for range 2 {
		if n, err := c.Do(context.Background(), "INCR", "k").Int(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := c.idle[0].in.Peek(1); err != io.EOF { // the server may not have closed it yet
			t.Fatal(err)
		}
		c.idle[0].used = time.Now().Add(-time.Minute)
		if got := <-inputs; got != "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n" {
			t.Errorf("sent %q", got)
		}
	}
	c.idle[0].used = time.Now().Add(time.Minute) // used unasked
	if err := c.Do(context.Background(), "INCR", "k").Err(); err == nil || IsReply(err) {
		t.Errorf("a command on a closed connection: %v", err)
	}
	if len(inputs) != 0 || len(c.idle) != 0 {
		t.Errorf("it was sent again: %q, and %d connections are kept", <-inputs, len(c.idle))
	}
	if n, err := c.Do(context.Background(), "INCR", "k").Int(); n != 1 || err != nil {
		t.Errorf("the next one: %d, %v", n, err)
	}
}

// TestWaiting: what waits for a silent server ends with its context, or when its time is up.
func TestWaiting(t *testing.T) {
	addr, inputs := answering(t, "", "")
	c := &Client{addr: addr}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-inputs; cancel() }()
	if err := c.Do(ctx, "GET", "k").Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled command: %v", err)
	}
	c.timeout = time.Millisecond
	if err := c.Do(context.Background(), "GET", "k").Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a command whose time is up: %v", err)
	}
	if len(c.idle) != 0 {
		t.Error("a connection on which an answer may still come is kept")
	}
}

// TestLogin: user, password and database of a URL are sent first, and a refusal is the answer to
// the first command.
func TestLogin(t *testing.T) {
	var f Flags
	addr, inputs := answering(t, "+OK\r\n+OK\r\n", "$1\r\n5\r\n")
	c, err := f.FromURL("redis://web@"+addr+"/3", "p@ss", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Do(context.Background(), "GET", "k").Text(); got != "5" || err != nil {
		t.Error(got, err)
	}
	if got := <-inputs; got != "*3\r\n$4\r\nAUTH\r\n$3\r\nweb\r\n$4\r\np@ss\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n" {
		t.Errorf("sent %q", got)
	}
	addr, _ = answering(t, "-WRONGPASS no\r\n")
	c, _ = f.FromURL("redis://:no@"+addr, "p@ss", time.Minute)
	if err := c.Do(context.Background(), "GET", "k").Err(); err != Error("WRONGPASS no") {
		t.Error(err)
	}
	for _, bad := range []string{"", "h:1", "http://h:1", "redis://", "redis://h/x", "redis://h/-1",
		"redis://h/1/2", "redis://:%zzsecret@h", "redis://secret@h",
		"redis://:sec/ret@h", "redis://h?db=1"} {
		if _, err := f.FromURL(bad, "", 0); err == nil || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), "ret@") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for url, want := range map[string]string{"redis://h": "h:6379", "rediss://[::1]:7": "[::1]:7"} {
		if c, err := f.FromURL(url, "", 0); err != nil || c.Addr() != want ||
			(c.tls != nil) != strings.HasPrefix(url, "rediss") {
			t.Errorf("%s: %v, %v", url, c, err)
		}
	}
}
