// Package tlstest makes certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates and has a directory for their files.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// intermediate: another authority has signed its certificate.
	intermediate bool
	// Dir holds the files; File is the authority's own certificate, in PEM.
	Dir, File string
}

// NewAuthority makes an authority whose files live as long as the test.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, Dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
	}
	der := a.sign(template, template, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = filepath.Join(a.Dir, "authority.pem")
	WritePEM(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate and a key for 127.0.0.1 and localhost that serve
// for both ends of a connection until the given time. It returns the paths of
// their files, and replaces those that it issued under that name before.
func (a *Authority) Issue(name string, until time.Time) (cert, key string) {
	a.t.Helper()
	return a.IssueAs(name, func(c *x509.Certificate) { c.NotAfter = until })
}

// IssueAs is Issue for a certificate that change may change before it is signed.
func (a *Authority) IssueAs(name string, change func(*x509.Certificate)) (cert, key string) {
	a.t.Helper()
	private := newKey(a.t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der := a.sign(template, a.cert, &private.PublicKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(a.Dir, name+".crt"), filepath.Join(a.Dir, name+".key")
	WritePEM(a.t, cert, "CERTIFICATE", der)
	a.addChain(cert)
	WritePEM(a.t, key, "PRIVATE KEY", keyDER)
	return cert, key
}

// Client returns the configuration of a client that trusts the authority and,
// if the paths are not empty, shows a certificate.
func (a *Authority) Client(cert, key string) *tls.Config {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	c := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			a.t.Fatal(err)
		}
		// Shown even if the server names other authorities.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &pair, nil
		}
	}
	return c
}

// sign returns a certificate signed by the authority.
func (a *Authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// WritePEM replaces a file by one PEM block.
func WritePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
