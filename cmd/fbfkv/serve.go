package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/monitor"
	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/node"
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
		log.Info("these settings of the configuration have no effect here", "settings",
			strings.Join(config.NoEffect, ", "))
	}
	for _, warning := range config.Warnings() {
		log.Warn(warning)
	}
	r := &running{config: config, file: file, log: log, files: limitClients(config, log.Logger),
		processors: runtime.GOMAXPROCS(0)}
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
	data, err := node.Open(node.Options{Config: r.config, Certificates: certificates, Users: r.users,
		OpenFiles: r.files.storage,
		Version:   versionNumber(), Logger: log.Logger})
	if err != nil {
		closeAll(listeners)
		return err
	}
	st := data.Store()
	spareProcessors(st, r.processors)
	s := server.New(server.Options{
		Store:      st,
		Config:     r.config,
		ConfigFile: r.file,
		Users:      r.users,
		Cluster:    data.Cluster(),
		Regions:    data.Regions(),
		OnChange: map[string]func(*server.Config) error{"loglevel": log.setLevel,
			"maxclients": r.files.check},
		TLS:        certificates,
		Version:    versionNumber(),
		Processors: r.processors,
		Logger:     log.Logger,
	})
	var again atomic.Bool
	data.Attach(s, func() {
		again.Store(true)
		go s.Stop(false)
	}, func() {
		s.Stop(true)
		if watched != nil {
			watched.Close()
		}
	})
	defer stopOnSignal(s, data.HandOver, log)()
	defer reloadOnSignal(certificates, log)()
	if watched != nil {
		watched.Ready(s, st, certificates)
	}
	for _, l := range listeners {
		log.Info("ready for clients", "address", l.Addr().String(), "pid", os.Getpid(), "version",
			versionNumber())
	}
	tell(daemon.SdNotifyReady, log)
	stopWatchdog := keepWatchdog(st, log)
	stopGiving := giveMemoryBack(func() int64 { return st.TrimMemory() + s.TrimMemory() })

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
	return errors.Join(err, data.Close(!s.SkipSnapshot()))
}

// startMonitor serves metrics-addr, if there is one.
func startMonitor(config *server.Config, log *slog.Logger) (*monitor.Monitor, error) {
	if config.MetricsAddr == "" {
		return nil, nil
	}
	m, err := monitor.Start(monitor.Options{Addr: config.MetricsAddr, Pprof: config.Pprof,
		Version: versionNumber(), Revision: revision(), Logger: log})
	if err == nil {
		log.Info("metrics are served", "address", m.Addr(), "status_page", "http://"+m.Addr()+"/", "pprof",
			config.Pprof)
	}
	return m, err
}

// listen opens the ports that the settings ask for, plain ones first.
func listen(config *server.Config, log *slog.Logger) (all []net.Listener, certificates *server.TLS,
	err error) {
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
// unless GOMAXPROCS sets the number.
func spareProcessors(st *store.Store, n int) {
	if st.Fsync() == store.Always && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n + waitForDisk)
	}
}

// closeAll closes listeners.
func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
