// Package connect makes the connections of subcommands that talk to servers: which
// server a flag or an argument of theirs says, how to log in and TLS are flags here.
package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// PasswordVariable names the environment variable with the password, as for redis-cli.
const PasswordVariable = "REDISCLI_AUTH"

// Usage is the part of a usage line that shows the flags.
const Usage = "[--user NAME] [--requirepass PASSWORD] [--tls [--cacert F] [--cert F --key F]]"

// defaultAddr is the server that a subcommand means when it names none.
const defaultAddr = "127.0.0.1:6379"

// Server returns which server a subcommand's arguments name, HOST:PORT, and the other ones, of which there
// are as many as it needs: the server comes first, and may be left out.
func Server(args []string, others int) (addr string, rest []string) {
	if len(args) > others {
		return args[0], args[1:]
	}
	return defaultAddr, args
}

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
	flags.StringVar(&f.ca, "cacert", "", "the authority that signed the server's certificate, in PEM "+
		"(default: the system's)")
	flags.StringVar(&f.cert, "cert", "", "the certificate to show, in PEM")
	flags.StringVar(&f.key, "key", "", "its private key, in PEM")
}

// TLS reports whether connections use TLS.
func (f *Flags) TLS() bool { return f.tls }

// Client returns a client of the server at HOST:PORT, whose commands and pipelines take at
// most timeout; 0: as long as it takes.
func (f *Flags) Client(addr string, timeout time.Duration) (*Client, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("%q is not HOST:PORT", addr)
	}
	if f.user != "" && f.password == "" {
		return nil, errors.New("--user needs a password: set " + PasswordVariable)
	}
	c := &Client{addr: addr, user: f.user, password: f.password, timeout: timeout}
	return c, f.secure(c, f.tls)
}

// SourceVariable is where FromURL's callers look for the password.
const SourceVariable = "FBFKV_SOURCE_PASSWORD"

// FromURL is Client for a server that a URL names, with its user and database:
// redis://user@host:port/0, or rediss:// for TLS. A password in the URL goes before the
// other one. The flags of the certificates apply to it too. No error contains the password.
func (f *Flags) FromURL(text, password string, timeout time.Duration) (*Client, error) {
	const want = "the source is no URL such as redis://user:password@host:6379/0"
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" || u.RawQuery != "" {
		return nil, errors.New(want) // what is bad may be a piece of the password
	}
	c := &Client{addr: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")), user: u.User.Username(),
		timeout: timeout}
	if c.password, _ = u.User.Password(); c.password == "" {
		c.password = password
	}
	if c.user != "" && c.password == "" {
		return nil, errors.New("the source's user has no password: set " + SourceVariable)
	}
	if c.database = strings.Trim(u.Path, "/"); c.database != "" {
		if _, err := strconv.ParseUint(c.database, 10, 31); err != nil {
			return nil, errors.New(want)
		}
	}
	return c, f.secure(c, u.Scheme == "rediss")
}

// secure makes a client use TLS, if it is to.
func (f *Flags) secure(c *Client, yes bool) error {
	if !yes {
		return nil
	}
	host, _, _ := net.SplitHostPort(c.addr)
	c.tls = &tls.Config{ServerName: host}
	return f.certificates(c.tls)
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
