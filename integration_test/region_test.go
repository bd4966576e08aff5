package integration

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// region runs `fbfkv region` without asking and expects its exit status and a text in what it
// prints; of status, and of a command that has little patience, in the end.
func region(t testing.TB, code int, want string, args ...string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		out, got := fbfkv(t, append([]string{"region", args[0], "--yes"}, args[1:]...)...)
		if got == code && strings.Contains(out, want) {
			return out
		}
		if args[0] != "status" && !slices.Contains(args, "--patience") || time.Now().After(end) {
			t.Fatalf("fbfkv region %s: exit status %d, want %d with %q:\n%s", strings.Join(args, " "), got,
				code, want, out)
		}
	}
}

// TestRegionCommand is an operator's day with three regions.
func TestRegionCommand(t *testing.T) {
	t.Parallel()
	var all []*server
	for range 3 {
		all = append(all, startServer(t, "--port", fmt.Sprint(freePorts(t, 1)), "--region-retention", "3600"))
	}
	eu, us, ap := all[0].address(), all[1].address(), all[2].address()
	region(t, 1, "is not a region: fbfkv region create", "status", eu)
	region(t, 1, "is not a region: fbfkv region create", "join", us, "us", eu)
	if out := region(t, 1, "the name of a region is", "create", eu, "e u"); strings.Contains(out, "becomes") {
		t.Errorf("a plan that cannot be:\n%s", out)
	}
	unasked := exec.Command(program, "region", "create", eu, "eu")
	unasked.Stdin = strings.NewReader("y\n")
	if out, err := unasked.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "nothing was done") {
		t.Errorf("not confirmed: %v\n%s", err, out)
	}
	region(t, 0, "is the region eu", "create", eu, "eu")
	region(t, 0, "is the region eu already", "create", eu, "eu")
	counted := func(want, key string) {
		t.Helper()
		for _, s := range all {
			eventually(t, patience, s.address()+" shows the sum", func() bool {
				out, _ := redisAsk(s, "GET", key)
				return out == want
			})
		}
	}
	count := func(i int, key, id string) {
		t.Helper()
		eventually(t, patience, "the region counts", func() bool {
			_, err := redisAsk(all[i], "CINCRBY", key, id, 1)
			if err != nil && !strings.HasPrefix(err.Error(), "TRYAGAIN") {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	count(0, "k", "a")
	count(2, "k", "b")
	region(t, 0, "has caught up with eu", "join", us, "us", eu)
	if out := region(t, 1, "another server is the region us", "join", ap, "us", eu); strings.Contains(out,
		"becomes") {
		t.Errorf("a plan that cannot be:\n%s", out)
	}
	open := startServer(t, "--port", fmt.Sprint(freePorts(t, 1)), "--bind", "0.0.0.0", "--protected-mode",
		"no")
	region(t, 1, "must let only other regions read it", "join", open.address(), "open", eu)
	region(t, 0, "does not read eu any more", "pause", us, "eu")
	if out := region(t, 1, "us has paused eu: fbfkv region resume "+us+" eu", "join", ap, "ap",
		eu); strings.Contains(out, "becomes") {
		t.Errorf("a plan that cannot be:\n%s", out)
	}
	region(t, 0, "reads eu", "resume", us, "eu")
	all[1].kill()
	region(t, 1, "eu does not read us at "+us, "join", ap, "ap", eu, "--patience", "1s")
	all[1].start()
	region(t, 0, "one of 2, version 2", "status", us)    // it was not admitted
	region(t, 0, "It has 1 key: ", "join", ap, "ap", us) // which says to ask eu
	counted("2", "k")
	region(t, 0, "has caught up with us", "join", ap, "ap", us) // as if it had been interrupted
	region(t, 1, "is the region ap already", "join", ap, "other", eu)
	for _, s := range all {
		region(t, 0, "one of 3, version 3 of the set; eu admits", "status", s.address())
	}

	region(t, 0, "does not read eu any more", "pause", us, "eu")
	region(t, 1, "eu is not read until fbfkv region resume", "status", us)
	region(t, 0, "reads eu", "resume", us, "eu")
	region(t, 1, `there is no region "nobody"`, "pause", us, "nobody")
	all[0].kill()
	region(t, 1, "eu cannot be read at "+eu, "status", us)
	region(t, 1, "everything compared agrees; not everything could be compared with eu", "verify", us)
	if out := region(t, 1, "it cannot be asked from here", "join", us, "us", ap); strings.Contains(out,
		"ASK") {
		t.Errorf("it shows what programs tell each other:\n%s", out)
	}
	count(1, "l", "c")
	count(2, "l", "c") // a retry elsewhere
	all[0].start()
	count(0, "l", "d")
	counted("2", "l")
	for _, s := range all {
		region(t, 0, "reading", "status", s.address())
	}

	region(t, 0, "the regions agree", "verify", us)
	all[0].args[1] = fmt.Sprint(freePorts(t, 1))
	all[0].restart()
	region(t, 1, "eu cannot be read", "status", us)
	region(t, 0, "ap: knows that the region eu is at "+all[0].address(), "create", all[0].address(), "eu")
	for _, s := range all {
		region(t, 0, "reading", "status", s.address())
	}
	regionsEnd(t, all)
}

// TestRegionTables: an operator is told by name of the table that a region lacks, when it joins and
// by status, until it is there.
func TestRegionTables(t *testing.T) {
	t.Parallel()
	eu, us := startServer(t, "--port", fmt.Sprint(freePorts(t, 1))),
		startServer(t, "--port", fmt.Sprint(freePorts(t, 1)))
	create := func(s *server) {
		t.Helper()
		if _, err := redisAsk(s, "CTABLE", "CREATE", "votes", "PREFIX", "vote:", "WINDOW",
			"10s"); err != nil {
			t.Fatal(err)
		}
	}
	create(eu)
	region(t, 0, "is the region eu", "create", eu.address(), "eu")
	const ill = "eu has a table votes and us has not: CTABLE CREATE votes PREFIX vote: WINDOW 10s in us, " +
		"or CTABLE DROP votes in eu"
	if out := region(t, 0, ill, "join", us.address(), "us", eu.address()); !strings.Contains(out,
		"has caught up with eu") {
		t.Errorf("it has not caught up because of a table:\n%s", out)
	}
	for _, s := range []*server{eu, us} {
		region(t, 1, ill, "status", s.address())
	}
	if info, err := redisAsk(us, "INFO", "regions"); err != nil ||
		!strings.Contains(info, "region_ills:1\r\n") {
		t.Error(info, err)
	}
	create(us)
	region(t, 0, "one of 2", "status", us.address())
	region(t, 0, "does not read us any more", "pause", eu.address(), "us")
	region(t, 0, "reads us", "resume", eu.address(), "us") // it asks again, before the minute is over
	region(t, 0, "one of 2", "status", eu.address())
}

// regionsEnd flushes three regions while one is away, and loses two of them, one after the other.
func regionsEnd(t *testing.T, all []*server) {
	eu, us, ap := all[0].address(), all[1].address(), all[2].address()
	shows := func(s *server, want, key string) {
		t.Helper()
		eventually(t, patience, s.address()+" shows "+want, func() bool {
			out, _ := redisAsk(s, "GET", key)
			return out == want
		})
	}
	count := func(s *server, id string) {
		t.Helper()
		if _, err := redisAsk(s, "CINCRBY", "k", id, 1); err != nil {
			t.Fatal(err)
		}
	}
	all[2].kill()
	region(t, 1, "ap cannot be read", "status", eu)
	unasked := exec.Command(program, "region", "flush", us)
	if out, err := unasked.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "Every key is deleted in all regions, for good: ap, eu, us.") {
		t.Errorf("not confirmed: %v\n%s", err, out)
	}
	shows(all[0], "2", "k")
	out := region(t, 0, "eu: has deleted every key; era 1 begins", "flush", us)
	for _, want := range []string{"us: has deleted every key", "ap: cannot be read by eu now"} {
		if !strings.Contains(out, want) {
			t.Errorf("the flush does not say %q:\n%s", want, out)
		}
	}
	for _, s := range all[:2] {
		if n, err := redisAsk(s, "DBSIZE"); n != "0" {
			t.Errorf("%s keys, %v", n, err)
		}
	}
	all[2].start()
	region(t, 0, "era 1: all regions were flushed 1 time", "status", ap)
	shows(all[2], "<nil>", "k")
	for i, s := range all {
		count(s, fmt.Sprint("op", i))
	}
	for _, s := range all {
		shows(s, "3", "k")
	}

	all[2].kill()
	region(t, 1, "remove HOST:PORT NAME [NAME ...] --heir NAME", "remove", eu)
	region(t, 1, "--heir is missing", "remove", us, "ap")
	region(t, 1, "the region us itself", "remove", us, "us", "--heir", "eu")
	region(t, 1, "remove it as well, if it is lost; or remove it at once with --lost", "remove", eu, "us",
		"--heir", "eu")
	region(t, 1, `there is no region "nobody" to be the heir`, "remove", us, "ap", "--heir", "nobody")
	if out := region(t, 1, `there is no region "nobody"`, "remove", us, "ap", "nobody", "--heir",
		"us"); strings.Contains(out, "for ever") {
		t.Errorf("a plan that cannot be:\n%s", out)
	}
	doubted := exec.Command(program, "region", "remove", us, "eu", "--heir", "ap", "--lost")
	if out, err := doubted.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "The heir ap is not read by us now (failing).") {
		t.Errorf("nobody is told that the heir is away: %v\n%s", err, out)
	}
	region(t, 0, "eu: looks after the counts of ap", "remove", us, "ap", "--heir", "eu")
	for _, s := range all[:2] {
		region(t, 0, "ap (number 2) was removed; its heir eu", "status", s.address())
		count(s, "op2") // a retry of what ap has done
		shows(s, "3", "k")
	}
	region(t, 1, "and its heir is eu", "remove", us, "ap", "--heir", "us")
	if shares, err := redisAsk(all[1], "CGET", "k", "REGIONS"); shares != "map[ap#2:1 eu:1 us:1]" {
		t.Errorf("shares %s, %v", shares, err)
	}
	all[2].start()
	refusesWrites(t, "the other regions have removed this one", all[2])
	shows(all[2], "3", "k")
	region(t, 1, "removed by version 6 of the set", "status", ap)
	region(t, 1, "the other regions have removed this one", "create", ap, "ap")
	region(t, 1, "the other regions have removed this one", "verify", ap)
	all[2].kill()
	all[0].kill()
	region(t, 1, "it cannot be asked from here", "flush", us)
	// ap has lost its heir
	region(t, 0, "us: looks after the counts of eu", "remove", us, "eu", "ap", "--heir", "us")
	region(t, 0, "one of 1", "status", us, "--acknowledge")
	count(all[1], "op0")
	shows(all[1], "3", "k")
	region(t, 0, "us: has deleted every key; era 2 begins", "flush", us)
	shows(all[1], "<nil>", "k")
}

// TestRegionLeaves: a region is removed while one of the others takes nothing of it. It refuses
// writes until that has taken all; if that does not come in time, it takes writes again and nothing
// is removed.
func TestRegionLeaves(t *testing.T) {
	t.Parallel()
	eu, us := startServer(t, "--port", fmt.Sprint(freePorts(t, 1))),
		startServer(t, "--port", fmt.Sprint(freePorts(t, 1)))
	link, mute, stuck := startRelay(t, us), false, false
	link.set(func(p *relay) {
		p.answer = func(args []string) string {
			if mute && args[0] == "REGION.PULL" {
				stuck = true
				return "$1000000\r\n" // and only what was under way follows
			}
			return ""
		}
	})
	at := link.Addr().String()
	region(t, 0, "is the region eu", "create", eu.address(), "eu")
	region(t, 0, "has caught up with eu", "join", at, "us", eu.address())
	counted := 0
	count := func() (err error) {
		if _, err = redisAsk(us, "CINCRBY", "k", fmt.Sprint("op", counted), 1); err == nil {
			counted++
		}
		return err
	}
	shows := func() string {
		out, _ := redisAsk(eu, "GET", "k")
		return out
	}
	link.set(func(*relay) { mute = true })
	eventually(t, patience, "what was asked before is answered", func() (is bool) {
		link.set(func(*relay) { is = stuck }) // then eu gets nothing more
		if err := count(); err != nil {
			t.Fatal(err)
		}
		return is && shows() != fmt.Sprint(counted)
	})
	remove := []string{"remove", eu.address(), "us", "--heir", "eu"}
	out := region(t, 1, "us: takes writes again", append(remove, "--patience", "200ms")...)
	for _, want := range []string{
		"The region us refuses writes from now on, and is removed when the others have all its operations.",
		"nothing was removed: eu still lacks ", "--lost",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if err := count(); err != nil {
		t.Error(err)
	}
	done := make(chan string)
	go func() { done <- region(t, 0, "eu: looks after the counts of us", remove...) }()
	refusesWrites(t, "this region is being removed", us)
	region(t, 1, "this region is being removed", "status", at)
	link.set(func(p *relay) {
		mute = false
		for _, c := range p.clients {
			c.Close()
		}
	})
	<-done
	if got := shows(); got != fmt.Sprint(counted) {
		t.Errorf("%s in all, and %d were acknowledged", got, counted)
	}
}

// refusesWrites waits until servers refuse what clients write, with a text.
func refusesWrites(t testing.TB, want string, all ...*server) {
	t.Helper()
	for _, s := range all {
		eventually(t, patience, s.address()+" refuses writes", func() bool {
			for i := range 24 { // in a cluster other keys are another node's
				if _, err := redisAsk(s, "INCR", fmt.Sprint("both", i)); err != nil &&
					strings.HasPrefix(err.Error(), "READONLY nothing was applied: "+want) {
					return true
				}
			}
			return false
		})
	}
}
