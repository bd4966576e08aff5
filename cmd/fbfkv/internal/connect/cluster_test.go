package connect

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// testNode is a node that answers what the test says, and keeps the commands.
type testNode struct {
	addr string
	l    net.Listener
	mu   sync.Mutex
	got  []string
	conn []net.Conn
}

// startTestNode starts a node. It sends the bytes that answer returns.
func startTestNode(t *testing.T, answer func(command string) string) *testNode {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{addr: l.Addr().String(), l: l}
	t.Cleanup(n.stop)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			n.conn = append(n.conn, nc)
			n.mu.Unlock()
			go n.serve(nc, answer)
		}
	}()
	return n
}

func (n *testNode) serve(nc net.Conn, answer func(string) string) {
	in, budget := bufio.NewReaderSize(nc, maxLine), maxSum
	for {
		request, err := readReply(in, 0, &budget)
		if err != nil {
			return
		}
		words, _ := request.Texts()
		command := strings.Join(words, " ")
		if command != "PING" { // of a connection that was idle for a moment
			n.mu.Lock()
			n.got = append(n.got, command)
			n.mu.Unlock()
		}
		fmt.Fprint(nc, answer(command))
	}
}

func (n *testNode) stop() {
	n.l.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, nc := range n.conn {
		nc.Close()
	}
}

// take returns the commands that came, and forgets them.
func (n *testNode) take() (got []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	got, n.got = n.got, nil
	return got
}

// shardsOf is an answer to CLUSTER SHARDS: one shard with all slots, whose first node leads.
func shardsOf(addrs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*1\r\n*4\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*%d\r\n", len(addrs))
	for i, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		role := "replica"
		if i == 0 {
			role = "master"
		}
		fmt.Fprintf(&b, "*8\r\n+port\r\n:%s\r\n+endpoint\r\n+%s\r\n+role\r\n+%s\r\n+health\r\n+online\r\n", port, host,
			role)
	}
	return b.String()
}

func testCluster(t *testing.T, addr string) *Cluster {
	t.Helper()
	c, err := new(Flags).Cluster(addr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestClusterAlone: of a server that is in no cluster nothing is asked but once, and an answer that names
// another node is an error as it is.
func TestClusterAlone(t *testing.T) {
	for name, answer := range map[string]string{
		"disabled": "-ERR This instance has cluster support disabled\r\n", "no permission": "-NOPERM no\r\n"} {
		n := startTestNode(t, func(command string) string {
			if command == "CLUSTER SHARDS" {
				return answer
			}
			return "-ERR " + command + "\r\n"
		})
		c := testCluster(t, n.addr)
		for range 2 {
			c.Do(t.Context(), "GET", "k")
		}
		replies, err := c.Each(t.Context(), "CTOP", "p")
		got := strings.Join(n.take(), ", ")
		if err != nil || len(replies) != 1 || got != "CLUSTER SHARDS, GET k, GET k, CTOP p" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestMoved: a command goes to the node that is named instead, and the next one of its slot goes there at
// once. A name that leads nowhere is the answer.
func TestMoved(t *testing.T) {
	slot := store.Slot([]byte("k"))
	var one, other *testNode
	moved := "" // what one answers
	one = startTestNode(t, func(command string) string {
		if command == "CLUSTER SHARDS" {
			return shardsOf(one.addr, other.addr)
		}
		return moved
	})
	other = startTestNode(t, func(command string) string { return "+" + command + "\r\n" })
	_, port, _ := net.SplitHostPort(other.addr)
	for name, tt := range map[string]struct {
		answer string
		sent   int // to one
	}{
		"to the other":      {fmt.Sprintf("-MOVED %d %s\r\n", slot, other.addr), 1},
		"to the other port": {fmt.Sprintf("-MOVED %d :%s\r\n", slot, port), 1},
		"IPv6":              {fmt.Sprintf("-MOVED %d ::ffff:127.0.0.1:%s\r\n", slot, port), 1},
		"to itself":         {fmt.Sprintf("-MOVED %d %s\r\n", slot, one.addr), 2 * (maxMoves + 1)},
		"slot too large":    {fmt.Sprintf("-MOVED %d %s\r\n", 1<<14, other.addr), 2},
		"no port":           {fmt.Sprintf("-MOVED %d 127.0.0.1\r\n", slot), 2},
		"no address":        {fmt.Sprintf("-MOVED %d\r\n", slot), 2},
	} {
		moved = tt.answer
		c := testCluster(t, one.addr)
		for range 2 {
			text, err := c.Do(t.Context(), "GET", "k").Text()
			if follows := tt.sent == 1; follows != (text == "GET k") || follows != (err == nil) ||
				IsTransient(err) != (tt.sent > 2) {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		if got := len(slices.DeleteFunc(one.take(), func(command string) bool {
			return command == "CLUSTER SHARDS"
		})); got != tt.sent {
			t.Errorf("%s: %d commands were sent, want %d", name, got, tt.sent)
		}
		if err := c.With(t.Context(), "k", func(conn *Conn) error {
			return conn.Do("WATCH", "k").Err()
		}); (err == nil) != (tt.sent == 1) {
			t.Errorf("%s: WATCH: %v", name, err)
		}
		one.take()
	}
}

// TestFrozenLeader: a leader that is frozen is given up after one PING, and not after one for each connection
// that was idle; the node that leads instead is asked.
func TestFrozenLeader(t *testing.T) {
	var old, next *testNode
	frozen := make(chan struct{})
	var leads atomic.Bool
	leads.Store(true)
	old = startTestNode(t, func(command string) string {
		if !leads.Load() {
			<-frozen
		}
		if command == "CLUSTER SHARDS" {
			return shardsOf(old.addr, next.addr)
		}
		return "+old\r\n"
	})
	next = startTestNode(t, func(command string) string {
		if command == "CLUSTER SHARDS" {
			return shardsOf(next.addr, old.addr)
		}
		return "+next\r\n"
	})
	defer close(frozen)
	c := testCluster(t, old.addr)
	if text, err := c.Do(t.Context(), "GET", "k").Text(); text != "old" {
		t.Fatal(text, err)
	}
	client, err := c.at(old.addr)
	if err != nil {
		t.Fatal(err)
	}
	client.pingTime = 50 * time.Millisecond
	for range 8 { // connections that are idle
		conn, err := client.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client.release(conn)
	}
	leads.Store(false)
	time.Sleep(rested)
	if err := c.Do(t.Context(), "GET", "k").Err(); !errors.Is(err, os.ErrDeadlineExceeded) || len(client.idle) > 0 {
		t.Errorf("%v, %d connections are kept", err, len(client.idle))
	}
	old.mu.Lock()
	if len(old.conn) != 9 {
		t.Errorf("a frozen node has %d connections", len(old.conn))
	}
	old.mu.Unlock()
	if text, err := c.Do(t.Context(), "GET", "k").Text(); text != "next" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestLeaderFails: when a leader is gone, or says that it leads no more, another node is asked who leads.
func TestLeaderFails(t *testing.T) {
	for _, gone := range []bool{false, true} {
		var old, next *testNode
		old = startTestNode(t, func(command string) string {
			if command == "CLUSTER SHARDS" {
				return shardsOf(old.addr, next.addr)
			}
			return "-TRYAGAIN no leader\r\n"
		})
		next = startTestNode(t, func(command string) string {
			if command == "CLUSTER SHARDS" {
				return shardsOf(next.addr, old.addr)
			}
			return "+" + command + "\r\n"
		})
		c := testCluster(t, old.addr)
		if text, err := c.Do(t.Context(), "GET", "k").Text(); !IsTransient(err) {
			t.Fatal(text, err)
		}
		if gone {
			c = testCluster(t, old.addr)
			if err := c.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			old.stop()
			if err := c.Do(t.Context(), "GET", "k").Err(); err == nil || IsReply(err) {
				t.Fatal(err)
			}
		}
		if text, err := c.Do(t.Context(), "GET", "k").Text(); text != "GET k" {
			t.Errorf("gone %v: %q, %v", gone, text, err)
		}
	}
}
