package integration

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/server/tlstest"
	"github.com/redis/go-redis/v9"
)

// tlsServer starts the program with a TLS port only. Clients need a certificate.
func tlsServer(t *testing.T) (s *server, ca *tlstest.Authority) {
	ca = tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	s = startServer(t, "--tls-port", fixedPort(t), "--port", "0", "--tls-cert-file", cert, "--tls-key-file",
		key,
		"--tls-ca-cert-file", ca.File)
	return s, ca
}

// TestTLSRedisCLI uses redis-cli --tls with a certificate, without, and without
// TLS.
func TestTLSRedisCLI(t *testing.T) {
	t.Parallel()
	s, ca := tlsServer(t)
	cert, key := ca.Issue("client", time.Now().Add(time.Hour))
	trust := []string{"--tls", "--cacert", ca.File}
	shown := append(trust, "--cert", cert, "--key", key)
	for range 2 {
		if got := s.cli(append(shown, "CINCRBY", "k", "op", "5")...); got != "(integer) 5" {
			t.Errorf("redis-cli --tls: %s", got)
		}
	}
	for _, command := range [][]string{{"CLIENT", "LIST"}, {"INFO", "server"}} {
		if got := s.cli(append(shown, command...)...); !strings.Contains(got, "addr=127.0.0.1:") &&
			!strings.Contains(got, "tcp_port:0") {
			t.Errorf("%s over TLS: %s", command, got)
		}
	}
	for _, args := range [][]string{trust, nil} {
		if got := s.cli(append(args, "CINCRBY", "k", "other", "5")...); !strings.Contains(got, "rror:") {
			t.Errorf("redis-cli %s: %s", args, got)
		}
	}
	if got := s.cli(append(shown, "GET", "k")...); got != `"5"` {
		t.Errorf("GET: %s", got)
	}
}

// TestTLSGoRedis works over TLS with pipelines while the certificate is replaced
// and SIGHUP tells the server so, across a kill -9.
func TestTLSGoRedis(t *testing.T) {
	t.Parallel()
	s, ca := tlsServer(t)
	cert, key := ca.Issue("client", time.Now().Add(time.Hour))
	config := ca.Client(cert, key)
	c := s.client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, s.address())
		}
	})
	ctx := context.Background()
	increment := func(id string) bool {
		pipeline := c.Pipeline()
		for range 100 {
			pipeline.Do(ctx, "CINCRBY", "k", id, 1)
		}
		_, err := pipeline.Exec(ctx)
		return err == nil
	}
	if !increment("first") {
		t.Error("a pipeline over TLS fails")
	}
	ca.Issue("server", time.Now().Add(time.Hour))
	s.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, patience, "the certificate is read again", func() bool {
		return strings.Contains(s.log.String(), "SIGHUP: TLS certificates read again")
	})
	if !increment("second") {
		t.Error("a client that was connected before SIGHUP fails")
	}
	s.crash()
	eventually(t, patience, "a retry is answered", func() bool { return increment("first") })
	if got, err := c.Get(ctx, "k").Int(); got != 2 || err != nil {
		t.Errorf("k is %d, %v, want 2", got, err)
	}
}

// TestTLSRefusesToStart says in one line what is wrong with the settings.
func TestTLSRefusesToStart(t *testing.T) {
	t.Parallel()
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	other, _ := ca.Issue("other", time.Now().Add(time.Hour))
	port := fixedPort(t)
	base := []string{"--dir", t.TempDir(), "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key}
	start := func(args ...string) *exec.Cmd { return exec.Command(program, append(base, args...)...) }
	refusesCmd(t, "tls-port needs tls-cert-file and tls-key-file", exec.Command(program, "--tls-port", port))
	refusesCmd(t, "tls-auth-clients yes needs the authorities", start("--port", "0"))
	refusesCmd(t, "port and tls-port are both "+port, start("--port", port, "--tls-auth-clients", "no"))
	refusesCmd(t, "--tls-protocols: TLSv1 is broken and not supported", start("--tls-protocols", "TLSv1"))
	base[5] = other
	refusesCmd(t, "private key does not match public key", start("--port", "0", "--tls-auth-clients", "no"))
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	refusesCmd(t, "tls-cert-file: open .*: no such file", start("--port", "0", "--tls-auth-clients", "no"))
}

// TestTLSBackup has the subcommand speak to a server that speaks TLS only.
func TestTLSBackup(t *testing.T) {
	t.Parallel()
	s, ca := tlsServer(t)
	cert, key := ca.Issue("client", time.Now().Add(time.Hour))
	dir := filepath.Join(t.TempDir(), "copy")
	args := []string{"backup", s.address(), "--tls", "--cacert", ca.File}
	if out, code := fbfkv(t, append(args, dir)...); code != 1 ||
		!strings.Contains(out, "the connection failed") {
		t.Errorf("without a certificate: status %d, %s", code, out)
	}
	if out, code := fbfkv(t, append(args, "--cert", cert, dir)...); code != 1 ||
		!strings.Contains(out, "--cert and --key") {
		t.Errorf("without a key: status %d, %s", code, out)
	}
	if out, code := fbfkv(t, append(args, "--cert", cert, "--key", key, dir)...); code != 0 {
		t.Errorf("with a certificate: status %d, %s", code, out)
	}
	if out, code := fbfkv(t, "check", dir); code != 0 {
		t.Errorf("the copy: status %d, %s", code, out)
	}
}
