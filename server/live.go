package server

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/store"
)

// getConfig returns the settings whose name matches a pattern, by name.
func (s *Server) getConfig(pattern string) [][2]string {
	config := s.config.Load()
	var found [][2]string
	for i := range Settings {
		if set := &Settings[i]; !set.Lines && commands.Match([]byte(strings.ToLower(pattern)), []byte(set.Name)) {
			found = append(found, [2]string{set.Name, set.Format(config)})
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
		MaxLogBytes:           c.MaxLog,
		RecordMemory:          c.CacheMemory / 2,
		FilterMaxMemory:       orNone(c.FilterMaxMemory),
		HotCounters:           c.HotCounters,
		BlockCache:            c.CacheMemory / 2,
		MinFreeDisk:           orNone(c.MinFreeDisk),
		Beside:                c.beside(),
		AcceptForgottenWindow: c.AcceptForgetting,
	}, err
}

// beside returns what the settings have in dir beside the data: the names of aclfile
// and logfile there, or of the directories that hold them.
func (c *Config) beside() (names []string) {
	for _, path := range []string{c.aclPath(), c.LogFile} {
		inside, err := filepath.Rel(absolute(c.Dir), absolute(path))
		if name, _, _ := strings.Cut(inside, string(filepath.Separator)); path != "" && err == nil && name != ".." {
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
