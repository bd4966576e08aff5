package server

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Config holds the value of every setting. What a field means, its unit, range
// and default stand in the settings table, where each is declared once;
// DefaultConfig returns the defaults. A Config that was handed to a Server does
// not change any more: CONFIG SET puts a new one in its place.
type Config struct {
	// Network.
	Bind               []string
	Port               int
	ProtectedMode      bool
	TCPKeepalive       time.Duration
	Timeout            time.Duration
	ClientWriteTimeout time.Duration
	MaxClients         int

	TLS         TLSConfig
	Observation ObservationConfig

	// Security.
	RequirePass  string
	Users        []UserLine
	ACLFile      string
	ACLLogMaxLen int
	Renamed      []Rename

	// Limits of one client, in bytes.
	MaxBulk       int64
	MaxRequest    int64
	MaxOutput     OutputLimit
	ShutdownGrace time.Duration

	// Storage.
	Dir              string
	AppendFsync      string
	Save             SavePoints
	Partitions       int
	MaxLog           int64
	FilterMaxMemory  int64
	HotCounters      int
	CacheMemory      int64
	MinFreeDisk      int64
	AcceptForgetting bool

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
	return []string{"normal", fmt.Sprint(l.Hard), fmt.Sprint(l.Soft), fmt.Sprint(int64(l.SoftTime / time.Second))}
}
