package tlstest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Case is a certificate, with its key, that a server shows to another one.
type Case struct {
	Name      string
	Cert, Key string // paths
	// Server: it is one for servers of the authority. Named: and one for 127.0.0.1.
	Server, Named bool
}

// Cases returns certificates of all kinds that an authority, which others must not be taken for,
// could have issued, and some that it did not.
func Cases(t testing.TB, a *Authority) (all []Case) {
	t.Helper()
	add := func(by *Authority, name string, server, named bool, change func(*x509.Certificate)) {
		c := Case{Name: name, Server: server, Named: named}
		c.Cert, c.Key = by.IssueAs(name, change)
		all = append(all, c)
	}
	usage := func(of ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = of }
	}
	const forServers, forClients = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	add(a, "serverAuth", true, true, usage(forServers))
	add(a, "serverAuth and clientAuth", true, true, usage(forServers, forClients))
	add(a, "serverAuth and any", true, true, usage(x509.ExtKeyUsageAny, forServers))
	add(a, "no extended key usage", false, false, usage())
	add(a, "clientAuth", false, false, usage(forClients))
	add(a, "any extended key usage", false, false, usage(x509.ExtKeyUsageAny))
	add(a, "codeSigning", false, false, usage(x509.ExtKeyUsageCodeSigning))
	add(a, "expired", false, false, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	add(a, "not yet valid", false, false, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = c.NotAfter, c.NotAfter.Add(time.Hour) // no test lasts until then
	})
	add(a, "another name", true, false, func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(127, 0, 0, 2)}, []string{"other.example.com"}
	})
	add(a, "no name but the subject's", true, false, func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames, c.Subject = nil, nil, pkix.Name{CommonName: "127.0.0.1"}
	})
	add(NewAuthority(t, "another"), "another authority", false, false, func(*x509.Certificate) {})
	add(NewAuthority(t, a.cert.Subject.CommonName), "another authority of the same name", false, false,
		func(*x509.Certificate) {})
	add(a.between(nil), "an intermediate authority", true, true, usage(forServers))
	add(a.between([]x509.ExtKeyUsage{forClients}), "an intermediate authority for clients", false, false,
		usage(forServers))
	return all
}

// between returns an authority that this one has signed, for these uses only, whose certificates
// are shown with its own.
func (a *Authority) between(of []x509.ExtKeyUsage) *Authority {
	a.t.Helper()
	b := &Authority{t: a.t, Dir: a.t.TempDir(), key: newKey(a.t), intermediate: true}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "intermediate"}, IsCA: true,
		BasicConstraintsValid: true, ExtKeyUsage: of,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
	}
	der := a.sign(template, a.cert, &b.key.PublicKey)
	var err error
	if b.cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	b.File = filepath.Join(b.Dir, "authority.pem")
	WritePEM(a.t, b.File, "CERTIFICATE", der)
	return b
}

// addChain appends the certificate of an intermediate authority to a file.
func (a *Authority) addChain(path string) {
	a.t.Helper()
	if !a.intermediate {
		return
	}
	text, err := os.ReadFile(a.File)
	if err != nil {
		a.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		a.t.Fatal(err)
	}
}
