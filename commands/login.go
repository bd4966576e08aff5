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
const (
	firstDelay    = 10 * time.Millisecond
	longestDelay  = 2 * time.Second
	forgiveness   = 10 * time.Second // halves an address' failures
	maxWaiting    = 16               // replies held back, for one address
	maxWaitingAll = 512              // and for all of them
	maxSources    = 4096             // addresses remembered
	maxFailures   = 10               // of one connection, which is closed then
)

// loginGuard remembers where failed logins came from. The zero value is ready,
// and safe for concurrent use.
type loginGuard struct {
	mu      sync.Mutex
	sources map[string]*loginSource
	waiting int
}

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

// admits reports whether a login from a source may be tried.
func (g *loginGuard) admits(source string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[source]
	return g.waiting < maxWaitingAll && (s == nil || s.waiting < maxWaiting)
}

// failed counts a failed login and returns for how long its reply is held
// back; done must be called then.
func (g *loginGuard) failed(source string, now time.Time) (delay time.Duration, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[source]
	if s == nil {
		if len(g.sources) >= maxSources {
			g.forget(now)
		}
		s = &loginSource{last: now}
		if g.sources == nil {
			g.sources = map[string]*loginSource{}
		}
		g.sources[source] = s
	}
	s.failures = min(s.decayed(now)+1, 64)
	s.last = now
	s.waiting++
	g.waiting++
	delay = min(firstDelay<<min(s.failures-1, 16), longestDelay)
	return delay, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		s.waiting--
		g.waiting--
	}
}

// decayed returns how many failures still count.
func (s *loginSource) decayed(now time.Time) int {
	return s.failures >> min(max(now.Sub(s.last), 0)/forgiveness, 32)
}

// forget makes room for another address: of those that wait for nothing the
// ones whose failures are forgiven go, or else any one.
func (g *loginGuard) forget(now time.Time) {
	for source, s := range g.sources {
		if s.waiting == 0 && s.decayed(now) == 0 {
			delete(g.sources, source)
		}
	}
	for source, s := range g.sources {
		if len(g.sources) < maxSources {
			return
		}
		if s.waiting == 0 {
			delete(g.sources, source)
		}
	}
}

// authenticate makes the client a user if the password is right, or returns
// the error to answer. A wrong one keeps the client waiting.
func (c *Context) authenticate(user, password []byte) error {
	source := sourceOf(c.Session.Addr)
	guard := &c.Server.logins
	if !guard.admits(source) {
		c.Session.closing.Store(true)
		return errTooManyLogins
	}
	if account, ok := c.Server.Users.Authenticate(string(user), password); ok {
		c.Session.login(account)
		return nil
	}
	if c.Session.failures++; c.Session.failures >= maxFailures {
		c.Session.closing.Store(true)
	}
	delay, done := guard.failed(source, time.Now())
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

// doAuth is AUTH [username] password.
func doAuth(c *Context) {
	user, password := []byte(acl.Default), c.Args[1]
	switch {
	case len(c.Args) > 3:
		c.fail(errSyntax)
		return
	case len(c.Args) == 3:
		user, password = c.Args[1], c.Args[2]
	case c.Server.Users.Default().User().NoPass():
		c.fail(errNoPassword)
		return
	}
	c.ok(c.authenticate(user, password))
}
