// Package peercert decides whether a certificate makes its holder a server of ours: a member of
// the cluster, or another region.
package peercert

import (
	"crypto/x509"
	"errors"
	"slices"
)

// Verify refuses a chain whose leaf is not a certificate for servers, signed by one of the
// authorities, and, unless name is empty, for that host name or IP address. The leaf has to say
// itself that it is for servers: crypto/x509 takes a certificate that says nothing, or "any use",
// for one of every kind, and authorities issue such certificates to clients.
func Verify(chain []*x509.Certificate, authorities *x509.CertPool, name string) error {
	switch {
	case len(chain) == 0:
		return errors.New("it shows no certificate")
	case authorities == nil:
		return errors.New("there is no authority to trust")
	case !slices.Contains(chain[0].ExtKeyUsage, x509.ExtKeyUsageServerAuth):
		return errors.New("its certificate is refused: it is not for servers (it needs the extended key " +
			"usage serverAuth)")
	}
	options := x509.VerifyOptions{Roots: authorities, Intermediates: x509.NewCertPool(), DNSName: name,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return errors.New("its certificate is refused: " + err.Error())
	}
	return nil
}
