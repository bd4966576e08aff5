package main

import (
	"context"
	"crypto/x509"
	"encoding/csv"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/tools/process"
)

// measured are the servers of a group of rows.
type measured struct {
	t       *table
	row     *row
	servers map[string]*process.Process // by load.where
	secure  map[string]string           // over TLS: their ports
	dir     string                      // of the certificate
	filled  []load
}

// where names the server that a load goes to.
func (l load) where() string { return fmt.Sprint(l.server, l.mode, l.args) }

// start starts the servers that some loads go to.
func (m *measured) start(ctx context.Context, loads []load) {
	for _, l := range loads {
		if m.servers[l.where()] != nil {
			continue
		}
		args := append([]string{"--appendfsync", m.row.sync()}, l.args...)
		if m.row.via == "tls" {
			args = append(args, m.tls(l.where())...)
		}
		if l.server == "redis" {
			m.servers[l.where()] = process.Must(process.Redis(ctx, m.t.redis, args...))
		} else {
			m.servers[l.where()] = startFBFKV(ctx, m.t.fbfkv, l.mode, args...)
		}
	}
}

// startFBFKV starts an fbfkv whose table default has a mode.
func startFBFKV(ctx context.Context, program, mode string, args ...string) *process.Process {
	p := process.Must(process.FBFKV(ctx, program, args...))
	if mode != "" {
		do(ctx, p, "CTABLE", "ALTER", "default", "MODE", mode)
	}
	return p
}

// tls returns the arguments of a server with the certificate of Go's test servers.
func (m *measured) tls(where string) []string {
	if m.dir == "" {
		m.dir = process.Must(os.MkdirTemp("", "fbfkv-measured-"))
	}
	s := httptest.NewTLSServer(nil)
	s.Close()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(m.dir, name)
		process.Check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	cert := write("cert.pem", "CERTIFICATE", s.Certificate().Raw)
	key := write("key.pem", "PRIVATE KEY", process.Must(x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)))
	m.secure[where] = process.FreePort()
	return []string{"--tls-port", m.secure[where], "--tls-auth-clients", "no", "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert}
}

// close ends the servers and removes what they wrote. Files that it may not remove
// are not worth an error.
func (m *measured) close() {
	for _, p := range m.servers {
		_ = p.Close()
	}
	if m.dir != "" {
		_ = os.RemoveAll(m.dir)
	}
}

// measure sends one load, while the other servers are stopped.
func (m *measured) measure(ctx context.Context, l load) *Result {
	own := m.servers[l.where()]
	for _, p := range m.servers {
		if p != own {
			process.Check(p.Pause())
			defer p.Resume()
		}
	}
	if l.counters > 0 && !slices.ContainsFunc(m.filled, l.same) {
		m.filled = append(m.filled, l)
		m.t.fill(ctx, own, l)
	}
	return takeQuiet(ctx, &m.t.quiet, func() *Result {
		if m.row.via != "" {
			return m.redisBenchmark(ctx, own, l)
		}
		return runMetered(ctx, own, m.t.options(own, l))
	})
}

// fill makes every counter of a load with one operation.
func (t *table) fill(ctx context.Context, p *process.Process, l load) {
	n := min(l.counters, t.ids)
	o := t.options(p, cincrby(256))
	o.Warmup, o.Duration, o.Count, o.Keys = 0, 0, n, fmt.Sprintf("sequence:%d", n)
	process.Must(runClean(ctx, o))
}

// redisBenchmark has redis-benchmark send a load for about some seconds. The ids are three numbers each, drawn from 10,000.
func (m *measured) redisBenchmark(ctx context.Context, p *process.Process, l load) *Result {
	_, port, _ := strings.Cut(p.Address, ":")
	args := []string{"-c", "50", "-P", strconv.Itoa(l.pipeline), "-r", "10000", "--csv", "-h", "127.0.0.1"}
	if m.row.via == "tls" {
		port, args = m.secure[l.where()], append(args, "--tls", "--insecure")
	}
	n := m.t.seconds * map[int]float64{1: 100e3, 16: 600e3, 64: 1e6}[l.pipeline]
	args = append(args, "-p", port, "-n", strconv.Itoa(max(1000, int(n))))
	if l.workload == "cincrby" {
		args = append(args, "CINCRBY", "k:__rand_int__", "__rand_int____rand_int____rand_int__", "1")
	} else {
		args = append(args, "INCRBY", "k:__rand_int__", "1")
	}
	stolen := watchSteal()
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	lines, csvErr := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err = errors.Join(err, csvErr); err != nil || len(lines) < 2 || len(lines[1]) < 7 {
		process.Check(fmt.Errorf("redis-benchmark printed no figures: %w: %s", err, out))
	}
	r := &Result{Workload: l.workload, Target: p.Address, Pipeline: l.pipeline, Steal: stolen()}
	r.Throughput = process.Must(strconv.ParseFloat(lines[1][1], 64))
	return r
}

// do sends one command.
func do(ctx context.Context, p *process.Process, args ...any) any {
	t := Target{URL: p.Address}
	process.Check(t.resolve())
	c := t.client()
	defer c.Close()
	v, err := c.Do(ctx, args...).Result()
	if err != nil {
		process.Check(fmt.Errorf("%s: %v: %w", p.Name, args, err))
	}
	return v
}

// info returns a figure of INFO.
func info(ctx context.Context, p *process.Process, name string) float64 {
	text := fmt.Sprint(do(ctx, p, "INFO", "everything"))
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:([0-9.]+)`).FindStringSubmatch(text)
	if m == nil {
		process.Check(fmt.Errorf("INFO of %s has no %s", p.Name, name))
	}
	return process.Must(strconv.ParseFloat(m[1], 64))
}
