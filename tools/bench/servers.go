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
func (t *table) start(ctx context.Context, r *row, loads []load) (m *measured, err error) {
	m = &measured{t: t, row: r, servers: map[string]*process.Process{}, secure: map[string]string{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	for _, l := range loads {
		if m.servers[l.where()] != nil {
			continue
		}
		args := append([]string{"--appendfsync", r.sync()}, l.args...)
		if r.via == "tls" {
			secure, err := m.tls(l.where())
			if err != nil {
				return m, err
			}
			args = append(args, secure...)
		}
		start := func() (*process.Process, error) { return startFBFKV(ctx, t.fbfkv, l.mode, args...) }
		if l.server == "redis" {
			start = func() (*process.Process, error) { return process.Redis(ctx, t.redis, args...) }
		}
		if m.servers[l.where()], err = start(); err != nil {
			delete(m.servers, l.where())
			return m, err
		}
	}
	return m, nil
}

// startFBFKV starts an fbfkv whose table default has a mode.
func startFBFKV(ctx context.Context, program, mode string, args ...string) (*process.Process, error) {
	p, err := process.FBFKV(ctx, program, args...)
	if err != nil || mode == "" {
		return p, err
	}
	if err := do(ctx, p, "CTABLE", "ALTER", "default", "MODE", mode); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// tls returns the arguments of a server with a certificate, which is that of Go's test servers.
func (m *measured) tls(where string) ([]string, error) {
	if m.dir == "" {
		dir, err := os.MkdirTemp("", "fbfkv-measured-")
		if err != nil {
			return nil, err
		}
		m.dir = dir
	}
	s := httptest.NewTLSServer(nil)
	s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	write := func(name, kind string, der []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		err = errors.Join(err, os.WriteFile(filepath.Join(m.dir, name), text, 0o600))
	}
	write("cert.pem", "CERTIFICATE", s.Certificate().Raw)
	write("key.pem", "PRIVATE KEY", key)
	port, portErr := process.FreePort()
	m.secure[where] = port
	return []string{"--tls-port", port, "--tls-auth-clients", "no", "--tls-cert-file", filepath.Join(m.dir, "cert.pem"),
		"--tls-key-file", filepath.Join(m.dir, "key.pem"), "--tls-ca-cert-file", filepath.Join(m.dir, "cert.pem")}, errors.Join(err, portErr)
}

// close ends the servers and removes what they wrote. What is left behind for want of
// a right to remove it is not worth an error.
func (m *measured) close() {
	for _, p := range m.servers {
		_ = p.Close()
	}
	if m.dir != "" {
		_ = os.RemoveAll(m.dir)
	}
}

// measure sends one load, while the other servers stand still.
func (m *measured) measure(ctx context.Context, l load) (*Result, error) {
	own := m.servers[l.where()]
	for _, p := range m.servers {
		if p != own {
			if err := p.Pause(); err != nil {
				return nil, err
			}
			defer p.Resume()
		}
	}
	if l.counters > 0 && !slices.ContainsFunc(m.filled, l.same) {
		m.filled = append(m.filled, l)
		if err := m.t.fill(ctx, own, l); err != nil {
			return nil, err
		}
	}
	return takeQuiet(ctx, &m.t.quiet, func() (*Result, error) {
		if m.row.via != "" {
			return m.redisBenchmark(ctx, own, l)
		}
		return runMetered(ctx, own, m.t.options(own, l))
	})
}

// fillPipeline is how deep the pipelines are that make every counter.
const fillPipeline = 256

// fill makes every counter of a load with one operation.
func (t *table) fill(ctx context.Context, p *process.Process, l load) error {
	n := min(l.counters, t.ids)
	o := t.options(p, cincrby(fillPipeline))
	o.Warmup, o.Duration, o.Count, o.Keys = 0, 0, n, fmt.Sprintf("sequence:%d", n)
	_, err := runClean(ctx, o)
	return err
}

// redisBenchmark has redis-benchmark send a load for about some seconds. The ids are three numbers each, drawn from 10,000.
func (m *measured) redisBenchmark(ctx context.Context, p *process.Process, l load) (*Result, error) {
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
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: %w: %s", err, out)
	}
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) < 2 || len(lines[1]) < 7 {
		return nil, fmt.Errorf("redis-benchmark printed no figures: %w: %s", err, out)
	}
	r := &Result{Workload: l.workload, Target: p.Address, Pipeline: l.pipeline, Steal: stolen()}
	r.Throughput, err = strconv.ParseFloat(lines[1][1], 64)
	return r, err
}

// do sends one command.
func do(ctx context.Context, p *process.Process, args ...any) error {
	c := clientOf(p)
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%s: %v: %w", p.Name, args, err)
	}
	return nil
}

// info returns a figure of INFO.
func info(ctx context.Context, p *process.Process, name string) (float64, error) {
	c := clientOf(p)
	defer c.Close()
	text, err := c.Info(ctx, "everything").Result()
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:([0-9.]+)`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("INFO of %s has no %s", p.Name, name)
	}
	return strconv.ParseFloat(m[1], 64)
}
