package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/server/peercert"
)

// GroupRegions heads the settings of a region.
const GroupRegions = "Regions"

// RegionConfig holds the settings of a region.
type RegionConfig struct {
	Backlog int64 // bytes
	// how long the ids of own operations are kept for regions that have not taken them
	Retention time.Duration
	Policy    string // accept or refuse
	User      string // what this region logs in with at others
	Password  string // "": it does not log in
	// HOST:PORT at which others reach this region; "": the address that is named when it joins
	Announce   string
	TLS        bool // others are read over TLS
	CheckNames bool // their certificates must be for the names or addresses at which they are read
}

// regionSettings are the settings of GroupRegions.
var regionSettings = []Setting{
	{
		Name: "region-backlog", Group: GroupRegions, Default: "4gb",
		Doc: "How much of the op log is kept for each other region that has not read it yet. A region that " +
			"falls further behind fetches the state of the counters instead.",
		kind: memory(func(c *Config) *int64 { return &c.Region.Backlog }, 1<<20, 1<<50),
	}, {
		Name: "region-retention", Group: GroupRegions, Default: "86400",
		Doc: "For how many seconds beyond the window of their table the ids of own operations are kept for " +
			"regions that have not read them. After that, an operation applied in two regions may count " +
			"twice.",
		kind: seconds(func(c *Config) *time.Duration { return &c.Region.Retention }, 1, math.MaxInt32),
	}, {
		Name: "region-retention-policy", Group: GroupRegions, Default: "accept",
		Doc: "What to do with operations that another region has not fetched. accept: beyond " +
			"region-backlog and region-retention they are given up, and may count twice. refuse: nothing " +
			"is given up; while a region is more than region-backlog behind, writes are refused.",
		kind: choice(func(c *Config) *string { return &c.Region.Policy }, "accept", "refuse"),
	}, {
		Name: "region-user", Group: GroupRegions, Default: `""`, Mutable: true,
		Doc: "The user this region logs in with at other regions; empty: `default`. It needs only the " +
			"permission +region.pull. Beyond loopback, unless clients must show certificates, each region " +
			"must have such a user for the others, and log in at them with one. A change applies to new " +
			"connections.",
		kind: text(func(c *Config) *string { return &c.Region.User }, "<name>", 512),
	}, {
		Name: "region-password", Group: GroupRegions, Default: `""`, Mutable: true,
		Doc: "That user's password; without one this region does not log in. Set it in the configuration " +
			"file or in one that it includes, not on the command line. It is never shown.",
		kind: password(func(c *Config) *string { return &c.Region.Password }),
	}, {
		Name: "region-announce", Group: GroupRegions, Default: `""`, Mutable: true,
		Doc: "The host:port at which the other regions reach this one, for clients or, with tls-region, " +
			"for clients that use TLS. Read by `region create` and `join` only; empty: the address given " +
			"there.",
		kind: text(func(c *Config) *string { return &c.Region.Announce }, "<host:port>",
			300).must(regionAddress),
	}, {
		Name: "tls-region", Group: GroupRegions, Default: "no",
		Doc: "Read the other regions over TLS, at their tls-port, and show this server's certificate " +
			"(tls-cert-file). An authority of tls-ca-cert-file or tls-ca-cert-dir must have signed theirs, " +
			"with the extended key usage serverAuth.",
		kind: yesNo(func(c *Config) *bool { return &c.Region.TLS }),
	}, {
		Name: "tls-region-check-names", Group: GroupRegions, Default: "yes", Mutable: true,
		Doc: "Whether another region's certificate must be for the name or address at which it is read. " +
			"With no, any server certificate of these authorities is accepted for any region. A change " +
			"applies to new connections.",
		kind: yesNo(func(c *Config) *bool { return &c.Region.CheckNames }),
	},
}

// regionAddress accepts an address that others can connect to, or none.
func regionAddress(c *Config) error {
	if c.Region.Announce == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Region.Announce)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" || port == "0" {
		return errors.New("argument must be host:port, such as eu.example.com:6379")
	}
	return nil
}

// regionFaults returns why these settings cannot be those of a region.
func (c *Config) regionFaults() (faults Faults) {
	if !c.Region.TLS {
		return nil
	}
	if c.TLS.Port == 0 && !c.TLS.hasFiles() {
		faults = append(faults, "tls-region needs tls-cert-file and tls-key-file")
	}
	if c.TLS.CACertFile == "" && c.TLS.CACertDir == "" {
		faults = append(faults, "tls-region yes needs the authorities to trust: tls-ca-cert-file or "+
			"tls-ca-cert-dir")
	}
	return faults
}

// DialRegion connects to another region as the settings say.
func DialRegion(ctx context.Context, c *Config, certificates *TLS, address string) (net.Conn, error) {
	if !c.Region.TLS {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	name := ""
	if c.Region.CheckNames {
		var err error
		if name, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	return (&tls.Dialer{Config: clientOf(certificates.Current(), name)}).DialContext(ctx, "tcp", address)
}

// clientOf makes a configuration for a client out of the server's: it shows the same certificate, and
// trusts the same authorities. The other end's certificate must be for name, unless that is empty.
func clientOf(own *tls.Config, name string) *tls.Config {
	return &tls.Config{
		MinVersion: own.MinVersion, MaxVersion: own.MaxVersion,
		// The other region decides which authorities it trusts; show it our certificate, whatever
		// its list says.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &own.Certificates[0], nil
		},
		InsecureSkipVerify: true, // VerifyConnection does more
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := peercert.Verify(s.PeerCertificates, own.ClientCAs, name); err != nil {
				return fmt.Errorf("another region cannot be trusted: %w", err)
			}
			return nil
		},
	}
}

// RegionUnsafe says why a server with these settings and users must not be a region, nil if it
// may: anyone who reaches it could pose as another region, and read the counters; and a holder of the
// password that regions give each other could do more than read.
func (c *Config) RegionUnsafe(users *acl.Users) error {
	mutual := c.TLS.Port != 0 && c.Port == 0 && c.TLS.AuthClients == "yes"
	if mutual || !slices.ContainsFunc(c.Bind, isPublic) {
		return nil
	}
	var lacks []string
	if !users.LoginNeeded() {
		lacks = append(lacks, "requirepass, or users and no access for default")
	}
	if !slices.ContainsFunc(users.List(), mayOnlyPull) {
		lacks = append(lacks, "a user with a password for the other regions, which may do nothing else: "+
			"ACL SETUSER peer on >PASSWORD +region.pull and ACL SAVE or CONFIG REWRITE, or "+
			"the line 'user peer on >PASSWORD +region.pull' of the configuration or the aclfile")
	}
	if r := &c.Region; !r.TLS || r.Password != "" { // else its certificate may do
		if r.User == "" || r.User == acl.Default || r.Password == "" {
			lacks = append(lacks, "region-user and region-password of such a user of the others, not "+
				"of default")
		}
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("a region with bind %s must let only other regions read it, with a user that may do "+
		"nothing else; it lacks %s; or accept only clients "+
		"with certificates (tls-port, port 0 and tls-auth-clients yes); or bind to 127.0.0.1",
		strings.Join(c.Bind, " "), strings.Join(lacks, "; and "))
}

// mayOnlyPull reports whether a user can read a region, and do nothing else.
func mayOnlyPull(u *acl.User) bool {
	return u.On() && !u.NoPass() && len(u.Passwords()) > 0 &&
		u.MayOnly("region.pull", func(c acl.Command) bool {
			return slices.Contains(c.Categories, "connection") && !slices.Contains(c.Categories, "dangerous")
		})
}
