package commands

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// secured is a server that asks for a password.
func secured() *Server {
	users := acl.NewUsers(Catalog())
	users.SetDefaultPassword("secret")
	return &Server{Users: users}
}

func TestAuth(t *testing.T) {
	c := dial(t, newStore(t), secured())
	c.play([]step{
		{"GET k", "-NOAUTH Authentication required."},
		{"CINCRBY k a 1", "-NOAUTH Authentication required."},
		{"PING", "-NOAUTH Authentication required."},
		{"MULTI", "-NOAUTH Authentication required."},
		{"EXEC", "-EXECABORT Transaction discarded because of: NOAUTH Authentication required."},
		{"COMMAND", "-NOAUTH Authentication required."},
		{"CONFIG GET requirepass", "-NOAUTH Authentication required."},
		{"HELLO", "-" + errHelloNoAuth.Error()},
		{"HELLO 3", "-" + errHelloNoAuth.Error()},
		{"HELLO 3 AUTH default nope", "-" + errWrongPass.Error()},
		{"AUTH nope", "-" + errWrongPass.Error()},
		{"AUTH secrets", "-" + errWrongPass.Error()},
		{`AUTH ""`, "-" + errWrongPass.Error()},
		{"AUTH other secret", "-" + errWrongPass.Error()},
		{"GET k", "-NOAUTH Authentication required."},
		{"RESET", "+RESET"},
		{"AUTH secret", "+OK"},
		{"GET k", "nil"},
		{"AUTH nope", "-" + errWrongPass.Error()},
		{"GET k", "nil"}, // a failed attempt does not throw the client out
		{"RESET", "+RESET"},
		{"GET k", "-NOAUTH Authentication required."},
		{"AUTH default secret", "+OK"},
		{"GET k", "nil"},
	})
	if got := dial(t, c.p.round.st,
		secured()).say("HELLO 3 AUTH default secret SETNAME me"); !strings.HasPrefix(got, "{") {
		t.Errorf("HELLO with AUTH: %s", got)
	}
	quit := dial(t, c.p.round.st, secured())
	quit.play([]step{{"QUIT", "+OK"}})
	if !quit.session.Closing() {
		t.Error("QUIT does not close before authentication")
	}
}

// A password set while a client is connected does not lock it out, as in Redis.
func TestPasswordSetLater(t *testing.T) {
	srv := new(Server)
	c := dial(t, newStore(t), srv)
	srv.Users.SetDefaultPassword("late")
	c.play([]step{{"GET k", "nil"}})
	dial(t, c.p.round.st,
		srv).play([]step{{"GET k", "-NOAUTH Authentication required."}, {"AUTH late", "+OK"}})
	srv.Users.SetDefaultPassword("")
	dial(t, c.p.round.st, srv).play([]step{{"GET k", "nil"}})
}

func TestQuitEndsThePipeline(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	if got := c.send("INCR k", "QUIT", "INCR k"); got != ":1\r\n+OK\r\n" {
		t.Errorf("replies %q", got)
	}
	if !c.session.Closing() {
		t.Error("not closing")
	}
}

func TestClientReply(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	for _, s := range []struct {
		say  []string
		want string
	}{
		{[]string{"CLIENT REPLY OFF", "INCR k", "PING", "nonsense", "GET k"}, ""},
		{[]string{"INCR k", "INFO"}, ""},
		{[]string{"MULTI", "INCR k", "GET k", "EXEC"}, ""},
		{[]string{"CLIENT REPLY ON", "GET k"}, "+OK\r\n$1\r\n3\r\n"},
		{[]string{"CLIENT REPLY SKIP", "INCR k", "GET k"}, "$1\r\n4\r\n"},
		{[]string{"CLIENT REPLY SKIP", "INFO", "GET k"}, "$1\r\n4\r\n"},
		{[]string{"CLIENT REPLY OFF", "RESET", "GET k"}, "+RESET\r\n$1\r\n4\r\n"},
	} {
		if got := c.send(s.say...); got != s.want {
			t.Errorf("%q: %q, want %q", s.say, got, s.want)
		}
	}
}

func TestClientNames(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"CLIENT SETINFO LIB-NAME go-redis(,go1.26)", "+OK"},
		{"CLIENT SETINFO lib-ver 9.0", "+OK"},
		{`CLIENT SETINFO LIB-NAME "a b"`, "-ERR lib-name cannot contain spaces, newlines or special " +
			"characters."},
		{"CLIENT SETINFO FOO x", "-ERR Unrecognized option 'FOO'"},
		{"CLIENT SETNAME me", "+OK"},
		{"CLIENT ID", ":7"},
	})
	got := c.say("CLIENT INFO")
	for _, want := range []string{"id=7 ", "addr=127.0.0.1:50000 ", "name=me ",
		"lib-name=go-redis(,go1.26) lib-ver=9.0",
		"cmd=client|info ", "flags=N ", "resp=2 ", "multi=-1 "} {
		if !strings.Contains(got, want) {
			t.Errorf("CLIENT INFO lacks %q: %s", want, got)
		}
	}
	if list := c.say("CLIENT LIST"); !strings.HasPrefix(list, `"id=7 `) || strings.Count(list, `\n`) != 1 {
		t.Errorf("CLIENT LIST: %s", list)
	}
	c.play([]step{{"CLIENT LIST ID 8 9", `""`}, {"CLIENT LIST TYPE replica", `""`}})
}

func TestClientKill(t *testing.T) {
	srv := &Server{}
	st := newStore(t)
	me, other := dial(t, st, srv), dial(t, st, srv)
	other.session.ID, other.session.Addr = 8, "10.0.0.1:1"
	var killed []int64
	srv.Sessions = func() []*Session { return []*Session{me.session, other.session} }
	srv.Kill = func(match func(*Session) bool) int {
		n := 0
		for _, s := range srv.Sessions() {
			if match(s) {
				killed = append(killed, s.ID)
				n++
				s.killed.Store(false) // as if it had come back
			}
		}
		return n
	}
	me.play([]step{
		{"CLIENT KILL ID 8", ":1"},
		{"CLIENT KILL ADDR 10.0.0.1:1 TYPE normal", ":1"},
		{"CLIENT KILL USER default", ":1"}, // skips itself
		{"CLIENT KILL ID 7", ":0"},
		{"CLIENT KILL ID 6 8 9", ":1"},
		// IDs add up, of others the last counts
		{"CLIENT KILL ID 9 ADDR 1.1.1.1:1 ID 8 6 ADDR 10.0.0.1:1", ":1"},
		{"CLIENT KILL ID 7 9", ":0"},
		{"CLIENT KILL ID 8 ADDR 1.1.1.1:1", ":0"},
		{"CLIENT KILL ID 8 0", "-ERR client-id should be greater than 0"},
		{"CLIENT KILL ID 8 -1", "-ERR client-id should be greater than 0"},
		{"CLIENT KILL ID 8 9 x", "-ERR syntax error"},
		{"CLIENT KILL ID x 8", "-ERR client-id should be greater than 0"},
		{"CLIENT KILL ADDR 10.0.0.1:1 8", "-ERR syntax error"},
		{"CLIENT KILL USER nosuch USER default", "-ERR No such user 'nosuch'"},
		{"CLIENT KILL LADDR 1.1.1.1:1", ":0"},
		{"CLIENT KILL 10.0.0.1:1", "+OK"},
	})
	if !slices.Equal(killed, []int64{8, 8, 8, 8, 8, 8}) || me.session.Closing() {
		t.Errorf("killed %v, closing %v", killed, me.session.Closing())
	}
	me.play([]step{{"CLIENT KILL ID 7 SKIPME no", ":1"}})
	if !me.session.Closing() || len(killed) != 6 {
		t.Error("killing itself is not left to the reply's end")
	}
}

func TestPauseAndShutdown(t *testing.T) {
	var until time.Time
	var writes bool
	var stopped []string
	srv := &Server{
		Pause: func(u time.Time, w bool) { until, writes = u, w },
		Shutdown: func(save, now bool) error {
			stopped = append(stopped, map[bool]string{true: "save"}[save]+map[bool]string{true: "now"}[now])
			return nil
		},
	}
	c := dial(t, newStore(t), srv)
	before := time.Now()
	c.play([]step{{"CLIENT PAUSE 60000 WRITE", "+OK"}})
	if d := until.Sub(before); !writes || d < time.Minute || until.After(time.Now().Add(time.Minute)) {
		t.Errorf("paused for %v, writes only %v", d, writes)
	}
	c.play([]step{{"CLIENT PAUSE 60000", "+OK"}})
	if writes {
		t.Error("PAUSE without a mode is WRITE")
	}
	c.play([]step{
		{"CLIENT PAUSE 9223300000000000000", "+OK"},
		{"CLIENT UNPAUSE", "+OK"},
		{"CLIENT PAUSE 9223372036854775807", "-ERR timeout is out of range"},
		{"CLIENT PAUSE 9223372036854775808", "-ERR timeout is not an integer or out of range"},
		{"SHUTDOWN NOSAVE NOW", ""},
	})
	if until.After(time.Now()) || !slices.Equal(stopped, []string{"now"}) || !c.session.Closing() {
		t.Errorf("until %v, stopped %v", until, stopped)
	}
	srv.Shutdown = func(bool, bool) error { return errors.New("cannot") }
	dial(t, c.p.round.st, srv).play([]step{{"SHUTDOWN", "-ERR Errors trying to SHUTDOWN. Check logs."}})
	dial(t, c.p.round.st,
		&Server{}).play([]step{{"CLIENT PAUSE 1", "-ERR CLIENT PAUSE is not supported here"}})
}

func TestConfig(t *testing.T) {
	settings := map[string]string{"maxclients": "10", "port": "6379", "dir": "/d"}
	var set [][2]string
	srv := &Server{
		ConfigGet: func(pattern string) (found [][2]string) {
			for _, name := range []string{"dir", "maxclients", "port"} {
				if Match([]byte(pattern), []byte(name)) {
					found = append(found, [2]string{name, settings[name]})
				}
			}
			return found
		},
		ConfigSet: func(pairs [][2]string) error {
			if pairs[0][0] == "port" {
				return &ConfigError{Name: "port", Reason: "can't set immutable config"}
			}
			set = pairs
			return nil
		},
	}
	c := dial(t, newStore(t), srv)
	c.play([]step{
		{"CONFIG GET *", `["dir" "/d" "maxclients" "10" "port" "6379"]`},
		{"CONFIG GET P* d?r PORT", `["port" "6379" "dir" "/d"]`},
		{"CONFIG GET nope", "[]"},
		{"CONFIG SET MaxClients 20 dir /e", "+OK"},
		{"CONFIG SET port 1", "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set " +
			"immutable config"},
		{"CONFIG SET nope 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'"},
		{"CONFIG SET po* 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'po*'"},
		{"CONFIG SET dir a dir b", "-ERR CONFIG SET failed (possibly related to argument 'dir') - " +
			"duplicate parameter"},
		{"CONFIG SET dir", "-ERR wrong number of arguments for 'config|set' command"},
		{"CONFIG SET dir a port", "-ERR syntax error"},
		{"CONFIG REWRITE", "-ERR The server is running without a config file"},
	})
	if want := [][2]string{{"maxclients", "20"}, {"dir", "/e"}}; !slices.Equal(set, want) {
		t.Errorf("set %v", set)
	}
}

// TestUsersChangeWhileClientsRun is for the race detector: rules change, users
// come and go, and nobody does what was forbidden all along.
func TestUsersChangeWhileClientsRun(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin := dial(t, st, srv)
	admin.play([]step{{"ACL SETUSER u on nopass +incr ~a*", "+OK"},
		{"ACL SETUSER gone on nopass +incr ~a*", "+OK"}})
	var clients []*client
	for i := range 4 {
		c := dial(t, st, srv)
		c.play([]step{{"AUTH " + []string{"u", "gone"}[i%2] + " x", "+OK"}})
		clients = append(clients, c)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := c.say("INCR b"); !strings.HasPrefix(got, "-NOPERM") {
					t.Errorf("INCR b: %s", got)
					return
				}
				c.say("INCR a1")
				c.say("SET a1 7")
			}
		})
	}
	for range 60 {
		admin.say("ACL SETUSER u -incr +set %R~b")
		admin.say("ACL SETUSER u reset on nopass +incr ~a*")
		admin.say("ACL SETUSER gone on nopass +incr ~a*")
		admin.say("ACL LIST")
		admin.say("ACL DELUSER gone")
		admin.say("ACL LOG")
	}
	close(stop)
	wg.Wait()
}
