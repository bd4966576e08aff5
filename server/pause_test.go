package server

import (
	"strings"
	"testing"
	"time"
)

// TestWhatAPauseHolds: a pause holds what would be carried out, and not what is
// refused anyway, nor what is needed to end it; EXEC is what was queued. Of
// several pauses the longest time and the strictest mode count, as in Redis.
func TestWhatAPauseHolds(t *testing.T) {
	s := start(t)
	admin := s.dial(t)
	admin.expect("+OK", "ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@read")
	const all, writes, brief = "PAUSE 60000 ALL", "PAUSE 60000 WRITE", "PAUSE 1 WRITE"
	for _, tt := range []struct {
		pauses string // CLIENT …, separated by commas
		say    string // separated by commas; the last one is it. The pauses begin at "…", or before
		held   bool
	}{
		{all, "PING", true},
		{all, "GET k", true},
		{all, "MULTI", true},
		{all, "GET", false},
		{all, "NOSUCH k", false},
		{all, "CONFIG NOSUCH", false},
		{all, "RENAME a b", false},
		{all, "MULTI,…,SAVE", false}, // not in a transaction
		{all, "MULTI,…,GET k", true},
		{all, "CLIENT ID", false},
		{all, "CLIENT NOSUCH", false},
		{all, "AUTH reader x", false},
		{all, "AUTH", false},
		{writes, "GET k", false},
		{writes, "PING", false},
		{writes, "SAVE", false},
		{writes, "MULTI", false},
		{writes, "SET k 1", true},
		{writes, "CINCR k id", true},
		{writes, "CTABLE CREATE t PREFIX t", true},
		{writes, "CTABLE LIST", false},
		{writes, "FBF.ADD f x", true},
		{writes, "FBF.EXISTS f x", false},
		{writes, "FLUSHALL", true},
		{writes, "SET k", false},
		{writes, "SETT k 1", false},
		{writes, "CTABLE CREATE t", false},
		{writes, "AUTH reader x,SET k 1", false}, // NOPERM
		{writes, "AUTH reader x,CTABLE DROP t", false},
		{writes, "MULTI,GET k", false},
		{writes, "MULTI,SET k 1", true},
		{writes, "MULTI,SET k", false},
		{writes, "EXEC", false},
		{writes, "MULTI,EXEC", false},
		{writes, "MULTI,GET k,CGET k,EXEC", false},
		{writes, "MULTI,GET k,EXEC k", false},
		{writes, "MULTI,GET k,DISCARD", false},
		{writes, "MULTI,GET k,SET k 1,…,EXEC", true},
		{writes, "MULTI,SET k 1,GET k,…,EXEC", true},
		{writes, "MULTI,SET k 1,…,DISCARD", false},
		{writes, "MULTI,SET k 1,DISCARD,MULTI,GET k,…,EXEC", false},
		{writes, "MULTI,SET k 1,RESET,MULTI,GET k,…,EXEC", false},
		{writes, "MULTI,NOSUCH,SET k 1,…,EXEC", false},
		{writes + "," + brief, "SET k 1", true},
		{brief + "," + writes, "SET k 1", true},
		{writes + ",PAUSE 0", "SET k 1", true},
		{writes + ",PAUSE 0,UNPAUSE", "SET k 1", false},
		{writes + ",PAUSE 1 ALL", "GET k", true},
		{all + "," + writes, "GET k", true},
		{all + "," + brief, "GET k", true},
		{all + ",UNPAUSE," + writes, "GET k", false},
	} {
		t.Run(tt.pauses+" "+tt.say, func(t *testing.T) {
			c, begin := s.dial(t), time.Now()
			pause := func() {
				for _, p := range strings.Split(tt.pauses, ",") {
					admin.expect("+OK", strings.Fields("CLIENT "+p)...)
				}
			}
			lines := strings.Split(tt.say, ",")
			if !strings.Contains(tt.say, "…") {
				pause()
			}
			for i, line := range lines {
				if line == "…" {
					pause()
				} else if c.send(frame(strings.Fields(line)...)); i < len(lines)-1 {
					c.reply()
				}
			}
			if tt.held {
				eventually(t, "the request is held", func() bool { return s.pause.held.Load() == 1 })
				if lasts := time.Unix(0, s.pause.until.Load()).Sub(begin); lasts < 59*time.Second {
					t.Errorf("the pause lasts %v", lasts)
				}
				admin.expect("+OK", "CLIENT", "UNPAUSE")
			}
			if got := c.reply(); got == "" || strings.HasPrefix(got, "error: ") ||
				strings.HasPrefix(got, "EOF") {
				t.Errorf("the reply is %q", got)
			}
			admin.expect("+OK", "CLIENT", "UNPAUSE")
		})
	}
}

// TestKilledInAPause: what a pause holds of a client that is then killed is dropped,
// as in Redis, and at once.
func TestKilledInAPause(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet})
			killInAPause(t, s)
		})
	}
}

func killInAPause(t *testing.T, s *running) {
	admin, gone, stays := s.dial(t), s.dial(t), s.dial(t)
	gone.expect("+OK", "CLIENT", "SETNAME", "gone")
	id := strings.TrimPrefix(gone.do("CLIENT", "ID"), ":")
	admin.expect("+OK", "CLIENT", "PAUSE", "60000", "WRITE")
	gone.send(frame("INCR", "k"))
	stays.send(frame("INCR", "l"))
	held := func(n int64) func() bool { return func() bool { return s.pause.held.Load() == n } }
	eventually(t, "both are held", held(2))
	admin.expect(":1", "CLIENT", "KILL", "ID", id)
	eventually(t, "one is held", held(1))
	admin.expect("+OK", "CLIENT", "UNPAUSE")
	stays.expectReply(":1")
	gone.expectReply("EOF")
	admin.expect("$-1", "GET", "k")
}

// TestPauseAndPassword: who must log in can do so, and end a pause.
func TestPauseAndPassword(t *testing.T) {
	s := start(t)
	admin := s.dial(t)
	admin.expect("+OK", "CONFIG", "SET", "requirepass", "pw")
	admin.expect("+OK", "CLIENT", "PAUSE", "60000")
	c := s.dial(t)
	c.expect("-NOAUTH Authentication required.", "GET", "k")
	c.expect("+OK", "AUTH", "pw")
	c.expect("+OK", "CLIENT", "UNPAUSE")
	c.expect("$-1", "GET", "other")
}
