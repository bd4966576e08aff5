// Package connect makes the connections of subcommands that talk to servers: which
// server a flag or an argument of theirs says, how to log in and TLS are flags here.
package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

// PasswordVariable is where redis-cli looks for a password, too.
const PasswordVariable = "REDISCLI_AUTH"

// Usage is the part of a usage line that shows the flags.
const Usage = "[--user NAME] [--requirepass PASSWORD] [--tls [--cacert F] [--cert F --key F]]"

// Flags say how to log in to a server and how to use TLS.
type Flags struct {
	user, password string
	tls            bool
	ca, cert, key  string // paths
}

// Add declares the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.user, "user", "", "the user to log in as (default: the user default)")
	flags.StringVar(&f.password, "requirepass", os.Getenv(PasswordVariable), "the user's password")
	flags.Lookup("requirepass").DefValue = "" // the help shows no password
	flags.BoolVar(&f.tls, "tls", false, "connect with TLS")
	flags.StringVar(&f.ca, "cacert", "", "the authority that signed the server's certificate, in PEM (default: the system's)")
	flags.StringVar(&f.cert, "cert", "", "the certificate to show, in PEM")
	flags.StringVar(&f.key, "key", "", "its private key, in PEM")
}

// TLS reports whether connections use TLS.
func (f *Flags) TLS() bool { return f.tls }

// Client returns a client of the server at HOST:PORT. It never sends a
// command twice, and waits for a reply for at most timeout; -1: as long as it takes.
func (f *Flags) Client(addr string, timeout time.Duration) (*redis.Client, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not HOST:PORT", addr)
	}
	if f.user != "" && f.password == "" {
		return nil, errors.New("--user needs a password: set " + PasswordVariable)
	}
	o := &redis.Options{Addr: addr, Username: f.user, Password: f.password}
	if f.tls {
		o.TLSConfig = &tls.Config{ServerName: host}
	}
	return f.open(o, timeout)
}

// FromURL is Client for a server that a URL names, with its user, password and
// database: redis://user:password@host:port/0, or rediss:// for TLS. The flags of the
// certificates apply to it too. No error contains the password.
func (f *Flags) FromURL(text string, timeout time.Duration) (*redis.Client, error) {
	o, err := redis.ParseURL(text)
	if err != nil {
		const want = "the source is no URL such as redis://user:password@host:6379/0"
		if bad := new(url.Error); errors.As(err, &bad) {
			return nil, errors.New(want) // what is bad may be a piece of the password
		}
		return nil, fmt.Errorf("%s: %w", want, err)
	}
	return f.open(o, timeout)
}

// open adds what all connections have in common.
func (f *Flags) open(o *redis.Options, timeout time.Duration) (*redis.Client, error) {
	o.PoolSize, o.MaxRetries, o.DialerRetries, o.ConnMaxIdleTime = 2, -1, 1, -1
	o.ReadTimeout, o.WriteTimeout, o.DisableIdentity = timeout, timeout, true
	if o.TLSConfig != nil {
		if err := f.certificates(o.TLSConfig); err != nil {
			return nil, err
		}
	}
	redis.SetLogger(quiet{}) // its user gets the error
	return redis.NewClient(o), nil
}

// certificates reads the files of the TLS flags.
func (f *Flags) certificates(c *tls.Config) error {
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--cacert %s: it contains no certificate", f.ca)
		}
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("--cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// quiet drops what go-redis would print.
type quiet struct{}

// Printf implements go-redis' logger.
func (quiet) Printf(context.Context, string, ...any) {}
