package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/server/tlstest"
)

// TestRegionUnsafe: a region that others can reach knows who reads it, or says how it would.
func TestRegionUnsafe(t *testing.T) {
	for _, tt := range []struct {
		settings string // name value name value …
		safe     bool
	}{
		{"", true},
		{"bind ::1", true},
		{"bind 0.0.0.0", false},
		{"bind 10.0.0.1 protected-mode yes", false},
		{"bind * requirepass pw", true},
		{"bind 0.0.0.0 region-password pw", false},
		{"bind 0.0.0.0 tls-port 7", false},
		{"bind 0.0.0.0 tls-port 7 tls-auth-clients yes port 0", true},
		{"bind 0.0.0.0 tls-port 7 tls-auth-clients optional port 0", false},
		{"bind 0.0.0.0 tls-auth-clients yes port 0", false},
	} {
		c := configWith(t, strings.Fields(tt.settings)...)
		users, err := c.OpenUsers()
		if err != nil {
			t.Fatal(err)
		}
		err = c.RegionUnsafe(users)
		if (err == nil) != tt.safe {
			t.Errorf("%q: %v", tt.settings, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than a line: %v", tt.settings, err)
		}
	}
	c := configWith(t, "bind", "0.0.0.0")
	users, err := c.OpenUsers()
	if err == nil {
		err = users.Set("default", []string{"off"})
	}
	if err == nil {
		err = c.RegionUnsafe(users)
	}
	if err != nil {
		t.Errorf("with the user default off: %v", err)
	}
}

// TestDialRegion: regions know each other by certificates of their authorities, in both directions.
func TestDialRegion(t *testing.T) {
	ours, theirs := tlstest.NewAuthority(t, "ours"), tlstest.NewAuthority(t, "theirs")
	settings := func(ca *tlstest.Authority, trusted string) *Config {
		cert, key := ca.Issue("region", time.Now().Add(time.Hour))
		return configWith(t, "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", trusted, "tls-region", "yes")
	}
	certificates := func(c *Config) *TLS {
		all, err := NewTLS(c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	config := settings(ours, ours.File)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, Options{Store: openStore(t), Config: config, Logger: quiet}, newTLSListener(plain, certificates(config)))
	ping := func(c *Config) error {
		nc, err := DialRegion(context.Background(), c, certificates(c), s.address)
		if err != nil {
			return err
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(longEnough))
		fmt.Fprint(nc, "PING\r\n")
		b := make([]byte, 7)
		if _, err = io.ReadFull(nc, b); err == nil && string(b) != "+PONG\r\n" {
			err = fmt.Errorf("answers %q", b)
		}
		return err
	}
	if err := ping(settings(ours, ours.File)); err != nil {
		t.Errorf("with a certificate of the same authority: %v", err)
	}
	if err := ping(settings(theirs, ours.File)); err == nil {
		t.Error("a region with a strange certificate got in")
	}
	if err := ping(settings(ours, theirs.File)); err == nil || !strings.Contains(err.Error(), "the certificate of another region") {
		t.Errorf("of a server that is not trusted: %v", err)
	}
	if faults := configWith(t, "tls-region", "yes").Check(); len(faults) != 2 {
		t.Errorf("tls-region without files and authorities: %v", faults)
	}
}
