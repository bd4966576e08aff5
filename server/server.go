package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// Options configure New. Store is required.
type Options struct {
	// Store is what the clients' commands act on. It outlives the Server.
	Store *store.Store
	// Config holds the settings; nil: the defaults.
	Config *Config
	// ConfigFile is the path that Config was read from, for INFO; "" if none.
	ConfigFile string
	// OnChange carries out changes by CONFIG SET that concern neither the
	// server nor the store: the func under a setting's name is called with the
	// new Config, after all values were found valid. If it fails, the change as
	// a whole is undone.
	OnChange map[string]func(*Config) error
	// TLS holds the certificates of listeners from ListenTLS, for CONFIG SET;
	// nil if there are none.
	TLS *TLS
	// Users are the users there are, see Config.OpenUsers; nil: those of Config.
	Users *acl.Users
	// Cluster is the cluster that the server is a node of, without what the settings say,
	// which New fills in; nil: none.
	Cluster *commands.Cluster
	// Regions is the server's end of regions; nil: it cannot be one. It outlives the Server.
	Regions *regions.Node
	// Version is fbfkv's version.
	Version string
	// Processors is how many processors there are to work on; 0: GOMAXPROCS, which
	// may be more, for goroutines that wait in system calls.
	Processors int
	// Dedicated gives every connection a goroutine, as where there is no event loop. A connection
	// that is not the system's has one in any case.
	Dedicated bool
	// Logger gets the server's messages; nil: slog.Default.
	Logger *slog.Logger
	// Fatal is called when the process must not go on (G8); nil: log and exit
	// with status 1.
	Fatal func(error)

	ticks <-chan time.Time // see watch; nil: one a second
}

// Server accepts clients and carries out their commands until it is stopped.
// Its methods are safe for concurrent use.
type Server struct {
	store      *store.Store
	processors int  // Options.Processors
	dedicated  bool // Options.Dedicated
	log        *slog.Logger
	onChange   map[string]func(*Config) error
	configFile string
	fatal      func(error)
	commands   commands.Server

	config    atomic.Pointer[Config]
	configSet sync.Mutex // held while settings change

	started  time.Time
	runID    string
	port     atomic.Int32 // of plain TCP; 0: none
	tlsPort  atomic.Int32 // of TLS; 0: none
	clock    atomic.Int64 // unix nanoseconds, about once a second
	ticks    <-chan time.Time
	pause    pause
	loginLog failureLog

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	conns     map[int64]*conn
	lastID    int64
	closed    totals // of connections that are gone
	stopping  bool
	noSave    bool

	loop     *eventLoop     // nil: every connection has a goroutine
	running  sync.WaitGroup // connections
	lingers  chan struct{}  // bounds goodbyes, see goodbye
	stop     chan struct{}  // closed when stopping begins
	rejected atomic.Uint64
	evicted  atomic.Uint64 // clients, see evict
	warned   atomic.Int64  // unix nanoseconds, see warnOfHTTP
	reset    totals        // what CONFIG RESETSTAT subtracts; guarded by mu
}

// totals are figures summed over connections.
type totals struct{ connections, in, out, reads, writes uint64 }

// New returns a Server that waits for Serve.
func New(o Options) *Server {
	s := &Server{
		store:      o.Store,
		log:        o.Logger,
		onChange:   map[string]func(*Config) error{},
		configFile: o.ConfigFile,
		fatal:      o.Fatal,
		processors: o.Processors,
		dedicated:  o.Dedicated,
		ticks:      o.ticks,
		started:    time.Now(),
		conns:      map[int64]*conn{},
		lingers:    make(chan struct{}, maxLingers),
		stop:       make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.fatal == nil {
		s.fatal = func(err error) {
			s.log.Error("the process stops", "error", err)
			os.Exit(1)
		}
	}
	if o.Store != nil {
		maps.Copy(s.onChange, storeChanges(o.Store))
	}
	if o.TLS != nil {
		for i := range tlsSettings {
			s.onChange[tlsSettings[i].Name] = o.TLS.Apply
		}
	}
	maps.Copy(s.onChange, s.securityChanges())
	maps.Copy(s.onChange, o.OnChange)
	config := o.Config
	if config == nil {
		config = DefaultConfig()
	}
	s.config.Store(config)
	s.clock.Store(s.started.UnixNano())
	var id [20]byte
	rand.Read(id[:])
	s.runID = hex.EncodeToString(id[:])
	s.commands.Users = o.Users
	s.fillCommands(o.Version)
	s.fillCluster(o.Cluster)
	s.commands.Regions = o.Regions
	return s
}

// ErrStopped is what Serve returns after Stop.
var ErrStopped = errors.New("server stopped")

// Serve accepts clients on the listeners, which it closes in the end, until
// Stop is called and every connection is closed, and returns ErrStopped; or
// until accepting fails for good, and returns that error. Call it once.
func (s *Server) Serve(listeners ...net.Listener) error {
	s.mu.Lock()
	s.listeners = listeners
	stopping := s.stopping
	s.mu.Unlock()
	for _, l := range listeners {
		if port, secure := listenerPort(l); secure {
			s.tlsPort.Store(int32(port))
		} else {
			s.port.Store(int32(port))
		}
	}
	if stopping {
		closeAll(listeners)
		return ErrStopped
	}
	if !s.dedicated {
		if err := s.startLoop(); err != nil {
			closeAll(listeners)
			return err
		}
	}
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { errs <- s.accept(l) }()
	}
	go s.watch()

	var first error
	for range listeners {
		if err := <-errs; first == nil {
			first = err
		}
		s.Stop(false)
	}
	s.running.Wait()
	s.loop.close()
	return first
}

// Stop begins to stop the server: no client is accepted any more, commands that
// are being carried out finish and are answered, and connections close. Those
// that have not within shutdown-timeout, or at once if now is true, are cut off.
// Stop does not wait; Serve returns when all this is done.
func (s *Server) Stop(now bool) {
	s.mu.Lock()
	first := !s.stopping
	s.stopping = true
	listeners := s.listeners
	conns := s.connections()
	s.mu.Unlock()

	if first {
		close(s.stop)
		closeAll(listeners)
		for _, c := range conns {
			c.line.stop()
		}
	}
	cut := func() {
		for _, c := range conns {
			c.line.cut()
		}
	}
	if now {
		cut()
	} else if first {
		time.AfterFunc(s.config.Load().ShutdownGrace, cut)
	}
}

// SkipSnapshot reports whether the client that stopped the server asked for no
// snapshot, as SHUTDOWN NOSAVE does.
func (s *Server) SkipSnapshot() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noSave
}

// TrimMemory leaves memory kept for later requests to come to the garbage collector
// as far as it was not needed since the last call, and returns how many bytes that
// are. It is meant to be called every few seconds. Safe for concurrent use.
func (s *Server) TrimMemory() (bytes int64) {
	s.mu.Lock()
	loop := s.loop
	s.mu.Unlock()
	return loop.trim()
}

// NotReady says why this node of a cluster does not serve its shard, and "" if it does or the
// server is no such node. Safe for concurrent use.
func (s *Server) NotReady() string {
	if s.commands.Cluster == nil {
		return ""
	}
	return s.commands.Cluster.NotReady()
}

// ShardFigures returns what this node is in its shard, and the figures of the shard's other nodes if
// it leads it; false: it is not a member of a cluster. Safe for concurrent use.
func (s *Server) ShardFigures() (f commands.ShardFigures, replicas []commands.ReplicaFigures, member bool) {
	f, member = s.commands.ShardFigures()
	return f, s.commands.ReplicaFigures(), member
}

// RegionStatus returns how the other regions are read; false: this server is no member of any.
// Safe for concurrent use.
func (s *Server) RegionStatus() (status regions.NodeStatus, member bool) {
	return s.commands.RegionStatus()
}

// connections returns the present connections; s.mu is held.
func (s *Server) connections() []*conn {
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

// watch keeps the clock and disconnects clients that are idle, or leave their
// replies unread, for too long. A look at all of them once a second costs less
// than a deadline on every read and write.
func (s *Server) watch() {
	ticks := s.ticks
	if ticks == nil {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		ticks = tick.C
	}
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticks:
			s.clock.Store(now.UnixNano())
			s.mu.Lock()
			conns := s.connections()
			sum := s.totals()
			s.mu.Unlock()
			s.commands.Observer.Sample(now, sum.in, sum.out)
			config := s.config.Load()
			for _, c := range conns {
				if reason := c.overdue(now, config); reason != "" {
					s.logVerbose("client disconnected", "client", c.session.Addr, "reason", reason)
					c.line.cut()
				}
			}
			s.evict(conns, config.MaxMemoryClients)
		}
	}
}

// evict disconnects the clients that hold the most memory, until the others together hold no more
// than the limit; those with CLIENT NO-EVICT are neither counted nor disconnected. Sizes are what
// connections note anyway, so no request pays for it.
func (s *Server) evict(conns []*conn, limit int64) {
	type holder struct {
		*conn
		bytes int64
	}
	var all []holder
	sum := int64(0)
	for _, c := range conns {
		if n := c.session.Held(); n > 0 && !c.evicted && !c.session.NoEvict() {
			all, sum = append(all, holder{c, n}), sum+n
		}
	}
	if limit == 0 || sum <= limit {
		return
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, h := range all {
		if sum <= limit {
			return
		}
		sum -= h.bytes
		h.evicted = true
		s.evicted.Add(1)
		s.log.Warn("client disconnected: all clients together hold more than maxmemory-clients", "client",
			h.session.Addr, "bytes", h.bytes)
		h.line.cut()
	}
}

// closeAll closes listeners; a second close is harmless.
func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// executable is the path of this program, for INFO.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// LevelVerbose is redis.conf's loglevel between debug and notice: what single
// clients do.
const LevelVerbose = slog.LevelInfo - 2

// logVerbose logs what happens to a single client.
func (s *Server) logVerbose(message string, args ...any) {
	s.log.Log(context.Background(), LevelVerbose, message, args...)
}

// panicked deals with a panic of a connection's goroutine, from a deferred
// function. A bug in a command costs the client its connection, and nobody else
// anything. A bug in the store costs the process: its memory may be ahead of its
// disk, and its locks may be held for ever; what was acknowledged is on disk, and
// the next start goes on from there (G8).
func (s *Server) panicked(value any, client string) {
	s.log.Error("panic while serving a client", "client", client,
		"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	if panickedIn(reflect.TypeFor[store.Store]().PkgPath()) {
		s.fatal(fmt.Errorf("panic in the store: %v", value))
	}
}

// panickedIn reports whether a function of the package was being carried out when
// the panic that is being recovered from began.
func panickedIn(path string) bool {
	var pcs [64]uintptr
	n := runtime.Callers(0, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, path+".") {
			return true
		}
		if !more {
			return false
		}
	}
}
