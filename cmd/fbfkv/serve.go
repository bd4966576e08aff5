package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/monitor"
	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// serve runs the server until a signal or SHUTDOWN stops it.
func serve(config *server.Config, file string, stderr io.Writer) error {
	log, err := openLog(config, stderr)
	if err != nil {
		return err
	}
	defer log.out.Close()
	if len(config.NoEffect) > 0 {
		log.Info("these settings of the configuration have no effect here", "settings", strings.Join(config.NoEffect, ", "))
	}
	for _, warning := range config.Warnings() {
		log.Warn(warning)
	}
	r := &running{config: config, file: file, log: log, files: limitClients(config, log.Logger), processors: runtime.GOMAXPROCS(0)}
	if r.users, err = config.OpenUsers(); err != nil {
		return err
	}
	for r.again = true; r.again; {
		if err := r.serve(); err != nil {
			return err
		}
	}
	return nil
}

// running is the process while it serves. When a node becomes a member of a cluster, or
// takes over files, the process closes everything and opens it again, with the settings and
// users in force.
type running struct {
	config     *server.Config
	file       string
	log        *logging
	files      fileBudget
	users      *acl.Users
	processors int
	again      bool
}

// serve opens everything and runs the server. It sets r.again if the process is to go on.
func (r *running) serve() error {
	log := r.log
	r.again = false
	// The ports first: they are quickly had or refused, and clients that come
	// during recovery wait instead of being turned away.
	listeners, certificates, err := listen(r.config, log.Logger)
	if err != nil {
		return err
	}
	watched, err := startMonitor(r.config, log.Logger)
	if err != nil {
		closeAll(listeners)
		return err
	}
	if watched != nil {
		defer watched.Close()
	}
	data, err := openData(r.config, certificates, r.users, r.files.storage, log.Logger)
	if err != nil {
		closeAll(listeners)
		return err
	}
	spareProcessors(data.st, r.processors)
	s := server.New(server.Options{
		Store:      data.st,
		Config:     r.config,
		ConfigFile: r.file,
		Users:      r.users,
		Cluster:    data.cluster(),
		Regions:    data.regionNode(),
		OnChange:   map[string]func(*server.Config) error{"loglevel": log.setLevel, "maxclients": r.files.check},
		TLS:        certificates,
		Version:    versionNumber(),
		Processors: r.processors,
		Logger:     log.Logger,
	})
	var again atomic.Bool
	data.attach(s, func() {
		again.Store(true)
		go s.Stop(false)
	}, func() {
		s.Stop(true)
		if watched != nil {
			watched.Close()
		}
	})
	defer stopOnSignal(s, data.handOver, log)()
	defer reloadOnSignal(certificates, log)()
	if watched != nil {
		watched.Ready(s, data.st, certificates)
	}
	for _, l := range listeners {
		log.Info("ready for clients", "address", l.Addr().String(), "pid", os.Getpid(), "version", versionNumber())
	}
	tell(daemon.SdNotifyReady, log)
	stopWatchdog := keepWatchdog(data.st, log)
	stopGiving := giveMemoryBack(func() int64 { return data.st.TrimMemory() + s.TrimMemory() })

	err = s.Serve(listeners...)
	if errors.Is(err, server.ErrStopped) {
		err = nil
	}
	r.again, r.config = again.Load(), s.Config()
	if !r.again {
		tell(daemon.SdNotifyStopping, log)
	}
	stopGiving()
	stopWatchdog()
	if watched != nil {
		watched.Stopping()
	}
	return errors.Join(err, data.close(!s.SkipSnapshot()))
}

// data is an open data directory, of a server that stands alone or of a node of a cluster.
type data struct {
	st      *store.Store
	node    *clusterNode // nil: it stands alone
	regions *regionEnd   // nil: it is a node that is no member of a cluster yet
	log     *slog.Logger
}

// openData opens the data directory, of which so many files may be open.
func openData(config *server.Config, certificates *server.TLS, users *acl.Users, files int, log *slog.Logger) (data, error) {
	if config.Cluster.Enabled {
		n, err := openClusterNode(config, certificates, files, log)
		if err != nil {
			return data{}, err
		}
		if n.ctx == nil {
			return data{n.st, n, nil, log}, nil
		}
		end, err := openRegions(n.st, n.region(), config, certificates, users, log)
		if err != nil {
			return data{}, errors.Join(err, n.close(false))
		}
		return data{n.st, n, end, log}, nil
	}
	if err := cluster.CheckAlone(nil, config.Dir); err != nil {
		return data{}, err
	}
	st, err := openStore(config, files, log, func(*store.Options) {})
	if err != nil {
		return data{}, err
	}
	end, err := openRegions(st, nil, config, certificates, users, log)
	if err != nil {
		return data{}, errors.Join(err, st.Close())
	}
	return data{st, nil, end, log}, nil
}

// cluster is what commands need of the node; nil if there is none.
func (d data) cluster() *commands.Cluster {
	if d.node == nil {
		return nil
	}
	return d.node.commands()
}

// regionNode is what commands need of regions; nil if this cannot be one.
func (d data) regionNode() *regions.Node {
	if d.regions == nil {
		return nil
	}
	return d.regions.node
}

// attach connects the data with the server, as clusterNode's does.
func (d data) attach(s *server.Server, again, cutOff func()) {
	if d.node != nil {
		d.node.attach(s, again, cutOff)
	}
	if d.regions != nil {
		d.regions.server.Store(s)
	}
}

// handOver makes another node lead, if there are others.
func (d data) handOver() {
	if d.node != nil {
		d.node.handOver()
	}
}

// close closes the directory, with a snapshot if one is wanted.
func (d data) close(snapshot bool) error {
	var err error
	if d.regions != nil {
		err = d.regions.node.Close()
	}
	if d.node != nil {
		return errors.Join(err, d.node.close(snapshot))
	}
	return errors.Join(err, closeStore(d.st, snapshot, d.log))
}

// startMonitor serves metrics-addr, if there is one.
func startMonitor(config *server.Config, log *slog.Logger) (*monitor.Monitor, error) {
	if config.MetricsAddr == "" {
		return nil, nil
	}
	m, err := monitor.Start(monitor.Options{Addr: config.MetricsAddr, Pprof: config.Pprof,
		Version: versionNumber(), Revision: revision(), Logger: log})
	if err == nil {
		log.Info("metrics are served", "address", m.Addr(), "status_page", "http://"+m.Addr()+"/", "pprof", config.Pprof)
	}
	return m, err
}

// listen opens the ports that the settings ask for, plain ones first.
func listen(config *server.Config, log *slog.Logger) (all []net.Listener, certificates *server.TLS, err error) {
	if config.TLS.Port != 0 || config.Cluster.Enabled && config.Cluster.TLS || config.Region.TLS {
		if certificates, err = server.NewTLS(config, log); err != nil {
			return nil, nil, err
		}
	}
	plain, err := server.Listen(config)
	if err != nil {
		return nil, nil, err
	}
	secure, err := server.ListenTLS(config, certificates)
	if err != nil {
		closeAll(plain)
		return nil, nil, err
	}
	return append(plain, secure...), certificates, nil
}

// waitForDisk is how many of a server's workers are expected to wait for an fsync at
// a time: one carries it out, and the next group gathers behind it.
const waitForDisk = 2

// spareProcessors lets as many goroutines run as there are processors, n, while others wait
// for fsyncs. Go takes a processor
// back from a goroutine in a system call only after about as long as an fsync takes;
// so with appendfsync always, as it is at the start, Go is made to count with some more,
// unless GOMAXPROCS says how many it is to be.
func spareProcessors(st *store.Store, n int) {
	if st.Fsync() == store.Always && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n + waitForDisk)
	}
}

// openStore opens the data directory, of which so many files may be open, with options that
// change may change, and says what was found.
func openStore(config *server.Config, files int, log *slog.Logger, change func(*store.Options)) (*store.Store, error) {
	options, err := config.StoreOptions()
	if err != nil {
		return nil, err
	}
	options.Logger, options.OpenFiles = log, files
	change(&options)
	st, err := store.Open(options)
	if err != nil {
		return nil, err
	}
	found := st.Stats()
	log.Info("data directory open", "dir", config.Dir, "appendfsync", config.AppendFsync,
		"partitions", found.Partitions, "tables", len(st.Tables()), "keys", found.Recovery.Keys,
		"redone", found.Recovery.Entries, "took", found.Recovery.Took.Round(time.Millisecond))
	for _, problem := range found.Recovery.Problems {
		log.Warn("recovered from damage", "problem", problem)
	}
	return st, nil
}

// closeStore closes the data directory, with a snapshot if one is wanted.
func closeStore(st *store.Store, snapshot bool, log *slog.Logger) error {
	begin := time.Now()
	closeIt := st.Close
	if !snapshot {
		closeIt = st.CloseNow
	}
	if err := closeIt(); err != nil {
		return fmt.Errorf("closing the data directory: %w", err)
	}
	log.Info("stopped", "snapshot", snapshot, "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// closeAll closes listeners.
func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
