package server

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/store"
)

// track makes a client one of RESP3 that tracks with the options.
func (c *client) track(options ...string) {
	c.t.Helper()
	if got := c.do("HELLO", "3"); !strings.HasPrefix(got, "[server redis ") {
		c.t.Fatal(got)
	}
	c.expect("+OK", append([]string{"CLIENT", "TRACKING", "ON", "BCAST"}, options...)...)
}

// told reads messages until these keys have come, in this order. "_" is any key, which may come again, as
// may a key that was told of last.
func (c *client) told(keys ...string) {
	c.t.Helper()
	for len(keys) > 0 {
		if head := c.reply() + " " + c.reply(); head != ">2 invalidate" {
			c.t.Fatalf("a message begins with %q", head)
		}
		got := strings.Trim(c.reply(), "[]")
		if got == "_" && keys[0] != "_" {
			continue
		}
		for _, key := range strings.Fields(got) {
			switch {
			case len(keys) > 0 && key == keys[0]:
				c.last, keys = key, keys[1:]
			case key != c.last:
				c.t.Fatalf("told of %.40q, want %q", got, keys)
			}
		}
	}
}

// TestTracking: every way in which a client changes a value is told, and nothing else.
func TestTracking(t *testing.T) {
	for _, loop := range loops {
		s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet})
		r, w := s.dial(t), s.dial(t)
		r.track("PREFIX", "a:", "PREFIX", "b:")
		if list := w.do("CLIENT", "LIST"); !strings.Contains(list, "flags=tB ") ||
			!strings.Contains(list, "redir=0 ") {
			t.Errorf("CLIENT LIST: %s", list)
		}
		if info := w.do("INFO", "clients"); !strings.Contains(info, "tracking_clients:1\r\n") {
			t.Error(info)
		}
		r.expect(":0", "CLIENT", "GETREDIR")
		r.expect("[flags [on bcast] redirect :0 prefixes [a: b:]]", "CLIENT", "TRACKINGINFO")
		r.expect("-ERR Prefix 'a' overlaps with an existing prefix 'a:'. Prefixes for a single client must "+
			"not overlap.", "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a")
		r.expect("-ERR Prefix 'x' overlaps with another provided prefix 'xy'. Prefixes for a single client "+
			"must not overlap.", "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x", "PREFIX", "xy")
		for _, step := range []struct {
			request string
			keys    string
		}{
			{"CINCRBY a:1 op 5", "a:1"}, {"CINCRBY a:1 op 5", ""}, {"INCR c:1", ""}, {"GET a:1", ""},
			{"SET b:1 7", "b:1"}, {"CMINCRBY op2 2 a:1 -1 b:1 1", "a:1 b:1"}, {"PEXPIRE a:1 100000", "a:1"},
			{"FBF.ADD a:f x", "a:f"}, {"BF.ADD b:f x", "b:f"}, {"CHOLD a:2 h 3 EX 100", "a:2"},
			{"CSETTLE a:2 h 2", "a:2"}, {"CGETDEL a:2 d", "a:2"}, {"DEL a:1 b:none", "a:1"},
			{"FLUSHALL", "_"},
		} {
			w.do(strings.Fields(step.request)...)
			r.told(strings.Fields(step.keys)...)
		}
		w.send(frame("MULTI") + frame("INCR", "a:x") + frame("INCR", "b:x") + frame("EXEC") +
			frame("CMULTI") + frame("INCR", "a:y") + frame("EXEC"))
		r.told("a:x", "b:x", "a:y")
		for range 7 {
			w.reply()
		}
		r.expect("+OK", "CLIENT", "TRACKING", "ON", "BCAST", "NOLOOP", "PREFIX", "d:")
		r.expect(":1", "INCR", "d:mine")
		w.expect(":1", "INCR", "d:other")
		r.told("d:other")
		r.expect("+OK", "SET", "d:brief", "1", "PX", "1")
		r.told("d:brief") // the expiry cycle
		r.expect("+OK", "CLIENT", "TRACKING", "OFF")
		r.expect(":-1", "CLIENT", "GETREDIR")
		w.expect(":2", "INCR", "d:other")
		r.expect("+PONG", "PING")
		r.track()
		w.expect(":1", "INCR", "any")
		r.told("any")
		if got := r.do("HELLO", "2"); !strings.HasPrefix(got, "[server redis ") {
			t.Error(got)
		}
		if n := s.Server.commands.Sessions(); n[0].Pushed() {
			t.Error("a client of RESP2 tracks")
		}
	}
}

// TestInvalidationFollowsReply: a read that was decided before a change is answered before the client is
// told of the change, or it would keep what it read.
func TestInvalidationFollowsReply(t *testing.T) {
	st := openStore(t)
	config := freePort(t)
	listeners, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Store: st, Config: config, Logger: quiet})
	decided, release := make(chan struct{}), make(chan struct{})
	s.commands.Execute = func(b *store.Batch) {
		st.Execute(b)
		if b.Ops[0].Kind == store.Get {
			decided <- struct{}{}
			<-release
		}
	}
	run := &running{Server: s, address: listeners[0].Addr().String(), served: make(chan error, 1)}
	go func() { run.served <- s.Serve(listeners...) }()
	t.Cleanup(func() {
		s.Stop(true)
		run.wait(t)
	})
	r, w := run.dial(t), run.dial(t)
	r.track()
	for n := range 20 {
		r.send(frame("GET", "k"))
		<-decided
		w.do("INCR", "k")
		want := "_"
		if n > 0 {
			want = strconv.Itoa(n)
		}
		eventually(t, "the message waits", func() bool {
			return slices.ContainsFunc(s.sessions(), func(o *commands.Session) bool {
				return o.Held() > 100 && o.Pushed()
			})
		})
		release <- struct{}{}
		r.expectReply(want)
		r.told("k")
	}
}

// TestSlowTracker: nobody waits for a client that does not read what it is told, and it is told less: that
// any key may have changed.
func TestSlowTracker(t *testing.T) {
	s := start(t)
	r, w := s.dial(t), s.dial(t)
	r.track()
	long := strings.Repeat("k", store.MaxKey-10)
	for n := range 400 { // 26 MB, more than the system keeps for a socket and the server for a client
		w.expect(":1", "INCR", long+strconv.Itoa(n))
	}
	w.expect(":1", "INCR", "later")
	all := false
	for last := ""; !strings.HasSuffix(last, "later]"); {
		r.reply()
		r.reply()
		last = r.reply()
		all = all || last == "_"
	}
	if !all {
		t.Error("all of 26 MB waited")
	}
}

// TestTrackerSeesItsKeysOnly: names of keys that the client's user may not read are not told.
func TestTrackerSeesItsKeysOnly(t *testing.T) {
	s := start(t)
	r, w := s.dial(t), s.dial(t)
	w.expect("+OK", "ACL", "SETUSER", "one", "on", "nopass", "+@all", "~one:*", "%W~write:*")
	r.expect("+OK", "AUTH", "one", "x")
	r.track()
	for _, key := range []string{"two:1", "write:1", "one:1"} {
		w.expect(":1", "INCR", key)
	}
	r.told("one:1")
}
