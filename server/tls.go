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
	limits  atomic.Pointer[TLSConfig]

	lastLook atomic.Int64 // unix nanoseconds
	mu       sync.Mutex   // held while files are read; guards what follows
	settings TLSConfig
	seen     []fileState // the files as of the last attempt to read them
}

// lookEvery is how often handshakes look for changed files.
const lookEvery = time.Second

// NewTLS reads the certificates that the settings name; logger gets what goes
// wrong later. The error is one line.
func NewTLS(c *Config, logger *slog.Logger) (*TLS, error) {
	t := &TLS{log: logger}
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
	// The keys of session tickets belong to the old configuration and go with it,
	// so that nobody resumes what the present authorities would refuse.
	t.current.Store(config)
	t.limits.Store(&c)
	t.settings, t.seen = c, seen
	return nil
}

// config returns the configuration for a handshake that begins.
func (t *TLS) config() *tls.Config {
	t.look(time.Now())
	return t.current.Load()
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
		t.log.Warn("changed TLS certificates are not used: those in use stay", "error", err)
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
	for _, path := range []string{c.CertFile, c.KeyFile, c.CACertFile, c.CACertDir} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// read makes what crypto/tls needs of the settings. Its errors name the setting
// at fault.
func (c *TLSConfig) read() (*tls.Config, error) {
	if c.CertFile == "" || c.KeyFile == "" {
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
	if c.AuthClients != "no" && authorities == nil {
		return nil, fmt.Errorf("tls-auth-clients %s needs the authorities to trust: tls-ca-cert-file or tls-ca-cert-dir",
			c.AuthClients)
	}
	suites, err := c.Ciphers.suites()
	if err != nil {
		return nil, fmt.Errorf("tls-ciphers: %w", err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientCAs:    authorities,
		MinVersion:   c.Protocols.Min,
		MaxVersion:   c.Protocols.Max,
		CipherSuites: suites,

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

// readAuthorities reads the certificates that may sign clients'; nil: there are
// none.
func (c *TLSConfig) readAuthorities() (*x509.CertPool, error) {
	if c.CACertFile == "" && c.CACertDir == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if c.CACertFile != "" {
		text, err := readPEM("tls-ca-cert-file", c.CACertFile)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls-ca-cert-file %s: it contains no certificate", c.CACertFile)
		}
	}
	if c.CACertDir != "" {
		if err := readAuthorityDir(pool, c.CACertDir); err != nil {
			return nil, fmt.Errorf("tls-ca-cert-dir: %w", err)
		}
	}
	return pool, nil
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
