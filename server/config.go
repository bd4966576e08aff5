package server

import (
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
	IOLoop             string

	TLS         TLSConfig
	Observation ObservationConfig

	// Security.
	RequirePass   string
	Users         []UserLine
	ACLFile       string
	ACLLogMaxLen  int
	PubsubDefault string
	Renamed       []Rename

	// Limits of one client, in bytes.
	MaxBulk       int64
	MaxRequest    int64
	MaxOutput     OutputLimit
	ShutdownGrace time.Duration

	// Storage.
	Dir              string
	AppendOnly       bool
	AppendFsync      string
	Save             SavePoints
	Partitions       int
	Databases        int
	MaxLog           int64
	RecordMemory     int64
	RecordDirectIO   bool
	FilterMaxMemory  int64
	HotCounters      int
	BlockCache       int64
	MinFreeDisk      int64
	AcceptForgetting bool

	// General.
	LogLevel string
	LogFile  string

	// Operation.
	MetricsAddr string
	Pprof       bool
	LogFormat   string
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
		return nil, fmt.Errorf("wants pairs of seconds and changes, such as 60 1")
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

// parseOutputLimit reads `normal <hard> <soft> <soft seconds>`.
func parseOutputLimit(words []string) (OutputLimit, error) {
	if len(words) != 4 || !strings.EqualFold(words[0], "normal") {
		return OutputLimit{}, fmt.Errorf("wants: normal <hard limit> <soft limit> <soft seconds>")
	}
	var l OutputLimit
	var err error
	if l.Hard, err = parseBytes(words[1], 0, math.MaxInt64); err != nil {
		return OutputLimit{}, fmt.Errorf("hard limit: %w", err)
	}
	if l.Hard != 0 && l.Hard < 1<<20 {
		return OutputLimit{}, fmt.Errorf("the hard limit must be 0 (none) or at least 1mb")
	}
	if l.Soft, err = parseBytes(words[2], 0, math.MaxInt64); err != nil {
		return OutputLimit{}, fmt.Errorf("soft limit: %w", err)
	}
	seconds, err := parseTime(words[3], time.Second, 0, math.MaxInt32)
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
