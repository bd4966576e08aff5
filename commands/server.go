package commands

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/commands/hotkeys"
	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/commands/tracking"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// CompatVersion is the Redis version whose commands and replies ours follow;
// clients read it from HELLO and INFO to decide what they may ask.
const CompatVersion = "7.2.4"

// Server is what commands need of the server around them: funcs that the
// server fills before it makes the first Session. A nil func means that the
// server has no such feature, and the command that needs it says so.
// It must not be copied, and is safe for concurrent use if its funcs are.
type Server struct {
	// Version is fbfkv's own version.
	Version string
	// Info returns the present figures for INFO.
	Info func() observe.ServerFigures
	// ConfigGet returns the settings whose name matches a glob-style pattern
	// (see Match), as name and value, by name.
	ConfigGet func(pattern string) [][2]string
	// ConfigSet changes settings, all of them or none; names are distinct, in
	// lower case, and known to ConfigGet. A *ConfigError blames one setting.
	ConfigSet func(pairs [][2]string) error
	// ConfigRewrite writes the present settings to the configuration file.
	ConfigRewrite func() error
	// ResetStats zeroes the server's own totals (CONFIG RESETSTAT).
	ResetStats func()
	// Table is the command table; nil: Commands.
	Table *Table
	// Users are the users there are, of this package's Catalog; nil: the user
	// default alone, who needs no password.
	Users *acl.Users
	// ACLLog keeps what was denied; nil: a log of the default length.
	ACLLog *acl.Log
	// LoadUsers and SaveUsers are ACL LOAD and ACL SAVE; nil: there is no aclfile.
	// LoadUsers reads the file and puts its users in the place of Users'.
	LoadUsers, SaveUsers func() error
	// LoginFailed is told of each failed login and the user that was named.
	LoginFailed func(s *Session, user string)
	// Audited is told of each administrative act when it has been carried out, as
	// one line without passwords.
	Audited func(s *Session, command string)
	// Stopping is closed when the server stops; nil: never.
	Stopping <-chan struct{}
	// Sessions returns the connected clients.
	Sessions func() []*Session
	// Kill closes the connections of the sessions that match and returns how
	// many there were.
	Kill func(match func(*Session) bool) int
	// Pause holds back commands until a time, all of them or only writes; of
	// several pauses the longest time and the strictest mode count. The zero time
	// ends them.
	Pause func(until time.Time, writesOnly bool)
	// Shutdown stops the server and returns only if it cannot: save asks for
	// a snapshot first, now for not waiting for clients.
	Shutdown func(save, now bool) error

	// BackupPath returns the absolute path that BACKUP writes to for a name, or why it must not;
	// nil: to none.
	BackupPath func(name string) (string, error)

	// Push sends bytes to a client beside its replies; it may wait for the
	// client to read. Only one goroutine at a time calls it for a client.
	Push func(ses *Session, b []byte) error

	// Cluster is the cluster that the server is a node of; nil: none.
	Cluster *Cluster
	// Regions is this server's end of regions, also if it is no member yet; nil: it cannot be one.
	Regions *regions.Node

	// Execute takes the place of the store's Execute; nil: that one. It is there
	// to measure what everything but the store costs.
	Execute func(*store.Batch)

	// NewBloom returns the options of a Bloom filter that is made without any, which nobody
	// changes; nil: 100 items, error 0.01, expansion 2.
	NewBloom func() *store.BloomOptions

	// Observer counts and watches what is carried out.
	Observer observe.Observer

	tracking tracking.Hub
	hotkeys  hotkeys.Hub

	logins  loginGuard
	blocked atomic.Int64 // clients that wait for a leader or for replicas
	once    sync.Once
}

// ConfigError is a refusal of CONFIG SET that blames one setting.
type ConfigError struct {
	Name    string // of the setting
	Reason  string // e.g. "argument must be between 0 and 65535 inclusive"
	Unknown bool   // there is no setting of this name
}

// Error renders the reason with the setting's name.
func (e *ConfigError) Error() string { return e.Name + ": " + e.Reason }

// prepare fills in what a server may leave out.
func (s *Server) prepare() {
	s.once.Do(func() {
		if s.Table == nil {
			s.Table = Commands
		}
		if s.Users == nil {
			s.Users = acl.NewUsers(catalog)
		}
		if s.ACLLog == nil {
			s.ACLLog = new(acl.Log)
		}
	})
}

// Blocked returns how many clients wait for the leader of a shard or, with WAIT, for replicas.
func (s *Server) Blocked() int { return int(s.blocked.Load()) }

// newBloom is NewBloom, or its default.
func (s *Server) newBloom() *store.BloomOptions {
	if s.NewBloom == nil {
		return &store.BloomOptions{Error: 0.01, Capacity: 100, Expansion: 2}
	}
	return s.NewBloom()
}

// figures returns the server's figures, zero if it has none.
func (s *Server) figures() observe.ServerFigures {
	if s.Info == nil {
		return observe.ServerFigures{}
	}
	return s.Info()
}
