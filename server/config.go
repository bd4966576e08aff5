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
		seconds, err := parseInteger(words[0], 1, math.MaxInt32)
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

// OutputLimit is the setting `client-output-buffer-limit`, of which only the
// hard limit of normal clients exists here: a connection answers a bounded part
// of a pipeline, and writes that out before it goes on, so that only a single
// huge reply can grow its buffer, and never over time.
type OutputLimit struct{ Hard int64 }

// parseOutputLimit reads `normal <hard> <soft> <soft seconds>`.
func parseOutputLimit(words []string) (OutputLimit, error) {
	if len(words) != 4 || !strings.EqualFold(words[0], "normal") {
		return OutputLimit{}, fmt.Errorf("wants: normal <hard limit> 0 0")
	}
	if words[2] != "0" || words[3] != "0" {
		return OutputLimit{}, fmt.Errorf("there is no soft limit, since no output waits while commands go on: " +
			"set it and its seconds to 0")
	}
	hard, err := parseBytes(words[1], 0, math.MaxInt64)
	if err == nil && hard != 0 && hard < 1<<20 {
		err = fmt.Errorf("the hard limit must be 0 (none) or at least 1mb")
	}
	return OutputLimit{hard}, err
}

// words renders the limit as it is written in a configuration.
func (l OutputLimit) words() []string {
	return []string{"normal", fmt.Sprint(l.Hard), "0", "0"}
}
