package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConfigGetAndSet(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.expect("[maxclients 10000]", "CONFIG", "GET", "MAXCLIENTS")
	c.expect("[]", "CONFIG", "GET", "nosuch")
	c.expect("+OK", "CONFIG", "SET", "maxclients", "50", "timeout", "9")
	c.expect("[maxclients 50 timeout 9]", "CONFIG", "GET", "maxclients", "timeout")
	c.expect("[tcp-keepalive 300]", "CONFIG", "GET", "tcp*")

	// All or nothing.
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{[]string{"maxclients", "60", "port", "1"}, "can't set immutable config"},
		{[]string{"maxclients", "60", "timeout", "x"}, "argument couldn't be parsed into an integer"},
		{[]string{"maxclients", "60", "nosuch", "1"}, "nosuch"},
		{[]string{"maxclients", "60", "maxclients", "61"}, "duplicate"},
		{[]string{"maxclients", "0"}, "between 1 and"},
	} {
		got := c.do(append([]string{"CONFIG", "SET"}, tt.set...)...)
		if !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, tt.want) {
			t.Errorf("CONFIG SET %v: %q", tt.set, got)
		}
		c.expect("[maxclients 50]", "CONFIG", "GET", "maxclients")
	}
}

// TestConfigSetTakesEffectAtOnce changes limits of connections that exist.
func TestConfigSetTakesEffectAtOnce(t *testing.T) {
	s := start(t)
	a, b := s.dial(t), s.dial(t)
	long := frame("ECHO", strings.Repeat("x", 1<<20+1))
	b.expect("+PONG", "PING")
	a.expect("+OK", "CONFIG", "SET", "proto-max-bulk-len", "2mb")
	b.send(frame("PING"))
	b.expectReply("+PONG")
	b.send(long)
	if got := b.reply(); len(got) != 1<<20+1 {
		t.Errorf("long ECHO: %.100q", got)
	}
	a.expect("+OK", "CONFIG", "SET", "requirepass", "secret")
	stranger := s.dial(t)
	stranger.expect("-NOAUTH Authentication required.", "GET", "k")
	stranger.expect("+OK", "AUTH", "secret")
	stranger.expect("$-1", "GET", "k")
	a.expect("+OK", "CONFIG", "SET", "maxclients", "1")
	s.dial(t).expectReply("-ERR max number of clients reached")
}

// TestConfigSetIsUndone: when the rest of the program cannot follow a change,
// what it followed before is taken back.
func TestConfigSetIsUndone(t *testing.T) {
	var timeouts []time.Duration
	s := startWith(t, Options{Logger: quiet, OnChange: map[string]func(*Config) error{
		"timeout":    func(c *Config) error { timeouts = append(timeouts, c.Timeout); return nil },
		"maxclients": func(*Config) error { return errors.New("not today") },
	}})
	c := s.dial(t)
	got := c.do("CONFIG", "SET", "timeout", "7", "maxclients", "3")
	if !strings.HasPrefix(got, "-ERR CONFIG SET failed") || !strings.Contains(got, "not today") {
		t.Errorf("reply %q", got)
	}
	if fmt.Sprint(timeouts) != "[7s 0s]" {
		t.Errorf("timeouts applied: %v", timeouts)
	}
	c.expect("[maxclients 10000 timeout 0]", "CONFIG", "GET", "maxclients", "timeout")
}

func TestClientListAndKill(t *testing.T) {
	s := start(t)
	a, b := s.dial(t), s.dial(t)
	a.expect("+OK", "CLIENT", "SETNAME", "first")
	b.expect("+OK", "CLIENT", "SETNAME", "second")
	list := a.do("CLIENT", "LIST")
	if strings.Count(list, "\n") != 2 || !strings.Contains(list, "name=first ") ||
		!strings.Contains(list, "name=second ") {
		t.Errorf("CLIENT LIST: %q", list)
	}
	a.expect(":1", "CLIENT", "KILL", "ADDR", b.LocalAddr().String())
	b.expectReply("EOF")
	eventually(t, "the client is gone", func() bool { return len(s.sessions()) == 1 })
	a.expect(":0", "CLIENT", "KILL", "ID", "12345")

	// Killing oneself is answered first.
	a.expect(":1", "CLIENT", "KILL", "ID", fmt.Sprint(s.sessions()[0].ID), "SKIPME", "no")
	a.expectReply("EOF")
}

func TestClientPause(t *testing.T) {
	s := start(t)
	a, b := s.dial(t), s.dial(t)
	a.expect("+OK", "CLIENT", "PAUSE", "60000", "WRITE")
	b.expect("$-1", "GET", "k") // reads go on
	b.send(frame("PING") + frame("CINCRBY", "k", "id", "1") + frame("PING"))
	b.expectReply("+PONG") // what came before the write is answered
	eventually(t, "the write is held", func() bool { return s.pause.held.Load() == 1 })
	a.expect("$-1", "GET", "k")
	if info := a.do("INFO", "clients"); !strings.Contains(info, "blocked_clients:1\r\n") {
		t.Errorf("one client waits: %q", info)
	}
	a.expect("+OK", "CLIENT", "UNPAUSE")
	b.expectReply(":1")
	b.expectReply("+PONG")
	if info := a.do("INFO", "clients"); !strings.Contains(info, "blocked_clients:0\r\n") {
		t.Errorf("no client waits: %q", info)
	}

	begin := time.Now()
	a.expect("+OK", "CLIENT", "PAUSE", "200")
	b.expect("$-1", "GET", "other")
	if took := time.Since(begin); took < 150*time.Millisecond {
		t.Errorf("GET waited %v of a pause of 200 ms", took)
	}
}

// TestStopDuringPause: clients that wait for the end of a pause do not delay a
// stop.
func TestStopDuringPause(t *testing.T) {
	s := start(t)
	a := s.dial(t)
	a.expect("+OK", "CLIENT", "PAUSE", "60000")
	b := s.dial(t)
	b.send(frame("PING"))
	eventually(t, "a client waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.conns {
			if c.session.ID == 2 && c.phase.Load() == phaseWorking {
				return true
			}
		}
		return false
	})
	s.Stop(false)
	s.wait(t)
	b.expectReply("EOF")
}

func TestInfo(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	_, port, _ := strings.Cut(s.address, ":")
	info := c.do("INFO")
	for _, want := range []string{"tcp_port:" + port + "\r\n", "connected_clients:1\r\n",
		"maxclients:10000\r\n", "run_id:" + s.runID + "\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %q", want)
		}
	}
	before := s.Figures()
	other := s.dial(t)
	other.expect("+PONG", "PING")
	other.Close()
	eventually(t, "the client is gone", func() bool { return len(s.sessions()) == 1 })
	after := s.Figures()
	if in := after.NetInputBytes - before.NetInputBytes; in != uint64(len(frame("PING"))) {
		t.Errorf("%d bytes in", in)
	}
	sent := uint64(len(fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)) + len("+PONG\r\n"))
	eventually(t, "what was sent is counted", func() bool { return s.Figures().NetOutputBytes == sent })
	if n := after.TotalConnections - before.TotalConnections; n != 1 {
		t.Errorf("%d connections", n)
	}
	c.expect("+OK", "CONFIG", "RESETSTAT")
	if f := s.Figures(); f.TotalConnections != 0 || f.NetInputBytes > 100 {
		t.Errorf("after RESETSTAT: %+v", f)
	}
}

func TestShutdown(t *testing.T) {
	for _, how := range [][]string{{"SHUTDOWN"}, {"SHUTDOWN", "NOSAVE"}, {"SHUTDOWN", "NOW"}} {
		s := start(t)
		idle, c := s.dial(t), s.dial(t)
		idle.expect("+PONG", "PING")
		if got := c.do(how...); got != "EOF" && !strings.Contains(got, "reset") {
			t.Errorf("%v: %q", how, got)
		}
		s.wait(t)
		if got := idle.reply(); got != "EOF" && !strings.Contains(got, "reset") {
			t.Errorf("%v: idle client got %q", how, got)
		}
	}
}

func TestConfigRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fbfkv.conf")
	if err := os.WriteFile(path, []byte("# mine\ntimeout 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startWith(t, Options{Logger: quiet, ConfigFile: path})
	c := s.dial(t)
	c.expect("+OK", "CONFIG", "SET", "timeout", "6")
	c.expect("+OK", "CONFIG", "REWRITE")
	if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), "# mine\ntimeout 6\n") {
		t.Errorf("%q, %v", text, err)
	}
	without := startWith(t, Options{Logger: quiet}).dial(t)
	without.expect("-ERR The server is running without a config file", "CONFIG", "REWRITE")
}

// TestReadsAndWritesAreCounted, however a connection is served, also once it is
// gone; and INFO names the listeners.
func TestReadsAndWritesAreCounted(t *testing.T) {
	for _, loop := range loops {
		s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet})
		c := s.dial(t)
		c.expect("+PONG", "PING") // with TLS, the handshake may have read it
		eventually(t, "a write", func() bool { return s.Figures().Writes == 1 })
		first := s.Figures().Reads
		for range 5 {
			c.expect("+PONG", "PING")
		}
		eventually(t, "five reads and writes", func() bool {
			return s.Figures().Reads == first+5 && s.Figures().Writes == 6
		})
		before := s.Figures()
		c.Close()
		eventually(t, "the client to be gone", func() bool { return len(s.sessions()) == 0 })
		if now := s.Figures(); now.Reads < before.Reads || now.Writes < before.Writes {
			t.Errorf("%s: the figures of a connection went with it: %+v", loop, now)
		}
		c = s.dial(t)
		c.expect("+OK", "CONFIG", "RESETSTAT")
		_, port, _ := strings.Cut(s.address, ":")
		kind := "tcp"
		if s.secure != nil {
			kind = "tls"
		}
		if now := s.Figures(); now.Reads != 0 || now.Writes > 1 ||
			!slices.Equal(now.Listeners, []string{"name=" + kind + ",bind=127.0.0.1,port=" + port}) {
			t.Errorf("%s: after RESETSTAT: %+v", loop, now)
		}
	}
}
