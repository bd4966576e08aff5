package server

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/youmark/pkcs8"
)

// TLS holds the certificates in use and replaces them while the server runs: by
// Apply (CONFIG SET), Reload (SIGHUP), or because their files have changed, for
// which a handshake looks at most once a second. Certificates that are bad leave
// those in use as they are. Its methods are safe for concurrent use.
type TLS struct {
	log     *slog.Logger
	current atomic.Pointer[tls.Config]
	cluster atomic.Pointer[tls.Config] // current, with the authorities of the cluster's nodes
	limits  atomic.Pointer[handshakeLimits]
	failed  failureLog // handshakes

	lastLook atomic.Int64 // unix nanoseconds
	mu       sync.Mutex   // held while files are read; guards what follows
	settings TLSConfig
	seen     []fileState // the files as of the last attempt to read them
}

// handshakeLimits bound handshakes: how long one may take, and how many may be in progress. When one
// more begins, the oldest is dropped: it is more likely stalled than slow.
type handshakeLimits struct {
	timeout time.Duration
	number  int
}

// lookEvery is how often handshakes look for changed files.
const lookEvery = time.Second

// NewTLS reads the certificates that the settings name; logger gets what goes
// wrong later. The error is one line.
func NewTLS(c *Config, logger *slog.Logger) (*TLS, error) {
	t := &TLS{log: logger}
	t.limits.Store(&handshakeLimits{10 * time.Second, 1000})
	if err := t.Apply(c); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

// Apply makes c's settings those in use, and reads their files. On an error all
// stays as it was.
func (t *TLS) Apply(c *Config) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.load(c.TLS)
}

// Reload reads the files again. On an error the certificates in use stay.
func (t *TLS) Reload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.load(t.settings)
}

// Expiry returns until when the server's certificate in use is valid.
func (t *TLS) Expiry() time.Time { return t.current.Load().Certificates[0].Leaf.NotAfter }

// load reads the files that c names and uses them; t.mu is held. The files are
// looked at before they are read, so that a change in between is noticed.
func (t *TLS) load(c TLSConfig) error {
	seen := stat(c.files())
	config, err := c.read()
	if err != nil {
		return err
	}
	nodes, err := c.ofNodes(config)
	if err != nil {
		return err
	}
	// The keys of session tickets belong to the old configuration and go with it,
	// so that nobody resumes what the present authorities would refuse.
	t.current.Store(config)
	t.cluster.Store(nodes)
	t.settings, t.seen = c, seen
	return nil
}

// Current returns the configuration for a handshake that begins.
func (t *TLS) Current() *tls.Config {
	t.look(time.Now())
	return t.current.Load()
}

// Cluster is Current for connections between the nodes of a cluster: its ClientCAs sign the certificates
// that make a member.
func (t *TLS) Cluster() *tls.Config {
	t.look(time.Now())
	return t.cluster.Load()
}

// look reads the certificates again if their files have changed. Of the
// handshakes that begin at the same time, one looks.
func (t *TLS) look(now time.Time) {
	last := t.lastLook.Load()
	if now.UnixNano()-last < int64(lookEvery) || !t.lastLook.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := stat(t.settings.files())
	if slices.Equal(seen, t.seen) {
		return
	}
	if err := t.load(t.settings); err != nil {
		t.seen = seen // say it once; the next change is looked at again
		t.log.Warn("the changed TLS certificates cannot be used: the server keeps the old ones", "error", err)
		return
	}
	t.log.Info("TLS certificates read again: their files have changed")
}

// fileState tells whether a file has changed.
type fileState struct {
	path     string
	modified time.Time
	size     int64
}

// stat looks at files; one that is missing has a state of its own.
func stat(paths []string) []fileState {
	var states []fileState
	for _, path := range paths {
		s := fileState{path: path, size: -1}
		if info, err := os.Stat(path); err == nil {
			s.modified, s.size = info.ModTime(), info.Size()
		}
		states = append(states, s)
	}
	return states
}

// files returns the paths to watch; a directory's time tells of new files in it.
func (c *TLSConfig) files() (paths []string) {
	for _, path := range []string{c.CertFile, c.KeyFile, c.CACertFile, c.CACertDir, c.ClusterCACertFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// hasFiles reports whether the settings name a certificate and its key.
func (c *TLSConfig) hasFiles() bool { return c.CertFile != "" && c.KeyFile != "" }

// read makes what crypto/tls needs of the settings. Its errors name the setting
// at fault.
func (c *TLSConfig) read() (*tls.Config, error) {
	if !c.hasFiles() {
		return nil, errors.New("tls-port needs tls-cert-file and tls-key-file")
	}
	certificate, err := c.readCertificate()
	if err != nil {
		return nil, err
	}
	authorities, err := c.readAuthorities()
	if err != nil {
		return nil, err
	}
	if c.Port != 0 && c.AuthClients != "no" && authorities == nil {
		return nil, fmt.Errorf("tls-auth-clients %s needs the authorities to trust: tls-ca-cert-file or "+
			"tls-ca-cert-dir",
			c.AuthClients)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientCAs:    authorities,
		MinVersion:   c.Protocols.Min,
		MaxVersion:   c.Protocols.Max,

		DynamicRecordSizingDisabled: true, // replies that were gathered go out together
	}
	switch c.AuthClients {
	case "yes":
		config.ClientAuth = tls.RequireAndVerifyClientCert
	case "optional":
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}

// readCertificate reads the server's certificate and key, and checks that they
// belong together.
func (c *TLSConfig) readCertificate() (certificate tls.Certificate, err error) {
	chain, err := readPEM("tls-cert-file", c.CertFile)
	if err != nil {
		return certificate, err
	}
	key, err := readPEM("tls-key-file", c.KeyFile)
	if err != nil {
		return certificate, err
	}
	if key, err = c.decryptKey(key); err != nil {
		return certificate, fmt.Errorf("tls-key-file %s: %w", c.KeyFile, err)
	}
	certificate, err = tls.X509KeyPair(chain, key)
	if err != nil {
		return certificate, fmt.Errorf("tls-cert-file %s and tls-key-file %s: %s", c.CertFile, c.KeyFile,
			strings.TrimPrefix(err.Error(), "tls: "))
	}
	return certificate, nil
}

// decryptKey returns the key as it is, or decrypted.
func (c *TLSConfig) decryptKey(text []byte) ([]byte, error) {
	block, _ := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("it contains no PEM block")
	case strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		return nil, errors.New("its encryption is old and unsafe: convert it with openssl pkcs8 -topk8")
	case block.Type != "ENCRYPTED PRIVATE KEY":
		return text, nil
	case c.KeyFilePass == "":
		return nil, errors.New("it is encrypted, and tls-key-file-pass is not set")
	}
	key, err := pkcs8.ParsePKCS8PrivateKey(block.Bytes, []byte(c.KeyFilePass))
	if err != nil {
		return nil, errors.New("it cannot be decrypted with tls-key-file-pass")
	}
	der, err := x509.MarshalPKCS8PrivateKey(crypto.PrivateKey(key))
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ofNodes returns the configuration with the authorities that sign the certificates of a cluster's nodes in
// the place of those that sign clients'.
func (c *TLSConfig) ofNodes(config *tls.Config) (*tls.Config, error) {
	if c.ClusterCACertFile == "" {
		return config, nil
	}
	config, pool := config.Clone(), x509.NewCertPool()
	config.ClientCAs = pool
	return config, readAuthorityFile(pool, "tls-cluster-ca-cert-file", c.ClusterCACertFile)
}

// readAuthorities reads the certificates that may sign clients'; nil: there are
// none.
func (c *TLSConfig) readAuthorities() (*x509.CertPool, error) {
	if c.CACertFile == "" && c.CACertDir == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if c.CACertFile != "" {
		if err := readAuthorityFile(pool, "tls-ca-cert-file", c.CACertFile); err != nil {
			return nil, err
		}
	}
	if c.CACertDir != "" {
		if err := readAuthorityDir(pool, c.CACertDir); err != nil {
			return nil, fmt.Errorf("tls-ca-cert-dir: %w", err)
		}
	}
	return pool, nil
}

// readAuthorityFile adds the certificates of a file that is named by a setting; there must be one at least.
func readAuthorityFile(pool *x509.CertPool, setting, path string) error {
	text, err := readPEM(setting, path)
	if err != nil {
		return err
	}
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s %s: it contains no certificate", setting, path)
	}
	return nil
}

// readAuthorityDir adds the certificates of a directory's files, of which there
// must be one at least; other files are ignored.
func readAuthorityDir(pool *x509.CertPool, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := readPEM("a certificate", path)
		if err != nil {
			return err
		}
		found = pool.AppendCertsFromPEM(text) || found
	}
	if !found {
		return fmt.Errorf("%s: it contains no certificate", dir)
	}
	return nil
}

// maxPEM is the most that is read of a certificate file, in bytes.
const maxPEM = 4 << 20

// readPEM reads a file that is named by a setting.
func readPEM(setting, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", setting, err)
	case len(text) > maxPEM:
		return nil, fmt.Errorf("%s %s: larger than %d bytes", setting, path, maxPEM)
	}
	return text, nil
}

// TLSConfig holds the tls-… settings.
type TLSConfig struct {
	Port        int // 0: no TLS
	CertFile    string
	KeyFile     string
	KeyFilePass string
	CACertFile  string
	CACertDir   string
	// ClusterCACertFile has the authorities of nodes; "": clients' authorities serve.
	ClusterCACertFile string
	AuthClients       string // yes, no or optional
	Protocols         TLSProtocols
}

// tlsSettings are the settings of GroupTLS.
var tlsSettings = []Setting{
	{
		Name: "tls-port", Group: GroupTLS, Default: "0",
		Doc: "The TCP port for clients that use TLS; 0 is none. With port 0 beside it, the server " +
			"accepts TLS only.",
		kind: integer(func(c *Config) *int { return &c.TLS.Port }, 0, math.MaxUint16),
	}, {
		Name: "tls-cert-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "The server's certificate and its chain, in PEM. The server reads the certificate files again " +
			"when they change, on SIGHUP, and when any of their settings is set. If a new one is bad, the " +
			"server logs that and keeps the old one.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.CertFile }),
	}, {
		Name: "tls-key-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc:  "The certificate's private key, in PEM.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.KeyFile }),
	}, {
		Name: "tls-key-file-pass", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "The password of an encrypted private key (PKCS #8). Set it in the configuration file, not on " +
			"the command line. It is never shown.",
		kind: password(func(c *Config) *string { return &c.TLS.KeyFilePass }),
	}, {
		Name: "tls-ca-cert-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc:  "The certificates, in PEM, of the authorities that sign the clients' certificates.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.CACertFile }),
	}, {
		Name: "tls-ca-cert-dir", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "A directory of such certificates, instead of the file or in addition to it. SIGHUP makes the " +
			"server notice a new one.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.CACertDir }),
	}, {
		Name: "tls-cluster-ca-cert-file", Group: GroupTLS, Default: `""`, Mutable: true,
		Doc: "The certificates, in PEM, of the authorities whose server certificates make a member of the " +
			"cluster (tls-cluster). Without it, tls-ca-cert-file and tls-ca-cert-dir name them. Give nodes " +
			"an authority of their own if another issues clients' certificates.",
		kind: tlsPath(func(c *Config) *string { return &c.TLS.ClusterCACertFile }),
	}, {
		Name: "tls-auth-clients", Group: GroupTLS, Default: "yes", Mutable: true,
		Doc: "Whether a client must show a certificate signed by one of these authorities. optional: a " +
			"client without one is accepted, a client with a bad one is not.",
		kind: choice(func(c *Config) *string { return &c.TLS.AuthClients }, "yes", "no", "optional"),
	}, {
		Name: "tls-protocols", Group: GroupTLS, Default: `"TLSv1.2 TLSv1.3"`, Mutable: true,
		Doc: "The versions that the server accepts. Older ones are broken and not supported.",
		kind: list(func(c *Config) *TLSProtocols { return &c.TLS.Protocols }, "TLSv1.2 TLSv1.3",
			parseTLSProtocols,
			TLSProtocols.words),
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
		case strings.EqualFold(w, "TLSv1") || strings.EqualFold(w, "TLSv1.1") ||
			strings.HasPrefix(strings.ToLower(w), "ssl"):
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
