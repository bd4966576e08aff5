package commands

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
		delay, done := g.failed(origin{source: "a"}, now)
		done()
		if delay < last || delay < firstDelay || delay > longestDelay {
			t.Errorf("failure %d is held back for %v after %v", i, delay, last)
		}
		last = delay
	}
	if last != longestDelay {
		t.Errorf("the longest delay is %v", last)
	}
	if delay, done := g.failed(origin{source: "b"}, now); delay != firstDelay {
		t.Errorf("another address waits %v", delay)
	} else {
		done()
	}
	if delay, done := g.failed(origin{source: "a"}, now.Add(time.Hour)); delay != firstDelay {
		t.Errorf("an hour later: %v", delay)
	} else {
		done()
	}
	for i := range maxSources + 300 {
		_, done := g.failed(origin{source: fmt.Sprint(i)}, now)
		done()
	}
	if len(g.sources) > maxSources {
		t.Errorf("%d addresses are remembered", len(g.sources))
	}
}

// TestLoginWaitersAreBounded: an address cannot have more unanswered failures than its share, and
// none more once all of them together have theirs. A first failure is always heard.
func TestLoginWaitersAreBounded(t *testing.T) {
	var g loginGuard
	now := time.Now()
	var done []func()
	fail := func(name string) (n int) {
		for g.admits(origin{source: name}, now) {
			_, d := g.failed(origin{source: name}, now)
			done = append(done, d)
			n++
		}
		return n
	}
	_, forgiven := g.failed(origin{source: "old"}, now.Add(-time.Minute))
	forgiven()
	for source := 0; g.waiting < maxWaitingAll; source++ {
		if n := fail(fmt.Sprint(source)); n > maxWaiting {
			t.Fatalf("%d wait of one address", n)
		}
	}
	if n := fail("0"); n != 0 {
		t.Errorf("an address fails %d times more", n)
	}
	if n := fail("old"); n != 1 {
		t.Errorf("an address that failed a minute ago fails %d times", n)
	}
	if n := fail("new"); n != 1 {
		t.Errorf("a new address fails %d times", n)
	}
	for _, d := range done {
		d()
	}
	if !g.admits(origin{source: "0"}, now) || g.waiting != 0 {
		t.Error("who waited still counts")
	}
}

// TestLoginGuardIsBounded: it remembers so many addresses and no more, also while all of them wait.
func TestLoginGuardIsBounded(t *testing.T) {
	var g loginGuard
	now := time.Now()
	var done []func()
	for i := range maxSources + 300 {
		_, d := g.failed(origin{source: fmt.Sprint(i)}, now)
		done = append(done, d)
		g.trust(origin{source: fmt.Sprint(i)}, now)
	}
	if len(g.sources) > maxSources || len(g.trusted) > maxTrusted {
		t.Errorf("%d and %d addresses are remembered", len(g.sources), len(g.trusted))
	}
	for _, d := range done {
		d()
	}
	if g.waiting != 0 {
		t.Errorf("%d wait for ever", g.waiting)
	}
	g.trust(origin{source: "new"}, now.Add(trustTime))
	if len(g.trusted) != 1 {
		t.Errorf("%d addresses are remembered after an hour", len(g.trusted))
	}
}

// TestGuessersLockNobodyOut plays logins with right passwords, while others guess as fast as the
// server lets them: from 40 other addresses, and from behind the same address translation.
func TestGuessersLockNobodyOut(t *testing.T) {
	st := newStore(t)
	for _, tt := range []struct {
		name      string
		guessers  func(i int) string // the address of connection i of 640
		before    string             // a login from 10.0.0.1 before they begin, at some time
		ago       time.Duration
		from, got string // how one is answered that comes while they wait
	}{
		{"an address that never failed", func(i int) string { return fmt.Sprintf("192.0.2.%d:1", i%40) }, "",
			0, "10.0.0.1:1", "+OK"},
		{"one of those that guess", func(i int) string { return fmt.Sprintf("192.0.2.%d:1", i%40) }, "", 0,
			"192.0.2.7:2", "-" + errTooManyLogins.Error()},
		{"behind one address, known", func(int) string { return "10.0.0.1:1" }, "AUTH secret",
			59 * time.Minute, "10.0.0.1:2", "+OK"},
		{"behind one address, known long ago", func(int) string { return "10.0.0.1:1" }, "AUTH secret",
			61 * time.Minute, "10.0.0.1:2", "-" + errTooManyLogins.Error()},
		{"behind one address, unknown", func(int) string { return "10.0.0.1:1" }, "", 0, "10.0.0.1:2", "-" +
			errTooManyLogins.Error()},
		{"behind one address, by a user without password", func(int) string { return "10.0.0.1:1" },
			"AUTH guest x", 0, "10.0.0.1:2",
			"-" + errTooManyLogins.Error()},
		{"behind one address, known by another user", func(int) string { return "10.0.0.1:1" },
			"AUTH other theirs", 0, "10.0.0.1:2",
			"-" + errTooManyLogins.Error()},
		{"known, and everybody guesses", func(i int) string { return fmt.Sprintf("10.0.0.%d:1", i%40) },
			"AUTH secret", time.Minute, "10.0.0.1:2", "+OK"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := secured()
				if err := srv.Users.Set("guest", []string{"on", "nopass"}); err != nil {
					t.Fatal(err)
				}
				if err := srv.Users.Set("other", []string{"on", ">theirs"}); err != nil {
					t.Fatal(err)
				}
				from := func(addr string) *client {
					c := dial(t, st, srv)
					c.session.Addr = addr
					return c
				}
				if tt.before != "" {
					from("10.0.0.1:1").play([]step{{tt.before, "+OK"}})
				}
				time.Sleep(tt.ago)
				var guessers sync.WaitGroup
				for i := range 640 {
					c := from(tt.guessers(i))
					guessers.Go(func() { c.say("AUTH nope") })
				}
				synctest.Wait()
				from(tt.from).play([]step{{"AUTH secret", tt.got}})
				guessers.Wait()
			})
		})
	}
}

// TestLoginWithoutPassword: a login that needed no password says nothing of an address, not even
// when the user has a password soon after.
func TestLoginWithoutPassword(t *testing.T) {
	st := newStore(t)
	synctest.Test(t, func(t *testing.T) {
		srv := secured()
		from := func() *client {
			c := dial(t, st, srv)
			c.session.Addr = "10.0.0.1:1"
			return c
		}
		if err := srv.Users.Set("guest", []string{"on", "nopass"}); err != nil {
			t.Fatal(err)
		}
		from().play([]step{{"AUTH guest x", "+OK"}})
		if err := srv.Users.Set("guest", []string{"resetpass", ">secret"}); err != nil {
			t.Fatal(err)
		}
		var guessers sync.WaitGroup
		for range 640 {
			c := from()
			guessers.Go(func() { c.say("AUTH guest nope") })
		}
		synctest.Wait()
		from().play([]step{{"AUTH guest secret", "-" + errTooManyLogins.Error()}})
		guessers.Wait()
	})
}

// TestSourceOf: one customer's addresses count as one.
func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7", "[::ffff:192.0.2.7]:1": "192.0.2.7",
		"[2001:db8:1:2:3::4]:9": "2001:db8:1:2::/64",
		"":                      "", "odd": "odd",
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
	c.play([]step{{"AUTH nope", wrong}, {"AUTH off secret", wrong}, {"AUTH nobody secret", wrong},
		{"HELLO 3 AUTH default x", wrong},
		{"AUTH a b c", "-ERR syntax error"}})
	if fmt.Sprint(told) != "[default off nobody default]" {
		t.Errorf("told of %q", told)
	}
	entries := srv.ACLLog.Latest(10)
	if len(entries) != 4 || entries[0].Reason != acl.DeniedAuth || entries[0].Object != "HELLO" ||
		entries[1].User != "nobody" {
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
	st := newStore(t)
	synctest.Test(t, func(t *testing.T) {
		srv := secured()
		for range 6 {
			_, done := srv.logins.failed(origin{source: "127.0.0.1"}, time.Now())
			done()
		}
		slow, other := dial(t, st, srv), dial(t, st, srv)
		slow.session.Addr = "127.0.0.1:5"
		start, answered := time.Now(), make(chan time.Duration, 1)
		go func() {
			slow.say("AUTH nope")
			answered <- time.Since(start)
		}()
		synctest.Wait()
		other.play([]step{{"AUTH secret", "+OK"}})
		if took := time.Since(start); took != 0 {
			t.Errorf("another client's login took %v", took)
		}
		if took := <-answered; took != firstDelay<<6 {
			t.Errorf("a wrong password was answered after %v", took)
		}
	})
}
