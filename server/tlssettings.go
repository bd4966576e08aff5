package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// TLSConfig holds the tls-… settings.
type TLSConfig struct {
	Port        int // 0: no TLS
	CertFile    string
	KeyFile     string
	KeyFilePass string
	CACertFile  string
	CACertDir   string
	AuthClients string // yes, no or optional
	Protocols   TLSProtocols
	Ciphers     TLSCiphers
	// What a handshake may use.
	HandshakeTimeout time.Duration
	MaxHandshakes    int
}

// tlsSettings are the settings of GroupTLS.
var tlsSettings = []Setting{
	{
		Name: "tls-port", Group: GroupTLS, Default: "0",
		Doc:  "The TCP port for clients that use TLS; 0 is none. With port 0 beside it, the server accepts TLS only.",
		kind: integer(func(c *Config) *int { return &c.TLS.Port }, 0, math.MaxUint16),
	}, {
		Name: "tls-cert-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "The server's certificate and its chain, in PEM. The server reads the certificate files again when they " +
			"change, on SIGHUP, and when any of their settings is set. If a new one is bad, it logs that and keeps the " +
			"one in use.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.CertFile }),
	}, {
		Name: "tls-key-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc:  "The certificate's private key, in PEM.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.KeyFile }),
	}, {
		Name: "tls-key-file-pass", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "The password of an encrypted private key (PKCS #8). Set it in the configuration file, not on the command " +
			"line.",
		kind: text(func(c *Config) *string { return &c.TLS.KeyFilePass }, "<password>", 512),
	}, {
		Name: "tls-ca-cert-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc:  "The certificates, in PEM, of the authorities that sign the clients' certificates.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.CACertFile }),
	}, {
		Name: "tls-ca-cert-dir", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "A directory of such certificates, instead of the file or in addition to it. SIGHUP makes the server " +
			"notice a new one.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.CACertDir }),
	}, {
		Name: "tls-auth-clients", Group: GroupTLS, Default: "yes", Mutable: true,
		Doc: "Whether a client must show a certificate signed by one of these authorities. optional: a client without " +
			"one is accepted, a client with a bad one is not.",
		kind: choice(func(c *Config) *string { return &c.TLS.AuthClients }, "yes", "no", "optional"),
	}, {
		Name: "tls-protocols", Group: GroupTLS, Default: `"TLSv1.2 TLSv1.3"`, Mutable: true,
		Doc: "The versions that the server accepts. Older ones are broken and not supported.",
		kind: list(func(c *Config) *TLSProtocols { return &c.TLS.Protocols }, "TLSv1.2 TLSv1.3", parseTLSProtocols,
			TLSProtocols.words),
	}, {
		Name: "tls-ciphers", Group: GroupTLS, Default: "DEFAULT", Mutable: true,
		Doc: "The cipher suites for TLSv1.2, by OpenSSL's names, separated by colons. Only safe ones can be chosen; " +
			"DEFAULT is all of them. The server prefers those that are fast on this machine and on the client's.",
		kind: scalar(func(c *Config) *TLSCiphers { return &c.TLS.Ciphers }, "<suite>:...", parseTLSCiphers, TLSCiphers.String),
	}, {
		Name: "tls-handshake-timeout", Group: GroupTLS, Default: "10", Mutable: true,
		Doc:  "How many seconds a client may take for its handshake.",
		kind: seconds(func(c *Config) *time.Duration { return &c.TLS.HandshakeTimeout }, 3600).must(someTime),
	}, {
		Name: "tls-max-handshakes", Group: GroupTLS, Default: "1000", Mutable: true,
		Doc: "How many handshakes may be in progress. One more, and the server drops the oldest: it is more likely " +
			"stalled than slow.",
		kind: integer(func(c *Config) *int { return &c.TLS.MaxHandshakes }, 1, math.MaxInt32),
	},
}

// tlsPath is the kind of a file's or directory's path.
func tlsPath(field func(*Config) *string) kind { return text(field, "<path>", 4096) }

// TLSProtocols is the setting tls-protocols: the oldest and the newest version.
type TLSProtocols struct{ Min, Max uint16 }

// tlsVersions are the versions by their names in redis.conf.
var tlsVersions = []struct {
	name    string
	version uint16
}{{"TLSv1.2", tls.VersionTLS12}, {"TLSv1.3", tls.VersionTLS13}}

// parseTLSProtocols reads names of versions; none, or "", is all, as in Redis.
func parseTLSProtocols(words []string) (TLSProtocols, error) {
	words = strings.Fields(strings.Join(words, " "))
	if len(words) == 0 {
		return TLSProtocols{tls.VersionTLS12, tls.VersionTLS13}, nil
	}
	var p TLSProtocols
	for _, w := range words {
		i := 0
		for i < len(tlsVersions) && !strings.EqualFold(w, tlsVersions[i].name) {
			i++
		}
		switch {
		case strings.EqualFold(w, "TLSv1") || strings.EqualFold(w, "TLSv1.1") || strings.HasPrefix(strings.ToLower(w), "ssl"):
			return p, fmt.Errorf("%s is broken and not supported: use TLSv1.2 or TLSv1.3", w)
		case i == len(tlsVersions):
			return p, fmt.Errorf("%.40q is not a version: use TLSv1.2 or TLSv1.3", w)
		}
		v := tlsVersions[i].version
		if p.Min == 0 || v < p.Min {
			p.Min = v
		}
		p.Max = max(p.Max, v)
	}
	return p, nil
}

// words renders the versions as they are written in a configuration.
func (p TLSProtocols) words() (words []string) {
	for _, v := range tlsVersions {
		if v.version >= p.Min && v.version <= p.Max {
			words = append(words, v.name)
		}
	}
	return words
}

// TLSCiphers is the setting tls-ciphers: suites separated by colons, as OpenSSL
// writes them.
type TLSCiphers string

// String returns the setting as it was written.
func (c TLSCiphers) String() string { return string(c) }

// opensslNames are OpenSSL's names of the suites for TLSv1.2 that crypto/tls
// holds to be safe.
var opensslNames = map[string]uint16{
	"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-RSA-CHACHA20-POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// parseTLSCiphers checks a list of suites. What OpenSSL would make of its other
// words (HIGH, !SHA1) cannot be said with crypto/tls, so they are refused; but
// DEFAULT:!MEDIUM, which stands in redis.conf, excludes nothing that is offered.
func parseTLSCiphers(s string) (TLSCiphers, error) {
	if _, err := TLSCiphers(s).suites(); err != nil {
		return "", err
	}
	if s == "" {
		s = "DEFAULT"
	}
	return TLSCiphers(s), nil
}

// suites returns the suites of a list; nil: crypto/tls' own.
func (c TLSCiphers) suites() (suites []uint16, err error) {
	if c == "" || c == "DEFAULT" || c == "DEFAULT:!MEDIUM" {
		return nil, nil
	}
	for name := range strings.SplitSeq(string(c), ":") {
		id, ok := opensslNames[name]
		if !ok {
			return nil, fmt.Errorf("%.60q is not a supported suite: use DEFAULT alone, or %s", name, strings.Join(sortedNames(), ":"))
		}
		suites = append(suites, id)
	}
	return suites, nil
}

// sortedNames returns the names of opensslNames.
func sortedNames() (names []string) {
	for name := range opensslNames {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The conditions of single settings.

func someTime(c *Config) error {
	if c.TLS.HandshakeTimeout <= 0 {
		return errors.New("argument must be between 1 and 3600 inclusive")
	}
	return nil
}
