package server

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/observe"
)

// fillCommands gives package commands what it needs of the server.
func (s *Server) fillCommands(version string) {
	s.commands.Version = version
	s.commands.Info = s.Figures
	s.commands.ConfigGet = s.getConfig
	s.commands.ConfigSet = s.setConfig
	if s.configFile != "" {
		s.commands.ConfigRewrite = s.rewriteConfig
	}
	s.commands.ResetStats = s.resetTotals
	s.fillSecurity()
	s.commands.Sessions = s.sessions
	s.commands.Kill = s.kill
	s.commands.Push = s.push
	s.commands.Observer.Sample(s.started, 0, 0)
	if s.store != nil {
		s.store.OnEvent(s.commands.Observer.NoteEvent)
	}
	s.commands.Observer.Tune(s.config.Load().tuning())
	s.commands.Pause = s.pause.set
	s.commands.Shutdown = s.shutdown
	s.commands.NewBloom = s.newBloom
	s.commands.BackupPath = func(name string) (string, error) { return s.config.Load().backupPath(name) }
}

// Figures returns the server's own numbers, for INFO and for reports.
func (s *Server) Figures() observe.ServerFigures {
	config := s.config.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.totals()
	polling := "go"
	if s.loop != nil {
		polling = "epoll"
	}
	held := int64(0)
	for _, c := range s.conns {
		held += c.session.Held()
	}
	return observe.ServerFigures{
		Port:                int(s.port.Load()),
		TLSPort:             int(s.tlsPort.Load()),
		RunID:               s.runID,
		Started:             s.started,
		Executable:          executable(),
		ConfigFile:          s.configFile,
		Polling:             polling,
		ConnectedClients:    len(s.conns),
		BlockedClients:      int(s.pause.held.Load()) + s.commands.Blocked(),
		MaxClients:          config.MaxClients,
		ListsBloom:          config.ListBloom,
		TotalConnections:    sum.connections - s.reset.connections,
		RejectedConnections: s.rejected.Load(),
		EvictedClients:      s.evicted.Load(),
		ClientMemory:        held,
		MaxMemoryClients:    config.MaxMemoryClients,
		NetInputBytes:       sum.in - s.reset.in,
		NetOutputBytes:      sum.out - s.reset.out,
		Reads:               sum.reads - s.reset.reads,
		Writes:              sum.writes - s.reset.writes,
		Listeners:           s.listenerLines(),
	}
}

// CommandFigures returns what is known of the commands' calls, by name, for
// reports; see observe.CommandFigures.
func (s *Server) CommandFigures() []observe.CommandFigures { return s.commands.CommandFigures() }

// ErrorFigures returns how often each kind of error was answered, by prefix.
func (s *Server) ErrorFigures() []observe.ErrorFigures {
	return s.commands.Observer.Stats.ErrorFigures()
}

// Info returns what INFO answers when it is asked for sections, such as "stats fbf".
func (s *Server) Info(sections string) string { return s.commands.InfoText(s.store, sections) }

// SlowBatches returns up to n entries of the slow log, the newest first.
func (s *Server) SlowBatches(n int64) []observe.SlowBatch {
	return s.commands.Observer.Slowlog.Latest(n)
}

// totals sums the figures of all connections since the start; s.mu is held.
func (s *Server) totals() totals {
	sum := s.closed
	for _, c := range s.conns {
		sum.add(c)
	}
	return sum
}

// add adds the figures of a connection.
func (t *totals) add(c *conn) {
	t.in += c.in.Load()
	t.out += c.out.Load()
	t.reads += c.reads.Load()
	t.writes += c.writes.Load()
}

// listenerLines describes the listeners, as Redis' INFO does: those of a kind
// together. s.mu is held.
func (s *Server) listenerLines() (lines []string) {
	for _, kind := range []string{"tcp", "tls"} {
		line, at := "name="+kind, 0
		for _, l := range s.listeners {
			port, secure := listenerPort(l)
			host, _, err := net.SplitHostPort(l.Addr().String())
			if secure == (kind == "tls") && err == nil {
				line, at = line+",bind="+host, port
			}
		}
		if at != 0 {
			lines = append(lines, line+",port="+strconv.Itoa(at))
		}
	}
	return lines
}

// resetTotals is CONFIG RESETSTAT.
func (s *Server) resetTotals() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset = s.totals()
	s.rejected.Store(0)
}

// sessions returns the connected clients, oldest first.
func (s *Server) sessions() []*commands.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*commands.Session, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c.session)
	}
	slices.SortFunc(list, func(a, b *commands.Session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// kill disconnects clients.
func (s *Server) kill(match func(*commands.Session) bool) int {
	s.mu.Lock()
	conns := s.connections()
	s.mu.Unlock()
	n := 0
	for _, c := range conns {
		if match(c.session) {
			n++
			c.line.cut()
		}
	}
	if n > 0 {
		s.pause.wake()
	}
	return n
}

// shutdown is SHUTDOWN. The store writes its snapshot when it is closed, after
// Serve has returned; nothing acknowledged depends on it.
func (s *Server) shutdown(save, now bool) error {
	s.log.Info("stopping: a client sent SHUTDOWN", "save", save, "now", now)
	s.mu.Lock()
	s.noSave = !save
	s.mu.Unlock()
	s.Stop(now)
	return nil
}

// push sends bytes to a client beside its replies, for MONITOR.
func (s *Server) push(ses *commands.Session, b []byte) error {
	s.mu.Lock()
	var c *dedicated // as every client that is pushed to
	if found := s.conns[ses.ID]; found != nil {
		c, _ = found.line.(*dedicated)
	}
	s.mu.Unlock()
	if c == nil {
		return net.ErrClosed
	}
	return c.push(b)
}
