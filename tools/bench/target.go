package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Target is a server and how to log in. The zero value is the usual port of
// this machine.
type Target struct {
	URL      string // redis://[user:password@]host[:port], or rediss:// for TLS
	Insecure bool   // trust any certificate

	user     string
	password string
	address  string
	tls      *tls.Config // nil without TLS
}

const dialTimeout = 5 * time.Second

// resolve reads the URL and the certificates.
func (t *Target) resolve() error {
	text := t.URL
	if text == "" {
		text = "127.0.0.1:6379"
	}
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "redis" && u.Scheme != "rediss" {
		return fmt.Errorf("%q is no address such as 127.0.0.1:6379, redis://user:password@host:6379 or rediss://host:6379", t.URL)
	}
	t.address = u.Host
	if u.Port() == "" {
		t.address = net.JoinHostPort(u.Hostname(), "6379")
	}
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	if u.Scheme == "rediss" {
		t.tls = &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: t.Insecure}
	}
	return nil
}

// silence is done once the client library is told to log nothing.
var silence sync.Once

// client returns a client for what is asked before and after the load.
func (t *Target) client() *redis.Client {
	// What it would log, each failed dial, is also in the errors that it returns.
	silence.Do(logging.Disable)
	return redis.NewClient(&redis.Options{
		Addr: t.address, Username: t.user, Password: t.password, TLSConfig: t.tls, Protocol: 2,
		DialTimeout: dialTimeout, ReadTimeout: time.Minute, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
	})
}

// dial connects and logs in.
func (t *Target) dial(ctx context.Context) (net.Conn, error) {
	var nc net.Conn
	var err error
	if d := (&net.Dialer{Timeout: dialTimeout}); t.tls == nil {
		nc, err = d.DialContext(ctx, "tcp", t.address)
	} else {
		nc, err = (&tls.Dialer{NetDialer: d, Config: t.tls}).DialContext(ctx, "tcp", t.address)
	}
	if err != nil {
		return nil, err
	}
	if err := t.logIn(nc); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// errLogIn wraps a refusal, which waiting does not mend.
var errLogIn = errors.New("AUTH was refused")

// logIn sends AUTH if there is a password.
func (t *Target) logIn(nc net.Conn) error {
	if t.password == "" {
		return nil
	}
	var e encoder
	if t.user == "" {
		e.begin(2)
		e.arg("AUTH")
	} else {
		e.begin(3)
		e.arg("AUTH")
		e.arg(t.user)
	}
	e.arg(t.password)
	nc.SetDeadline(time.Now().Add(dialTimeout))
	if _, err := nc.Write(e.bytes); err != nil {
		return err
	}
	line, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+OK") {
		return fmt.Errorf("%w: %s", errLogIn, strings.TrimSpace(strings.TrimPrefix(line, "-")))
	}
	return nc.SetDeadline(time.Time{})
}
