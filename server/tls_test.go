package server

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/server/tlstest"
	"github.com/youmark/pkcs8"
)

// secured is a server that speaks TLS only.
type secured struct {
	*running
	ca           *tlstest.Authority
	log          func() string
	certificates *TLS
}

// startTLS runs a server with a certificate of a new authority, which is also
// the one that clients' certificates need.
func startTLS(t testing.TB, settings ...string) *secured {
	t.Helper()
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	config := freePort(t, append([]string{"tls-port", "1", "tls-cert-file", cert, "tls-key-file", key,
		"tls-ca-cert-file", ca.File}, settings...)...)
	logger, log := record()
	certificates, err := NewTLS(config, logger)
	if err != nil {
		t.Fatal(err)
	}
	certificates.limits.Store(&handshakeLimits{time.Hour, 1000})
	listeners, err := listenOn(config.Bind, 0) // a free port instead of tls-port
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Store: openStore(t), Config: config, Logger: logger, TLS: certificates}
	return &secured{serveOn(t, o, newTLSListener(listeners[0], certificates)), ca, log, certificates}
}

// hello connects with a configuration and says how PING went.
func (s *secured) hello(t testing.TB, c *tls.Config) string {
	t.Helper()
	nc, err := tls.DialWithDialer(&net.Dialer{Timeout: testwait.Limit}, "tcp", s.address, c)
	if err != nil {
		return err.Error()
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	nc.Write([]byte("PING\r\n"))
	line, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// dialTLS connects, without a certificate if the paths are empty.
func (s *secured) dialTLS(t testing.TB, cert, key string) *client {
	t.Helper()
	nc, err := tls.Dial("tcp", s.address, s.ca.Client(cert, key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	return &client{t: t, Conn: nc, in: bufio.NewReader(nc)}
}

func TestTLSClientCertificates(t *testing.T) {
	stranger := tlstest.NewAuthority(t, "stranger")
	for _, mode := range []string{"yes", "optional", "no"} {
		s := startTLS(t, "tls-auth-clients", mode)
		good := s.ca.Client(s.ca.Issue("client", time.Now().Add(time.Hour)))
		expired := s.ca.Client(s.ca.Issue("expired", time.Now().Add(-time.Minute)))
		strange := s.ca.Client("", "")
		strange.GetClientCertificate = stranger.Client(stranger.Issue("client",
			time.Now().Add(time.Hour))).GetClientCertificate
		for _, tt := range []struct {
			name   string
			config *tls.Config
			served bool
		}{
			{"good", good, true},
			{"none", s.ca.Client("", ""), mode != "yes"},
			{"of another authority", strange, mode == "no"},
			{"expired", expired, mode == "no"},
		} {
			got := s.hello(t, tt.config)
			if tt.served && got != "+PONG" || !tt.served && !strings.Contains(got, "remote error: tls: ") {
				t.Errorf("tls-auth-clients %s, certificate %s: %s, want it served: %v", mode, tt.name, got,
					tt.served)
			}
		}
	}
}

func TestTLSVersions(t *testing.T) {
	s := startTLS(t, "tls-auth-clients", "no")
	version := func(v uint16) *tls.Config {
		c := s.ca.Client("", "")
		c.MinVersion, c.MaxVersion = v, v
		return c
	}
	for v, served := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false,
		tls.VersionTLS12: true, tls.VersionTLS13: true} {
		got := s.hello(t, version(v))
		if served && got != "+PONG" || !served && !strings.Contains(got, "protocol version not supported") {
			t.Errorf("%s: %s, want it served: %v", tls.VersionName(v), got, served)
		}
	}
	admin := s.dialTLS(t, "", "")
	admin.expect("+OK", "CONFIG", "SET", "tls-protocols", "TLSv1.3")
	if got := s.hello(t, version(tls.VersionTLS12)); !strings.Contains(got, "protocol version") {
		t.Errorf("TLSv1.2 after tls-protocols TLSv1.3: %s", got)
	}
	admin.expect("+PONG", "PING") // who is connected stays
}

// shown returns the serial number of the certificate that the server shows.
func (s *secured) shown(t testing.TB) string {
	t.Helper()
	nc, err := tls.Dial("tcp", s.address, s.ca.Client("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	return nc.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestTLSReload replaces certificates in each of the ways there are. Bad ones
// leave the old in use and are logged, or refused by CONFIG SET.
func TestTLSReload(t *testing.T) {
	s := startTLS(t, "tls-auth-clients", "no")
	looked := func() string { // whoever has just looked
		s.certificates.lastLook.Store(0)
		return s.shown(t)
	}
	first := s.shown(t)
	cert, key := s.ca.Issue("server", time.Now().Add(time.Hour)) // in the place of the first
	eventually(t, "the changed files are noticed", func() bool { return looked() != first })
	second := s.shown(t)

	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad file is noticed", func() bool {
		return looked() == second && strings.Contains(s.log(), "changed TLS certificates cannot be used")
	})
	s.ca.Issue("server", time.Now().Add(time.Hour))
	eventually(t, "the mended files are noticed", func() bool { return looked() != second })

	admin := s.dialTLS(t, "", "")
	third := s.shown(t)
	other, otherKey := s.ca.Issue("other", time.Now().Add(time.Hour))
	for _, bad := range [][]string{
		{"tls-cert-file", other},                            // does not fit the key
		{"tls-cert-file", "/does/not/exist"},                //
		{"tls-key-file", s.ca.File},                         // no key in it
		{"tls-auth-clients", "yes", "tls-ca-cert-file", ""}, // nobody could connect
		{"tls-ca-cert-file", key},                           // no certificate in it
	} {
		got := admin.do(append([]string{"CONFIG", "SET"}, bad...)...)
		if !strings.HasPrefix(got, "-ERR CONFIG SET failed") {
			t.Errorf("CONFIG SET %q: %s", bad, got)
		}
	}
	admin.expect("[tls-cert-file "+cert+"]", "CONFIG", "GET", "tls-cert-file")
	if got := s.shown(t); got != third {
		t.Error("a refused CONFIG SET has changed the certificate")
	}
	admin.expect("+OK", "CONFIG", "SET", "tls-cert-file", other, "tls-key-file", otherKey)
	if got := s.shown(t); got == third {
		t.Error("CONFIG SET has not changed the certificate")
	}
}

// TestTLSResumptionEndsWithTheAuthority has a client whose session ticket is
// from before its authority was replaced.
func TestTLSResumptionEndsWithTheAuthority(t *testing.T) {
	s := startTLS(t)
	cert, key := s.ca.Issue("admin", time.Now().Add(time.Hour))
	admin := s.dialTLS(t, cert, key)
	c := s.ca.Client(s.ca.Issue("client", time.Now().Add(time.Hour)))
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		if got := s.hello(t, c); got != "+PONG" {
			t.Fatal(got)
		}
	}
	admin.expect("+OK", "CONFIG", "SET", "tls-ca-cert-file", tlstest.NewAuthority(t, "next").File)
	if got := s.hello(t, c); !strings.Contains(got, "remote error: tls: ") {
		t.Errorf("a client of the old authority: %s", got)
	}
}

// TestTLSStalledHandshakes has clients that connect and send nothing, part of a
// handshake, or something else. Others are served meanwhile, and the stalled
// ones give way to them when there are too many, or their time is over.
func TestTLSStalledHandshakes(t *testing.T) {
	t.Parallel()
	s := startTLS(t, "tls-auth-clients", "no")
	s.certificates.limits.Store(&handshakeLimits{time.Hour, 20})
	bystander := s.dialTLS(t, "", "")
	stall := func(send ...byte) net.Conn {
		nc, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		nc.SetDeadline(time.Now().Add(testwait.Limit))
		nc.Write(send)
		return nc
	}
	var stalled []net.Conn
	for i := range 60 {
		if i%2 == 0 {
			stalled = append(stalled, stall(22, 3, 1, 2, 0, 1)) // the beginning of a ClientHello
		} else {
			stalled = append(stalled, stall())
		}
		bystander.expect("+PONG", "PING")
		if got := s.hello(t, s.ca.Client("", "")); got != "+PONG" {
			t.Fatalf("a new client beside %d stalled ones: %s", i, got)
		}
	}
	s.certificates.limits.Store(&handshakeLimits{time.Second, 20})
	for i, nc := range append(stalled[:40], stall()) { // the oldest, and one whose time is over
		if _, err := nc.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("stalled client %d is still connected", i)
		}
	}
	bystander.expect("+PONG", "PING")
	plain := s.dial(t)
	plain.send("PING\r\n")
	if got := plain.reply(); strings.Contains(got, "PONG") {
		t.Errorf("a client without TLS: %s", got)
	}
	bystander.expect("[tls-port 1]", "CONFIG", "GET", "tls-port")
	if got := bystander.do("INFO", "server"); !strings.Contains(got, "tcp_port:0") {
		t.Errorf("INFO with TLS only: %s", got)
	}
}

// TestTLSFiles tells in one line what is wrong with the files of the settings.
func TestTLSFiles(t *testing.T) {
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	encrypted, old := encryptKey(t, key, "pass"), filepath.Join(t.TempDir(), "old.key")
	legacy := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY",
		Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}})
	if err := os.WriteFile(old, legacy, 0o600); err != nil {
		t.Fatal(err)
	}
	authorities := t.TempDir()
	empty := t.TempDir()
	der, _ := pem.Decode(read(t, ca.File))
	tlstest.WritePEM(t, filepath.Join(authorities, "ca.0"), "CERTIFICATE", der.Bytes)
	base := []string{"tls-port", "7", "tls-cert-file", cert, "tls-key-file", key, "tls-auth-clients", "no"}
	for _, tt := range []struct {
		settings []string
		err      string // part of it; "": none
	}{
		{nil, ""},
		{[]string{"tls-cert-file", ""}, "tls-port needs tls-cert-file and tls-key-file"},
		{[]string{"tls-cert-file", "/none"}, "tls-cert-file: open /none: no such file or directory"},
		{[]string{"tls-cert-file", key}, "tls-cert-file " + key + " and tls-key-file " + key},
		{[]string{"tls-key-file", encrypted, "tls-key-file-pass", "pass"}, ""},
		{[]string{"tls-key-file", encrypted, "tls-key-file-pass", "guess"}, "cannot be decrypted with " +
			"tls-key-file-pass"},
		{[]string{"tls-key-file", encrypted}, "it is encrypted, and tls-key-file-pass is not set"},
		{[]string{"tls-key-file", old}, "convert it with openssl pkcs8 -topk8"},
		{[]string{"tls-auth-clients", "yes"}, "tls-auth-clients yes needs the authorities to trust"},
		{[]string{"tls-auth-clients", "yes", "tls-ca-cert-dir", authorities}, ""},
		{[]string{"tls-auth-clients", "yes", "tls-ca-cert-dir", empty}, "it contains no certificate"},
		{[]string{"tls-ca-cert-file", key}, "it contains no certificate"},
	} {
		_, err := NewTLS(configWith(t, append(base, tt.settings...)...), quiet)
		if tt.err == "" && err != nil || tt.err != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: %v, want %q", tt.settings, err, tt.err)
		}
	}
}

// encryptKey writes a copy of a key that is encrypted with a password.
func encryptKey(t *testing.T, path, password string) string {
	t.Helper()
	block, _ := pem.Decode(read(t, path))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := pkcs8.MarshalPrivateKey(key, []byte(password), nil)
	if err != nil {
		t.Fatal(err)
	}
	encrypted := filepath.Join(t.TempDir(), "encrypted.key")
	tlstest.WritePEM(t, encrypted, "ENCRYPTED PRIVATE KEY", der)
	return encrypted
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLingerWithoutWords: whoever is told nothing gets no empty error either.
func TestLingerWithoutWords(t *testing.T) {
	for message, want := range map[string]string{"": "", "ERR no": "-ERR no\r\n"} {
		ours, theirs := net.Pipe()
		go linger(ours, message)
		got, err := io.ReadAll(theirs)
		if string(got) != want || err != nil {
			t.Errorf("%q: %q, %v", message, got, err)
		}
	}
}

// TestFailedHandshakesAreLogged with their reason, not each of them, and not a mere look at
// the port.
func TestFailedHandshakesAreLogged(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		fail         func(s *secured)
	}{
		{"plain", "the client does not speak TLS", func(s *secured) {
			nc := s.dial(t)
			nc.send("PING\r\n")
			if got, err := io.ReadAll(nc); len(got) > 0 || err != nil {
				t.Errorf("a client without TLS is answered %q, %v", got, err)
			}
		}},
		{"distrust", "certificate", func(s *secured) {
			if got := s.hello(t,
				&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}); got == "+PONG" {
				t.Error("a client trusts nobody, and goes on")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startTLS(t, "tls-auth-clients", "no")
			look := s.dial(t)
			look.Close()
			begin := time.Now()
			for range 5 {
				c.fail(s)
			}
			eventually(t, "it is logged", func() bool {
				return strings.Contains(s.log(), "TLS handshake failed")
			})
			got := s.log()
			if n, most := strings.Count(got, "TLS handshake failed"),
				1+int(time.Since(begin)/failureLogEvery); n > most || !strings.Contains(got, c.reason) {
				t.Errorf("%d lines of five failures:\n%s", n, got)
			}
		})
	}
}
