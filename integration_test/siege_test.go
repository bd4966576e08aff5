package integration

import (
	"bufio"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// fullSiege lets hostile clients come in full numbers instead of a tenth.
var fullSiege = flag.Bool("siege.full", false, "hostile clients in full numbers: 10,000 connections, a "+
	"million-deep pipeline")

// numbers scales how many hostile clients there are, or what they send.
func numbers(full int) int {
	if *fullSiege {
		return full
	}
	return full / 10
}

// siege is a server that hostile clients attack while another works.
type siege struct {
	*server
	bystander func() net.Conn // connects the one that works

	idle       int64 // resident memory before the attack, in bytes
	stop, done chan struct{}
	once       sync.Once
	attacked   *incrementer // the bystander at work, until done is closed; as are
	calm       *incrementer // another one, at a server on the same machine that nobody attacks
	err        error
}

// incrementer increments a counter, again and again.
type incrementer struct {
	net.Conn
	in        *bufio.Reader
	latencies []time.Duration
}

// again sends the next increment.
func (c *incrementer) again() error {
	begin, n := time.Now(), len(c.latencies)+1
	c.SetDeadline(begin.Add(patience))
	io.WriteString(c, frame("CINCRBY", "witness", fmt.Sprint("op-", n), "1"))
	got, err := readReply(c.in)
	if err == nil && got != fmt.Sprint(":", n) {
		err = fmt.Errorf("increment %d: %s", n, got)
	}
	c.latencies = append(c.latencies, time.Since(begin))
	return err
}

// p99 is the latency of 99 % of the increments during the attack, in which they are sorted.
func (c *incrementer) p99() time.Duration {
	during := c.latencies[warmUp:]
	slices.Sort(during)
	return during[len(during)*99/100]
}

// newSiege starts the server and the bystander, whose commands are increments.
func newSiege(t *testing.T, args ...string) *siege {
	t.Helper()
	g := &siege{server: startServer(t, append([]string{"--appendfsync", "everysec", "--maxclients", "11000"},
		args...)...)}
	g.bystander = func() net.Conn { return g.dial() }
	return g
}

// begin starts the bystander.
func (g *siege) begin() {
	g.t.Helper()
	increment := func(c net.Conn) *incrementer { return &incrementer{Conn: c, in: bufio.NewReader(c)} }
	g.attacked, g.calm = increment(g.bystander()),
		increment(startServer(g.t, "--appendfsync", "everysec").dial())
	again := func() error { return errors.Join(g.attacked.again(), g.calm.again()) }
	for range warmUp {
		if err := again(); err != nil {
			g.t.Fatal(err)
		}
	}
	g.idle = g.memory("VmRSS")
	g.stop, g.done = make(chan struct{}), make(chan struct{})
	g.t.Cleanup(func() { // before the connection is closed
		g.halt()
		if g.err != nil {
			g.t.Errorf("the bystander: %v", g.err)
		}
	})
	go func() {
		defer close(g.done)
		for g.err == nil {
			select {
			case <-g.stop:
				if len(g.attacked.latencies) >= warmUp+minLatencies {
					return
				}
			case <-time.After(time.Millisecond):
			}
			g.err = again()
		}
	}()
}

// halt ends the bystander.
func (g *siege) halt() {
	g.once.Do(func() { close(g.stop) })
	<-g.done
}

// warmUp is how many increments come before the attack, so that what the first commands
// allocate is not the attack's; minLatencies is how many are measured at least.
const warmUp, minLatencies = 200, 200

// An attack may take siegeP99 longer than siegeFactor times what the same takes at a server
// that is not attacked, at the same time, so that a busy machine passes: one that reads 300 MB
// of 2000 clients with half a processor needs 0.6 s. What this and the bounds on memory catch
// is what grows with what the clients send.
const (
	siegeP99    = 3 * time.Second
	siegeFactor = 10
	mega        = 1 << 20
)

// end expects that the bystander was served throughout and that the server's
// memory never grew by more than a number of bytes.
func (g *siege) end(ceiling int64) {
	g.t.Helper()
	g.halt()
	p99, calm := g.attacked.p99(), g.calm.p99()
	grown := g.memory("VmHWM") - g.idle
	g.t.Logf("bystander: %d increments, p99 %v; elsewhere %v; memory %d MB + %d MB",
		len(g.attacked.latencies), p99, calm,
		g.idle/mega, grown/mega)
	if raced.On {
		return // it multiplies both
	}
	if p99 > siegeP99+siegeFactor*calm {
		g.t.Errorf("the bystander's p99 is %v, elsewhere %v", p99, calm)
	}
	if grown > ceiling {
		g.t.Errorf("the server's memory grew by %d MB, more than %d MB", grown/mega, ceiling/mega)
	}
}

// memory returns a line of /proc/PID/status in bytes.
func (g *siege) memory(line string) int64 {
	g.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		g.t.Skip("the system does not tell a process' memory: ", err)
	}
	m := regexp.MustCompile(`(?m)^` + line + `:\s+(\d+) kB$`).FindSubmatch(b)
	if m == nil {
		g.t.Fatalf("no %s in %s", line, b)
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}

// attackers connects n clients that each send a text.
func (g *siege) attackers(n int, text func(i int) string) []net.Conn {
	g.t.Helper()
	all := make([]net.Conn, n)
	for i := range all {
		c, err := net.Dial("tcp", g.address())
		if err != nil {
			g.t.Fatalf("client %d: %v", i, err)
		}
		g.t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(2 * patience))
		if _, err := io.WriteString(c, text(i)); err != nil {
			g.t.Fatalf("client %d: %v", i, err)
		}
		all[i] = c
	}
	return all
}

// connected returns how many clients the server has.
func (g *siege) connected() int {
	g.t.Helper()
	c := g.dial()
	defer c.Close()
	m := regexp.MustCompile(`connected_clients:(\d+)`).FindStringSubmatch(c.do("INFO", "clients"))
	n, _ := strconv.Atoi(m[1])
	return n
}

func TestSiegeIdle(t *testing.T) {
	g := newSiege(t)
	g.begin()
	n := numbers(10_000)
	g.attackers(n, func(int) string { return "" })
	eventually(t, patience, "all are connected", func() bool { return g.connected() > n })
	g.end(int64(n) * 32 << 10)
}

// TestSiegeByteBySecond has clients that send a byte now and then.
func TestSiegeByteBySecond(t *testing.T) {
	g := newSiege(t)
	g.begin()
	command := frame("ECHO", "slowly")
	all := g.attackers(numbers(1000), func(int) string { return command[:1] })
	for _, b := range []byte(command[1:4]) {
		time.Sleep(time.Second)
		for _, c := range all {
			c.Write([]byte{b})
		}
	}
	for _, c := range all {
		io.WriteString(c, command[4:])
		if got, err := readReply(bufio.NewReader(c)); got != `"slowly"` {
			t.Fatalf("byte by byte: %s, %v", got, err)
		}
	}
	g.end(64 * mega)
}

// TestSiegeDeaf has clients that ask for much and read nothing. The server stops
// reading from them, too, and hangs up in the end.
func TestSiegeDeaf(t *testing.T) {
	g := newSiege(t, "--client-output-buffer-limit", "normal 256mb 1 2")
	g.begin()
	n := numbers(500)
	g.attackers(n, func(int) string { return "" }) // they count as connected
	for _, c := range g.attackers(n, func(int) string { return "" }) {
		go io.WriteString(c, strings.Repeat(frame("ECHO", strings.Repeat("x", 60_000)), 200))
	}
	eventually(t, patience, "the deaf are disconnected", func() bool { return g.connected() <= n+2 })
	g.end(int64(n) * mega)
}

// TestSiegeDeepPipeline sends increments without end, and reads their replies.
func TestSiegeDeepPipeline(t *testing.T) {
	g := newSiege(t)
	g.begin()
	n := numbers(1_000_000)
	c := g.dial()
	c.SetDeadline(time.Now().Add(4 * patience))
	go func() {
		out := bufio.NewWriterSize(c, 1<<20)
		for i := range n {
			io.WriteString(out, frame("CINCRBY", "deep", fmt.Sprint("op-", i), "1"))
		}
		out.Flush()
	}()
	for i := range n {
		if got := c.reply(); got != fmt.Sprint(":", i+1) {
			t.Fatalf("reply %d is %s", i, got)
		}
	}
	// Their ids are remembered, which is what the server is for.
	g.end(64*mega + int64(n)*200)
}

// TestSiegeAnnouncements has clients that announce large requests and send none
// of them.
func TestSiegeAnnouncements(t *testing.T) {
	g := newSiege(t)
	g.begin()
	texts := []string{"*1048576\r\n$3\r\nGET\r\n", "*2\r\n$1048576\r\n", "*1048576\r\n",
		"*2\r\n$4\r\nECHO\r\n$1048576\r\nx"}
	n := numbers(4000)
	g.attackers(n, func(i int) string { return texts[i%len(texts)] })
	eventually(t, patience, "all are connected", func() bool { return g.connected() > n })
	g.end(int64(n) * 48 << 10)
}

// TestSiegeStrangers has clients without the password, who may fill far less.
func TestSiegeStrangers(t *testing.T) {
	g := newSiege(t, "--requirepass", "secret")
	g.bystander = func() net.Conn {
		c := g.dial()
		c.want("+OK", "AUTH", "secret")
		return c
	}
	g.begin()
	n := numbers(2000)
	bulk := "$16384\r\n" + strings.Repeat("x", 16384) + "\r\n"
	all := g.attackers(n, func(int) string { return "*10\r\n" + strings.Repeat(bulk, 9) + "$16384\r\n" })
	for _, c := range g.attackers(10, func(int) string { return "*1\r\n$16385\r\n" }) {
		if got, err := readReply(bufio.NewReader(c)); got != "-ERR Protocol error: unauthenticated "+
			"bulk length" {
			t.Errorf("a stranger's long argument: %s, %v", got, err)
		}
	}
	g.end(int64(n)*512<<10 + 64*mega)
	for _, c := range all {
		c.Close()
	}
}

// TestSiegeHalfOpen has clients that vanish in the middle of a command, with a
// reset, and others that close their half and still want their replies.
func TestSiegeHalfOpen(t *testing.T) {
	g := newSiege(t)
	g.begin()
	for _, c := range g.attackers(numbers(5000), func(int) string { return frame("ECHO", "x")[:9] }) {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	for _, c := range g.attackers(50,
		func(int) string { return frame("INCR", "half") + frame("ECHO", "bye") }) {
		c.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(answer), "$3\r\nbye\r\n") {
			t.Errorf("a client that closed its half is answered %q, %v", answer, err)
		}
	}
	eventually(t, patience, "all are forgotten", func() bool { return g.connected() <= 3 })
	g.end(64 * mega)
}

// TestSiegeHandshakes stalls TLS handshakes; the bystander and others who come
// meanwhile use TLS too.
func TestSiegeHandshakes(t *testing.T) {
	s, ca := tlsServer(t)
	cert, key := ca.Issue("client", time.Now().Add(time.Hour))
	config := ca.Client(cert, key)
	g := &siege{server: s}
	g.bystander = func() net.Conn {
		c, err := tls.Dial("tcp", s.address(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	g.begin()
	n := numbers(5000)
	g.attackers(n, func(i int) string { return "\x16\x03\x01\x02\x00\x01"[:i%7] })
	for range 20 {
		c := g.bystander()
		io.WriteString(c, "PING\r\n")
		if got, err := readReply(bufio.NewReader(c)); got != "+PONG" {
			t.Errorf("a new client: %s, %v", got, err)
		}
	}
	g.end(64*mega + int64(n)*32<<10)
}

// TestSiegeGarbage sends bytes at random, and web requests.
func TestSiegeGarbage(t *testing.T) {
	g := newSiege(t)
	g.begin()
	seed := uint32(1)
	for end := time.Now().Add(time.Second); time.Now().Before(end); { // how long it lasts
		for _, c := range g.attackers(20, func(i int) string {
			if i%2 == 0 {
				return "POST / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n"
			}
			b := make([]byte, 2000)
			for i := range b {
				seed = seed*1664525 + 1013904223
				b[i] = byte(seed >> 24)
			}
			return string(b)
		}) {
			c.Close()
		}
	}
	g.end(64 * mega)
}

// TestSiegeTransaction queues commands without end.
func TestSiegeTransaction(t *testing.T) {
	g := newSiege(t)
	g.begin()
	c := g.dial()
	c.want("+OK", "MULTI")
	c.SetDeadline(time.Now().Add(2 * patience))
	n := numbers(1_000_000)
	go io.WriteString(c, strings.Repeat(frame("SET", "k", "1"), n))
	refused := 0
	for range n {
		if got := c.reply(); strings.HasPrefix(got, "-ERR the queue of this transaction is too large") {
			refused++
		} else if got != "+QUEUED" || refused > 0 {
			t.Fatalf("after %d refusals: %s", refused, got)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	c.want("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	g.end(256 * mega)
}
