package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The limits of clients of the address.
const (
	maxConnections = 64
	maxOfAddress   = 16 // connections
	maxScrapes     = 4  // at the same time
	requestTimeout = 10 * time.Second
	idleTimeout    = 5 * time.Second
	maxHeader      = 16 << 10 // bytes
)

// Options configure Start.
type Options struct {
	// Addr is the host:port to listen on; port 0 takes a free one.
	Addr string
	// Pprof serves profiles too.
	Pprof bool
	// Version and Revision describe the program.
	Version, Revision string
	// Logger gets what goes wrong.
	Logger *slog.Logger
}

// Monitor is the HTTP server. Its methods are safe for concurrent use.
type Monitor struct {
	http     *http.Server
	listener net.Listener
	log      *slog.Logger

	mu     sync.RWMutex // held while figures are read, so that Stopping waits for that
	server *server.Server
	store  *store.Store
	tls    *server.TLS
	state  string // why the server is not ready; "" if it is

	last lastStatus
}

// Start listens and serves; until Ready, there are only the figures of the
// process. The error is one line.
func Start(o Options) (*Monitor, error) {
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			err = errors.New("the port is in use by another process")
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			err = errors.New("this machine has no such address")
		}
		return nil, fmt.Errorf("cannot listen on metrics-addr %s: %w", o.Addr, err)
	}
	limited := limit(l)
	m := &Monitor{listener: limited, log: o.Logger, state: "the data directory is being opened"}
	m.http = &http.Server{
		Handler:           m.routes(&o),
		ReadHeaderTimeout: idleTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      writeTimeout(o.Pprof),
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	limited.watch(m.http)
	go func() {
		if err := m.http.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("metrics are no longer served", "error", err)
		}
	}()
	return m, nil
}

// writeTimeout leaves time for a profile of half a minute.
func writeTimeout(profiles bool) time.Duration {
	if profiles {
		return 2 * time.Minute
	}
	return 2 * requestTimeout
}

// routes are the pages.
func (m *Monitor) routes(o *Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry(o), promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxScrapes,
		Timeout: requestTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "alive\n")
	})
	mux.HandleFunc("GET /readyz", m.readyz)
	m.addPage(mux, o.Version)
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound) // it may hold a password
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return m.guard(mux)
}

// registry holds everything that /metrics shows.
func (m *Monitor) registry(o *Options) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o),
		(*collector)(m),
	)
	return r
}

// readyz says whether clients are served.
func (m *Monitor) readyz(w http.ResponseWriter, _ *http.Request) {
	m.mu.RLock()
	reason := m.notReady()
	m.mu.RUnlock()
	if reason != "" {
		http.Error(w, reason, http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}

// notReady says why clients are not served; "" if they are. The lock is held.
func (m *Monitor) notReady() string {
	if m.state != "" {
		return m.state
	}
	if err := m.store.Failure(); err != nil {
		return "writes are refused until a restart: " + err.Error()
	}
	return m.server.NotReady()
}

// Addr is the address that is listened on.
func (m *Monitor) Addr() string { return m.listener.Addr().String() }

// Ready says that recovery is over: from now on the figures of the server and
// its store are shown, and those of certificates, which may be nil.
func (m *Monitor) Ready(s *server.Server, st *store.Store, certificates *server.TLS) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server, m.store, m.tls, m.state = s, st, certificates, ""
}

// Stopping says that the server stops. It returns when no figures are read any
// more, so that the store can be closed.
func (m *Monitor) Stopping() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server, m.store, m.tls, m.state = nil, nil, nil, "the server stops"
}

// Close ends the service, after at most a second for requests under way.
func (m *Monitor) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := m.http.Shutdown(ctx); err != nil {
		return m.http.Close()
	}
	return nil
}
