package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/store"
)

// Config holds the value of every setting. The settings table declares the meaning,
// unit, range and default of each field once;
// DefaultConfig returns the defaults. A Config that was handed to a Server does
// not change any more: CONFIG SET puts a new one in its place.
type Config struct {
	// Network.
	Bind             []string
	Port             int
	ProtectedMode    bool
	TCPKeepalive     time.Duration
	Timeout          time.Duration
	MaxClients       int
	MaxMemoryClients int64 // bytes; 0: no limit

	TLS         TLSConfig
	Cluster     ClusterConfig
	Region      RegionConfig
	Observation ObservationConfig

	// Security.
	RequirePass string
	Users       []UserLine
	ACLFile     string
	Renamed     []Rename

	// Limits of one client, in bytes.
	MaxBulk       int64
	MaxRequest    int64
	MaxOutput     OutputLimit
	ShutdownGrace time.Duration

	// Storage.
	Dir              string
	BackupDir        string
	AppendFsync      string
	Save             SavePoints
	Partitions       int
	FilterMaxMemory  int64
	HotCounters      int
	CacheMemory      int64
	MinFreeDisk      int64
	FollowBacklog    int64
	AcceptForgetting bool

	// Sketches.
	Bloom     store.BloomOptions
	ListBloom bool

	// General.
	LogLevel string
	LogFile  string

	// Operation.
	MetricsAddr string
	Pprof       bool
	LogFormat   string

	// NoEffect is what a file or a command line asked for that has no effect here.
	NoEffect []string
}

// DefaultConfig returns the defaults of all settings.
func DefaultConfig() *Config {
	c := new(Config)
	for i := range Settings {
		s := &Settings[i]
		words, _ := splitWords(s.Default)
		if err := s.kind.parse(c, words); err != nil {
			panic(fmt.Sprintf("server: default of %s: %v", s.Name, err))
		}
	}
	return c
}

// SavePoints is the setting `save`: pairs of seconds and changes, as in Redis.
type SavePoints []SavePoint

// SavePoint asks for a snapshot after so long, if there were so many changes.
type SavePoint struct{ Seconds, Changes int }

// Interval is the time between two snapshots: the shortest of the points,
// since a snapshot taken early never harms; 0 if there is none.
func (p SavePoints) Interval() time.Duration {
	shortest := 0
	for _, point := range p {
		if shortest == 0 || point.Seconds < shortest {
			shortest = point.Seconds
		}
	}
	return time.Duration(shortest) * time.Second
}

// parseSavePoints reads `seconds changes` pairs; no words, or one that is
// empty, are no points.
func parseSavePoints(words []string) (SavePoints, error) {
	if len(words) == 1 && words[0] == "" {
		return nil, nil
	}
	if len(words)%2 != 0 {
		return nil, fmt.Errorf("expected pairs of seconds and changes, such as 60 1")
	}
	var points SavePoints
	for ; len(words) > 0; words = words[2:] {
		seconds, err := parseTime(words[0], time.Second, 1, math.MaxInt32)
		if err != nil {
			return nil, fmt.Errorf("seconds: %w", err)
		}
		changes, err := parseInteger(words[1], 0, math.MaxInt32)
		if err != nil {
			return nil, fmt.Errorf("changes: %w", err)
		}
		points = append(points, SavePoint{int(seconds), int(changes)})
	}
	return points, nil
}

// words renders the points as they are written in a configuration.
func (p SavePoints) words() []string {
	var words []string
	for _, point := range p {
		words = append(words, fmt.Sprint(point.Seconds), fmt.Sprint(point.Changes))
	}
	return words
}

// OutputLimit is the setting `client-output-buffer-limit` for normal clients, of
// which alone there are any here. A connection answers a bounded part of a
// pipeline, and writes that out before it goes on, so that only a single huge
// reply can grow its buffer, and never over time.
type OutputLimit struct {
	Hard int64 // bytes of replies at most; 0: no bound
	// A client may leave more than Soft bytes unread for less than SoftTime;
	// Soft 0: no bound.
	Soft     int64
	SoftTime time.Duration
}

// outputLimits is the kind of client-output-buffer-limit: a limit for each of one
// or more classes of clients. Those classes that Redis has and that do not exist
// here are read and have no effect.
func outputLimits() kind {
	return kind{
		parse: func(c *Config, words []string) error {
			if len(words) == 0 || len(words)%4 != 0 {
				return errors.New("expected, once or more: <class> <hard limit> <soft limit> <soft seconds>")
			}
			limit, idle := c.MaxOutput, []string(nil)
			for ; len(words) > 0; words = words[4:] {
				l, err := parseOutputLimit(words[1:4])
				switch class := strings.ToLower(words[0]); {
				case err != nil:
					return err
				case class == "replica" || class == "slave" || class == "pubsub":
					idle = append(idle, class)
				case class != "normal":
					return fmt.Errorf("%.40q is not a class of clients (normal, replica, pubsub)", class)
				case l.Hard != 0 && l.Hard < 1<<20:
					return errors.New("the hard limit must be 0 (none) or at least 1mb")
				default:
					limit = l
				}
			}
			c.MaxOutput = limit
			for _, class := range idle {
				c.noEffect("client-output-buffer-limit " + class)
			}
			return nil
		},
		format: func(c *Config) []string { return c.MaxOutput.words() },
		syntax: "normal <hard> <soft> <s>",
		list:   true,
	}
}

// parseOutputLimit reads `<hard> <soft> <soft seconds>`.
func parseOutputLimit(words []string) (OutputLimit, error) {
	var l OutputLimit
	var err error
	if l.Hard, err = parseBytes(words[0], 0, math.MaxInt64); err != nil {
		return OutputLimit{}, fmt.Errorf("hard limit: %w", err)
	}
	if l.Soft, err = parseBytes(words[1], 0, math.MaxInt64); err != nil {
		return OutputLimit{}, fmt.Errorf("soft limit: %w", err)
	}
	seconds, err := parseTime(words[2], time.Second, 0, math.MaxInt32)
	if err != nil {
		return OutputLimit{}, fmt.Errorf("soft seconds: %w", err)
	}
	l.SoftTime = time.Duration(seconds) * time.Second
	return l, nil
}

// words renders the limit as it is written in a configuration.
func (l OutputLimit) words() []string {
	return []string{"normal", fmt.Sprint(l.Hard), fmt.Sprint(l.Soft),
		fmt.Sprint(int64(l.SoftTime / time.Second))}
}

// getConfig returns the settings whose name matches a pattern, by name.
func (s *Server) getConfig(pattern string) [][2]string {
	config := s.config.Load()
	var found [][2]string
	for i := range Settings {
		if set := &Settings[i]; !set.Lines &&
			commands.Match([]byte(strings.ToLower(pattern)), []byte(set.Name)) {
			found = append(found, [2]string{set.Name, set.show(config)})
		}
	}
	slices.SortFunc(found, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	return found
}

// setConfig changes settings, all of them or none.
func (s *Server) setConfig(pairs [][2]string) error {
	s.configSet.Lock()
	defer s.configSet.Unlock()
	old := s.config.Load()
	config := *old
	seen := map[*Setting]bool{}
	for _, p := range pairs {
		set := LookUp(p[0])
		if set == nil || set.Lines {
			return &commands.ConfigError{Name: p[0], Unknown: true}
		}
		err := error(nil)
		switch {
		case !set.Mutable:
			err = errors.New("can't set immutable config")
		case seen[set]:
			err = errors.New("duplicate parameter")
		default:
			err = set.Set(&config, p[1])
		}
		if err != nil {
			return &commands.ConfigError{Name: p[0], Reason: err.Error()}
		}
		seen[set] = true
	}
	if err := s.carryOut(pairs, old, &config); err != nil {
		return err
	}
	s.config.Store(&config)
	s.commands.Observer.Tune(config.tuning())
	return nil
}

// rewriteConfig is CONFIG REWRITE.
func (s *Server) rewriteConfig() error {
	s.configSet.Lock()
	defer s.configSet.Unlock()
	config := *s.config.Load()
	config.Users = s.userLines(&config)
	return RewriteConfigFile(s.configFile, &config)
}

// carryOut tells the rest of the program about changed settings, and takes it
// back if one change fails.
func (s *Server) carryOut(pairs [][2]string, old, config *Config) error {
	for i, p := range pairs {
		apply := s.onChange[LookUp(p[0]).Name]
		if apply == nil {
			continue
		}
		if err := apply(config); err != nil {
			for _, done := range pairs[:i] {
				if undo := s.onChange[LookUp(done[0]).Name]; undo != nil {
					if err := undo(old); err != nil {
						s.log.Error("cannot undo CONFIG SET", "setting", done[0], "error", err)
					}
				}
			}
			return &commands.ConfigError{Name: p[0], Reason: err.Error()}
		}
	}
	return nil
}

// storeChanges carries out changed settings in the store.
func storeChanges(st *store.Store) map[string]func(*Config) error {
	return map[string]func(*Config) error{
		"appendfsync": func(c *Config) error {
			fsync, err := store.ParseFsync(c.AppendFsync)
			if err == nil {
				err = c.checkFsync()
			}
			if err != nil {
				return err
			}
			return st.SetFsync(fsync)
		},
		"save": func(c *Config) error {
			st.SetSnapshotInterval(c.SnapshotInterval())
			return nil
		},
		"filter-maxmemory": func(c *Config) error {
			st.SetFilterMaxMemory(c.FilterMaxMemory)
			return nil
		},
	}
}

// StoreOptions returns the settings that are the store's. This is where cache-memory
// is divided.
func (c *Config) StoreOptions() (store.Options, error) {
	fsync, err := store.ParseFsync(c.AppendFsync)
	return store.Options{
		Dir:                   c.Dir,
		Fsync:                 fsync,
		Partitions:            c.Partitions,
		SnapshotInterval:      c.SnapshotInterval(),
		RecordMemory:          c.CacheMemory / 2,
		FilterMaxMemory:       orNone(c.FilterMaxMemory),
		HotCounters:           c.HotCounters,
		BlockCache:            c.CacheMemory / 2,
		MinFreeDisk:           orNone(c.MinFreeDisk),
		Beside:                c.beside(),
		AcceptForgottenWindow: c.AcceptForgetting,
		FollowBacklog:         c.FollowBacklog,
		RegionBacklog:         c.Region.Backlog,
		RegionAsk:             c.Cluster.NodeTimeout,
		RegionRetention:       c.Region.Retention,
		RegionRefuse:          c.Region.Policy == "refuse",
	}, err
}

// beside returns what the settings have in dir beside the data: the names of aclfile
// and logfile there, or of the directories that hold them.
func (c *Config) beside() (names []string) {
	for _, path := range []string{c.aclPath(), c.LogFile} {
		inside, err := filepath.Rel(absolute(c.Dir), absolute(path))
		if name, _, _ := strings.Cut(inside, string(filepath.Separator)); path != "" && err == nil &&
			name != ".." {
			names = append(names, name)
		}
	}
	return names
}

// SnapshotInterval is the time between two snapshots; negative: only on demand.
func (c *Config) SnapshotInterval() time.Duration { return orNone(c.Save.Interval()) }

// orNone turns a setting's 0, "none", into a store option's, which is negative.
func orNone[T int64 | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// Check returns all that would keep a server with these settings from starting, as
// far as it shows without the data directory and without opening ports: which
// settings do not go together, and whether the files that they name can be used.
func (c *Config) Check() (faults Faults) {
	tlsFiles := func() error {
		if c.TLS.Port == 0 && !(c.Cluster.Enabled && c.Cluster.TLS && c.TLS.hasFiles()) &&
			!(c.Region.TLS && c.TLS.hasFiles()) {
			return nil
		}
		config, err := c.TLS.read()
		if err == nil {
			_, err = c.TLS.ofNodes(config)
		}
		return err
	}
	users := func() error {
		_, err := c.OpenUsers()
		return err
	}
	for _, check := range []func() error{users, c.checkPorts, tlsFiles, c.checkLogFile} {
		if err := check(); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return append(append(faults, c.clusterFaults()...), c.regionFaults()...)
}

// checkPorts refuses one port for two purposes.
func (c *Config) checkPorts() error {
	if c.TLS.Port != 0 && c.Port == c.TLS.Port {
		return fmt.Errorf("port and tls-port are both %d: give each its own, or set port to 0", c.Port)
	}
	return nil
}

// checkLogFile refuses a file that cannot be appended to. It creates none.
func (c *Config) checkLogFile() error {
	if c.LogFile == "" {
		return nil
	}
	f, err := os.OpenFile(c.LogFile, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.ReadDir(filepath.Dir(c.LogFile))
	}
	if err != nil {
		return fmt.Errorf("logfile: %w", err)
	}
	return nil
}
