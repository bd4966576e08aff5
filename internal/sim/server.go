package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/node"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// Ports of a machine.
const (
	clientPort  = 7001
	clusterPort = 17001
)

// bootServer starts the whole server, as the program does, on what the machine's disk holds. A
// scenario may change settings, and the options of the store; nil: it does not.
func bootServer(l *Life, change func(*server.Config), tune func(*store.Options)) (Process, error) {
	m, started := l.Machine, time.Now()
	config := server.DefaultConfig()
	config.Dir, config.Port, config.Cluster.AnnounceIP = "d", clientPort, m.Host
	change(config)
	users, err := config.OpenUsers()
	if err != nil {
		return nil, err
	}
	o := node.Options{
		Config: config, Users: users, Version: "0.0.0", Logger: l.logger(), FS: l.FS,
		ListenCluster: func() (net.Listener, error) { return l.Listen(clusterPort), nil },
		DialCluster:   l.Dial, DialRegion: l.Dial,
		Exit: func(status int) { l.Exit(fmt.Errorf("exit status %d", status)) },
		TuneStore: func(o *store.Options) {
			o.Fatal = l.Exit
			o.SnapshotInterval, o.LogFileSize = m.World.Between(500*time.Millisecond, 4*time.Second), 256<<10
			o.MaxLogBytes, o.MinFreeDisk = 2<<20, 4<<20
			o.RecordMemory, o.HotCounters, o.BlockCache = 64<<10, 16, 1<<20
			o.Clock = func() (wall, running int64) { return m.Clock(), time.Since(started).Milliseconds() }
			if tune != nil {
				tune(o)
			}
		},
		TuneCluster: func(o *cluster.Options) {
			o.Fatal = l.Exit
			o.SnapshotEvery, o.Trailing, o.ComeBackAfter = 100, 150, 5*time.Second
		},
	}
	n, err := node.Open(o)
	if err != nil {
		return nil, err
	}
	s := server.New(server.Options{Store: n.Store(), Config: config, Users: users, Cluster: n.Cluster(),
		Regions: n.Regions(),
		Version: o.Version, Logger: o.Logger, Fatal: l.Exit, Dedicated: true})
	p := &serverProcess{Node: n, server: s, life: l, served: make(chan struct{})}
	n.Attach(s, func() {
		go func() {
			m.Stop(l)
			m.Start()
		}()
	}, func() { s.Stop(true) })
	go func() {
		defer close(p.served)
		if err := s.Serve(l.Listen(clientPort)); !errors.Is(err, server.ErrStopped) && !l.Dead() {
			m.World.Fail("machine %d serves no more: %v", m.index, err)
		}
	}()
	return p, nil
}

// ServerFaults are the faults that any server may meet.
var ServerFaults = []Fault{
	{"stop", 1, func(_ *World, m *Machine) { stop(m) }},
	{"crash-while-stopping", 2, func(w *World, m *Machine) {
		m.Disk.CrashAfter(1 + w.Intn(200))
		stop(m)
	}},
}

// stop ends a server as a signal does, and starts another later.
func stop(m *Machine) {
	if l := m.Life(); l != nil {
		m.World.Go(func() {
			m.Stop(l)
			m.StartAfter(m.World.Mean(500 * time.Millisecond))
		})
	}
}

// serverProcess is a server that runs.
type serverProcess struct {
	*node.Node
	server *server.Server
	life   *Life
	served chan struct{} // closed when it serves no more
}

// Close implements Process. It hands over as the program does when it gets a signal.
func (p *serverProcess) Close() error {
	if !p.life.Dead() {
		p.HandOver()
	}
	p.server.Stop(p.life.Dead())
	<-p.served
	return p.Node.Close(true)
}

// dialUntil opens a connection, until a time.
func (l *Life) dialUntil(to string, end time.Time) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	return l.Dial(ctx, to)
}

// lines writes the lines of a process to the log of the run.
type lines struct{ l *Life }

func (s lines) Write(b []byte) (int, error) {
	s.l.Machine.World.Say("  [%d.%d] %s", s.l.Machine.index, s.l.Number, bytes.TrimSuffix(b, []byte("\n")))
	return len(b), nil
}

// logger returns the logger of a process, without times: the log of the run has virtual ones.
func (l *Life) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(lines{l},
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
}
