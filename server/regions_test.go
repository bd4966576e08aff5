package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/server/peercert"
	"github.com/fbfkv/fbfkv/server/tlstest"
)

// TestRegionUnsafe: a region that others can reach knows who reads it, and has them do nothing
// else; or it says all that it lacks.
func TestRegionUnsafe(t *testing.T) {
	const (
		login = "requirepass, or users"
		user  = "ACL SETUSER peer on >PASSWORD +region.pull"
		own   = "region-user and region-password"

		good = "bind 0.0.0.0 requirepass pw region-user us region-password pw"
	)
	for _, tt := range []struct {
		settings string // name value name value …
		user     string // with its rules; "": there is none
		lacks    []string
	}{
		{"", "", nil},
		{"bind ::1", "", nil},
		{"bind 0.0.0.0", "", []string{login, user, own}},
		{"bind 10.0.0.1 protected-mode yes", "", []string{login, user, own}},
		{"bind * requirepass pw", "", []string{user, own}},
		{"bind 0.0.0.0 region-user us region-password pw", "", []string{login, user}},
		{"bind 0.0.0.0 tls-port 7", "", []string{login, user, own}},
		{"bind 0.0.0.0 tls-port 7 tls-auth-clients yes port 0", "", nil},
		{"bind 0.0.0.0 tls-port 7 tls-auth-clients optional port 0", "", []string{login, user, own}},
		{"bind 0.0.0.0 tls-auth-clients yes port 0", "", []string{login, user, own}},
		{good, "", []string{user}},
		{good, "peer on >pw +region.pull", nil},
		{good, "peer on >pw +region.pull +ping +hello +auth +client|setinfo", nil},
		{good, "default off", []string{user}},
		{good, "default on -@all +region.pull", nil},
		{good, "peer off >pw +region.pull", []string{user}},
		{good, "peer on +region.pull", []string{user}},
		{good, "peer on nopass +region.pull", []string{user}},
		{good, "peer on >pw +ping", []string{user}},
		{good, "peer on >pw +region.pull +region|status", []string{user}},
		{good, "peer on >pw +region.pull +client", []string{user}},
		{good, "peer on >pw +region.pull (+get ~k)", []string{user}},
		{good, "peer on >pw ~* +@all", []string{user}},
		{good, "peer on >pw -@all (+region.pull)", nil},
		{"bind 0.0.0.0 requirepass pw region-user us", "peer on >pw +region.pull", []string{own}},
		{"bind 0.0.0.0 requirepass pw region-password pw", "peer on >pw +region.pull", []string{own}},
		{"bind 0.0.0.0 requirepass pw region-user default region-password pw", "peer on >pw +region.pull",
			[]string{own}},
		{"bind 0.0.0.0 requirepass pw tls-region yes", "peer on >pw +region.pull", nil},
		{"bind 0.0.0.0 requirepass pw tls-region yes region-password pw", "peer on >pw +region.pull",
			[]string{own}},
		{"bind 0.0.0.0 region-user us region-password pw", "peer on >pw +region.pull", []string{login}},
	} {
		c := configWith(t, strings.Fields(tt.settings)...)
		users, err := c.OpenUsers()
		if name, rules, found := strings.Cut(tt.user, " "); err == nil && found {
			if words, merging := acl.MergeSelectors(strings.Fields(rules)); merging == nil {
				err = users.Set(name, words)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		err = c.RegionUnsafe(users)
		if (err == nil) != (tt.lacks == nil) {
			t.Errorf("%q, %q: %v", tt.settings, tt.user, err)
		}
		if err == nil {
			continue
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than a line: %v", tt.settings, err)
		}
		for _, lack := range []string{login, user, own} {
			if strings.Contains(err.Error(), lack) != slices.Contains(tt.lacks, lack) {
				t.Errorf("%q, %q: it should lack %q: %v", tt.settings, tt.user, tt.lacks, err)
			}
		}
	}
	users, err := configWith(t).OpenUsers()
	if err == nil {
		err = errors.Join(users.Set("default", []string{"off"}),
			users.Set("peer", []string{"on", ">pw", "+region.pull"}))
	}
	if err == nil {
		err = configWith(t, "bind", "0.0.0.0", "region-user", "us", "region-password",
			"pw").RegionUnsafe(users)
	}
	if err != nil {
		t.Errorf("with the user default off: %v", err)
	}
}

// TestRegionsCertificates shows every kind of certificate to a region that dials: it takes those
// for servers, of its authorities, and unless it is told otherwise for the name that it dialed.
func TestRegionsCertificates(t *testing.T) {
	a := tlstest.NewAuthority(t, "ours")
	cert, key := a.Issue("us", time.Now().Add(time.Hour))
	for _, names := range []string{"yes", "no"} {
		config := configWith(t, "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", a.File,
			"tls-region", "yes", "tls-region-check-names", names)
		certificates, err := NewTLS(config, quiet)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range tlstest.Cases(t, a) {
			pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if nc, err := l.Accept(); err == nil {
					_ = nc.(*tls.Conn).Handshake() // the dialer says what is wrong
					nc.Close()
				}
			}()
			nc, err := DialRegion(context.Background(), config, certificates, l.Addr().String())
			if err == nil {
				nc.Close()
			}
			if good := c.Server && (c.Named || names == "no"); good != (err == nil) {
				t.Errorf("names are checked: %s; %s: %v", names, c.Name, err)
			}
			l.Close()
		}
	}
}

// TestClusterAuthorities: the authorities of nodes are their own, if they have any, and a warning
// says when clients have the same.
func TestClusterAuthorities(t *testing.T) {
	nodes, clients := tlstest.NewAuthority(t, "nodes"), tlstest.NewAuthority(t, "clients")
	cert, key := nodes.Issue("us", time.Now().Add(time.Hour))
	member := func(a *tlstest.Authority) []*x509.Certificate {
		cert, key := a.Issue("member", time.Now().Add(time.Hour))
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return []*x509.Certificate{pair.Leaf}
	}
	for _, tt := range []struct {
		settings           string
		ofNodes, ofClients bool // what makes a member
		warns              bool
	}{
		{"tls-ca-cert-file " + clients.File, false, true, true},
		{"tls-ca-cert-file " + clients.File + " tls-cluster-ca-cert-file " + clients.File, false, true, true},
		{"tls-ca-cert-file " + clients.File + " tls-auth-clients no", false, true, false},
		{"tls-ca-cert-file " + clients.File + " tls-cluster-ca-cert-file " + nodes.File, true, false, false},
		{"tls-cluster-ca-cert-file " + nodes.File + " tls-port 0", true, false, false},
		{"tls-ca-cert-file " + clients.File + " tls-port 0", false, true, false},
	} {
		c := configWith(t, append([]string{"cluster-enabled", "yes", "tls-cluster", "yes", "tls-port", "7",
			"tls-cert-file", cert, "tls-key-file", key}, strings.Fields(tt.settings)...)...)
		if faults := c.Check(); faults != nil {
			t.Errorf("%s: %v", tt.settings, faults)
		}
		all, err := NewTLS(c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		authorities := all.Cluster().ClientCAs
		if err := peercert.Verify(member(nodes), authorities, ""); (err == nil) != tt.ofNodes {
			t.Errorf("%s: of the nodes' authority: %v", tt.settings, err)
		}
		if err := peercert.Verify(member(clients), authorities, ""); (err == nil) != tt.ofClients {
			t.Errorf("%s: of the clients' authority: %v", tt.settings, err)
		}
		if warnings := c.Warnings(); (len(warnings) > 0) != tt.warns {
			t.Errorf("%s: %q", tt.settings, warnings)
		}
	}
	bad := configWith(t, "cluster-enabled", "yes", "tls-cluster", "yes", "tls-port", "7", "tls-auth-clients",
		"no", "tls-cert-file", cert, "tls-key-file", key,
		"tls-cluster-ca-cert-file", key)
	if faults := bad.Check(); len(faults) != 1 ||
		!strings.Contains(faults[0], "tls-cluster-ca-cert-file "+key) {
		t.Errorf("a file without certificates: %q", faults)
	}
}

// TestDialRegion: regions know each other by certificates of their authorities, in both directions.
func TestDialRegion(t *testing.T) {
	ours, theirs := tlstest.NewAuthority(t, "ours"), tlstest.NewAuthority(t, "theirs")
	settings := func(ca *tlstest.Authority, trusted string) *Config {
		cert, key := ca.Issue("region", time.Now().Add(time.Hour))
		return configWith(t, "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", trusted,
			"tls-region", "yes")
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
	shown := certificates(config)
	shown.limits.Store(&handshakeLimits{time.Hour, 1000})
	s := serveOn(t, Options{Store: openStore(t), Config: config, Logger: quiet}, newTLSListener(plain, shown))
	ping := func(c *Config) error {
		nc, err := DialRegion(context.Background(), c, certificates(c), s.address)
		if err != nil {
			return err
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(testwait.Limit))
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
	if err := ping(settings(ours, theirs.File)); err == nil ||
		!strings.Contains(err.Error(), "another region cannot be trusted") {
		t.Errorf("of a server that is not trusted: %v", err)
	}
	if faults := configWith(t, "tls-region", "yes").Check(); len(faults) != 2 {
		t.Errorf("tls-region without files and authorities: %v", faults)
	}
}
