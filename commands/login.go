package commands

import (
	"net/netip"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// How guessing passwords is slowed down. The reply to a failed login is held
// back, the longer the more logins from the same address failed of late; only
// the connection itself waits. One address has few such connections at a time,
// beyond which its logins are refused unseen, so it gets no more than a few
// guesses a second however many connections it opens. A right password is
// answered at once.
//
// Guessers must not lock others out. A user who has logged in from an address within
// the last hour is under no cap there, whoever else fails from it; the cap for all
// addresses together refuses only those that have failed of late. One user's login frees
// no other user of the address: otherwise anybody with an account could guess an
// administrator's password without a cap.
const (
	firstDelay    = 10 * time.Millisecond
	longestDelay  = 2 * time.Second
	forgiveness   = 10 * time.Second // halves an address' failures
	maxWaiting    = 16               // replies held back, for one address
	maxWaitingAll = 512              // and for all of them
	maxSources    = 4096             // addresses that failed and are remembered
	maxTrusted    = 4096             // and users of addresses that logged in
	trustTime     = time.Hour        // for which a user of an address is trusted after a login
	maxFailures   = 10               // of one connection, which is closed then
)

// loginGuard remembers where logins came from. The zero value is ready, and
// safe for concurrent use.
type loginGuard struct {
	mu      sync.Mutex
	sources map[string]*loginSource // that failed
	waiting int                     // of logins that are not trusted
	trusted map[origin]time.Time    // when the user last logged in from there
	swept   time.Time               // when those of an hour ago were last forgotten
}

// origin is a user at an address.
type origin struct{ source, user string }

// loginSource is one address.
type loginSource struct {
	failures int
	last     time.Time
	waiting  int
}

// sourceOf returns the address in "host:port", or as much of an IPv6 address as
// one customer usually has to himself.
func sourceOf(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}

// admits reports whether a login may be tried.
func (g *loginGuard) admits(o origin, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[o.source]
	if s == nil || g.trusts(o, now) {
		return true
	}
	return s.waiting < maxWaiting && (g.waiting < maxWaitingAll || s.decayed(now) == 0)
}

// trusts reports whether the user has logged in from there of late; g.mu is held.
func (g *loginGuard) trusts(o origin, now time.Time) bool {
	at, ok := g.trusted[o]
	return ok && now.Sub(at) < trustTime
}

// trust notes that a user has logged in with a password.
func (g *loginGuard) trust(o origin, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trusted == nil {
		g.trusted = map[origin]time.Time{}
	}
	if _, known := g.trusted[o]; !known && len(g.trusted) >= maxTrusted {
		g.distrust(now)
	}
	g.trusted[o] = now
}

// distrust makes room for another trusted user: those that are trusted no more
// go, or else any one. It looks at all of them at most once a second.
func (g *loginGuard) distrust(now time.Time) {
	if now.Sub(g.swept) >= time.Second {
		g.swept = now
		for o := range g.trusted {
			if !g.trusts(o, now) {
				delete(g.trusted, o)
			}
		}
	}
	for o := range g.trusted {
		if len(g.trusted) < maxTrusted {
			return
		}
		delete(g.trusted, o)
	}
}

// failed counts a failed login and returns for how long its reply is held
// back; done must be called then.
func (g *loginGuard) failed(o origin, now time.Time) (delay time.Duration, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[o.source]
	if s == nil {
		if len(g.sources) >= maxSources {
			g.forget(now)
		}
		s = &loginSource{last: now}
		if g.sources == nil {
			g.sources = map[string]*loginSource{}
		}
		g.sources[o.source] = s
	}
	s.failures = min(s.decayed(now)+1, 64)
	s.last = now
	all := 1
	if g.trusts(o, now) {
		all = 0
	}
	s.waiting++
	g.waiting += all
	delay = min(firstDelay<<min(s.failures-1, 16), longestDelay)
	return delay, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		s.waiting--
		g.waiting -= all
	}
}

// decayed returns how many failures still count.
func (s *loginSource) decayed(now time.Time) int {
	return s.failures >> min(max(now.Sub(s.last), 0)/forgiveness, 32)
}

// forget makes room for another address: the ones whose failures are forgiven
// go, or else any one, at first of those that wait for nothing.
func (g *loginGuard) forget(now time.Time) {
	for _, may := range []func(*loginSource) bool{
		func(s *loginSource) bool { return s.waiting == 0 && s.decayed(now) == 0 },
		func(s *loginSource) bool { return s.waiting == 0 && len(g.sources) >= maxSources },
		func(*loginSource) bool { return len(g.sources) >= maxSources },
	} {
		for source, s := range g.sources {
			if may(s) {
				delete(g.sources, source)
			}
		}
	}
}

// authenticate makes the client a user if the password is right, or returns
// the error to answer. A wrong one keeps the client waiting.
func (c *Context) authenticate(user, password []byte) error {
	from := origin{sourceOf(c.Session.Addr), string(user)}
	guard := &c.Server.logins
	if !guard.admits(from, time.Now()) {
		c.Session.closing.Store(true)
		return errTooManyLogins
	}
	if account, ok := c.Server.Users.Authenticate(string(user), password); ok {
		if !account.User().NoPass() { // else everyone could
			guard.trust(from, time.Now())
		}
		c.Session.login(account)
		return nil
	}
	if c.Session.failures++; c.Session.failures >= maxFailures {
		c.Session.closing.Store(true)
	}
	delay, done := guard.failed(from, time.Now())
	defer done()
	if c.tx.solo {
		c.Session.lastCmd.Store(c.table.named("exec"))
	}
	c.Server.logDenial(c.Session, c.tx.solo, acl.DeniedAuth, string(c.Args[0]), string(user))
	if c.Server.LoginFailed != nil {
		c.Server.LoginFailed(c.Session, string(user))
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Server.Stopping:
	}
	return errWrongPass
}
