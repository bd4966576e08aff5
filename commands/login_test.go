package commands

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// TestLoginDelays: a wrong password is answered late, and the later the more
// there were from the same address; time forgives.
func TestLoginDelays(t *testing.T) {
	var g loginGuard
	now := time.Unix(1000, 0)
	var last time.Duration
	for i := range 20 {
		delay, done := g.failed("a", now)
		done()
		if delay < last || delay < firstDelay || delay > longestDelay {
			t.Errorf("failure %d is held back for %v after %v", i, delay, last)
		}
		last = delay
	}
	if last != longestDelay {
		t.Errorf("the longest delay is %v", last)
	}
	if delay, done := g.failed("b", now); delay != firstDelay {
		t.Errorf("another address waits %v", delay)
	} else {
		done()
	}
	if delay, done := g.failed("a", now.Add(time.Hour)); delay != firstDelay {
		t.Errorf("an hour later: %v", delay)
	} else {
		done()
	}
	for i := range 3 * maxSources {
		_, done := g.failed(fmt.Sprint(i), now)
		done()
	}
	if len(g.sources) > maxSources {
		t.Errorf("%d addresses are remembered", len(g.sources))
	}
}

// TestLoginWaitersAreBounded: an address cannot have more unanswered failures
// than its share, nor all of them more than theirs.
func TestLoginWaitersAreBounded(t *testing.T) {
	var g loginGuard
	now := time.Now()
	var done []func()
	for source := 0; ; source++ {
		name, before := fmt.Sprint(source), len(done)
		for g.admits(name) {
			_, d := g.failed(name, now)
			done = append(done, d)
		}
		if n := len(done) - before; n > maxWaiting {
			t.Fatalf("%d wait of one address", n)
		}
		if len(done) == before {
			break
		}
	}
	if len(done) != maxWaitingAll {
		t.Errorf("%d wait", len(done))
	}
	for _, d := range done {
		d()
	}
	if !g.admits("0") || g.waiting != 0 {
		t.Error("who waited still counts")
	}
}

// TestSourceOf: one customer's addresses count as one.
func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7", "[::ffff:192.0.2.7]:1": "192.0.2.7", "[2001:db8:1:2:3::4]:9": "2001:db8:1:2::/64",
		"": "", "odd": "odd",
	} {
		if got := sourceOf(addr); got != want {
			t.Errorf("%q counts as %q, want %q", addr, got, want)
		}
	}
}

// TestFailedLogins: the client is told the same whatever was wrong, the server
// hears of it, ACL LOG has it, and who fails too often is disconnected.
func TestFailedLogins(t *testing.T) {
	srv := secured()
	stop := make(chan struct{})
	close(stop) // a server that stops waits for nobody
	srv.Stopping = stop
	var told []string
	srv.LoginFailed = func(_ *Session, user string) { told = append(told, user) }
	if err := srv.Users.Set("off", []string{">secret"}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, newStore(t), srv)
	wrong := "-" + errWrongPass.Error()
	c.play([]step{{"AUTH nope", wrong}, {"AUTH off secret", wrong}, {"AUTH nobody secret", wrong}, {"HELLO 3 AUTH default x", wrong},
		{"AUTH a b c", "-ERR syntax error"}})
	if fmt.Sprint(told) != "[default off nobody default]" {
		t.Errorf("told of %q", told)
	}
	entries := srv.ACLLog.Latest(10)
	if len(entries) != 4 || entries[0].Reason != acl.DeniedAuth || entries[0].Object != "HELLO" || entries[1].User != "nobody" {
		t.Errorf("ACL LOG: %+v", entries)
	}
	for _, e := range entries {
		if strings.Contains(fmt.Sprint(e), "secret") || strings.Contains(fmt.Sprint(e), "nope") {
			t.Errorf("ACL LOG shows a password: %+v", e)
		}
	}
	for i := len(told); i < maxFailures; i++ {
		if c.session.Closing() {
			t.Fatalf("disconnected after %d failures", i)
		}
		c.play([]step{{"AUTH nope", wrong}})
	}
	if !c.session.Closing() {
		t.Errorf("connected after %d failures", maxFailures)
	}
}

// TestFailedLoginWaits: the reply comes after the delay, and others do not wait
// for it.
func TestFailedLoginWaits(t *testing.T) {
	srv := secured()
	st := newStore(t)
	for range 6 {
		_, done := srv.logins.failed("127.0.0.1", time.Now())
		done()
	}
	slow, other := dial(t, st, srv), dial(t, st, srv)
	slow.session.Addr = "127.0.0.1:5"
	answered := make(chan time.Duration)
	start := time.Now()
	go func() {
		slow.say("AUTH nope")
		answered <- time.Since(start)
	}()
	other.play([]step{{"AUTH secret", "+OK"}})
	if took := time.Since(start); took > firstDelay<<6 {
		t.Errorf("another client's login took %v", took)
	}
	if took := <-answered; took < firstDelay<<6 {
		t.Errorf("a wrong password was answered after %v", took)
	}
}

// TestUsersChangeWhileClientsRun is for the race detector: rules change, users
// come and go, and nobody does what was forbidden all along.
func TestUsersChangeWhileClientsRun(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin := dial(t, st, srv)
	admin.play([]step{{"ACL SETUSER u on nopass +incr ~a*", "+OK"}, {"ACL SETUSER gone on nopass +incr ~a*", "+OK"}})
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
