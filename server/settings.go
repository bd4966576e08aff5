package server

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// Setting declares one setting. Flags, the configuration file, CONFIG GET and
// SET, and the help text all derive from it.
type Setting struct {
	// Name is redis.conf's where the meaning is the same.
	Name string
	// Group is the heading under which the setting is documented.
	Group string
	// Default is the value as one would write it in the configuration file.
	Default string
	// Doc says in a sentence or two what the setting is for.
	Doc string
	// Mutable settings can be changed with CONFIG SET.
	Mutable bool
	// Repeatable settings may stand on several lines, whose words add up.
	Repeatable bool
	// Fixed settings have one value; others are accepted without effect. They exist
	// for clients that ask and for files made for Redis, and are not in the help
	// text.
	Fixed bool

	// Lines settings have one value per line of a file, or per flag; each adds to
	// those before. They say how the server starts and do not show in CONFIG GET.
	Lines bool

	kind kind
}

// Syntax is the form of the setting's value in a help text, such as "yes|no".
func (s *Setting) Syntax() string { return s.kind.syntax }

// words splits a value that was given as one string, by a flag or CONFIG SET.
func (s *Setting) words(value string) []string {
	if !s.kind.list {
		return []string{value}
	}
	return strings.Fields(value)
}

// Format returns the setting's value in c, as CONFIG GET shows it.
func (s *Setting) Format(c *Config) string { return strings.Join(s.kind.format(c), " ") }

// hidden reports whether the value is a secret that nobody is shown.
func (s *Setting) hidden() bool { return s.kind.syntax == passwordSyntax }

// show is Format for clients.
func (s *Setting) show(c *Config) string {
	if value := s.Format(c); !s.hidden() || value == "" {
		return value
	}
	return "(redacted)"
}

// LookUp returns the setting with this name, in any letter case, or nil.
func LookUp(name string) *Setting {
	for i := range Settings {
		if strings.EqualFold(Settings[i].Name, name) {
			return &Settings[i]
		}
	}
	return nil
}

// The groups, in the order of the help text.
const (
	GroupStorage  = "Storage"
	GroupNetwork  = "Network"
	GroupSecurity = "Security"
	GroupTLS      = "TLS"
	GroupLimits   = "Limits"
	GroupGeneral  = "General"
	// GroupOperation is what looks after the server from outside.
	GroupOperation = "Operation"
)

// Settings is the table of all settings, group by group. It does not change.
var Settings = slices.Concat(storageSettings, networkSettings, securitySettings, tlsSettings, clusterSettings,
	regionSettings,
	limitSettings, observationSettings, sketchSettings, generalSettings, operationSettings)

var storageSettings = []Setting{
	{
		Name: "dir", Group: GroupStorage, Default: "./fbfkv-data",
		Doc: "The data directory. The server creates it if it is missing. Only one server at a time " +
			"can use it.",
		kind: text(func(c *Config) *string { return &c.Dir }, "<path>", 4096).must(notEmpty),
	}, {
		Name: "backup-dir", Group: GroupStorage, Default: `""`,
		Doc: "BACKUP writes only below this directory. The server creates it if it is missing. Empty: " +
			"beside dir, with -backups after its name. On the file system of dir a backup consists mostly " +
			"of links.",
		kind: text(func(c *Config) *string { return &c.BackupDir }, "<path>", 4096),
	}, {
		Name: "appendfsync", Group: GroupStorage, Default: "always", Mutable: true,
		Doc: "What an acknowledged operation survives. always: a power failure, because the reply waits " +
			"for the disk. everysec: a crash of the process; a power failure loses the last second or two. " +
			"no: a crash of the process; the operating system decides when to write to the disk.",
		kind: choice(func(c *Config) *string { return &c.AppendFsync }, "always", "everysec", "no"),
	}, {
		Name: "save", Group: GroupStorage, Default: "60 1", Mutable: true, Repeatable: true,
		Doc: "How often the filters are written to disk: <seconds> <changes>, as in Redis; the shortest " +
			"time counts. With \"\" only SAVE, BGSAVE and shutdown write them. The setting bounds how long a " +
			"start takes. It never affects durability.",
		kind: list(func(c *Config) *SavePoints { return &c.Save }, "<seconds> <changes>", parseSavePoints,
			SavePoints.words),
	}, {
		Name: "filter-maxmemory", Group: GroupStorage, Default: "1gb", Mutable: true,
		Doc: "How much memory the filters of all tables, the sketches and the filter keys may use " +
			"together. Sketches and filter keys get at most half of it. At the limit, an APPROX " +
			"table refuses new operations, and an EXACT one looks more of them up on disk. 0 sets no limit.",
		kind: memory(func(c *Config) *int64 { return &c.FilterMaxMemory }, 0, 1<<50),
	}, {
		Name: "hot-counters", Group: GroupStorage, Default: "1000000",
		Doc: "How many counters stay in memory; the server reads the others from disk when it needs them. " +
			"After a start it reads that many in the background, those that changed last if not all fit. " +
			"Changed counters that are not yet on disk come on top: up to half as many, or some tens of " +
			"thousands.",
		kind: integer(func(c *Config) *int { return &c.HotCounters }, 1000, 1<<40),
	}, {
		Name: "cache-memory", Group: GroupStorage, Default: "128mb",
		Doc: "Memory that spares reads of the disk. Half is a cache of the disk; half holds the newest " +
			"records of EXACT tables until they are sorted and written. More memory means fewer reads, " +
			"less merging, and more duplicates answered from memory.",
		kind: memory(func(c *Config) *int64 { return &c.CacheMemory }, 2<<20, 1<<50),
	}, {
		Name: "min-free-disk", Group: GroupStorage, Default: "64mb",
		Doc: "The server refuses writes while less disk space than this is free, and so leaves room for " +
			"other programs and background work. 0 turns this off. A write that finds no space is refused " +
			"in any case.",
		kind: memory(func(c *Config) *int64 { return &c.MinFreeDisk }, 0, 1<<50),
	}, {
		Name: "follow-backlog", Group: GroupStorage, Default: "1gb",
		Doc: "How much of the op log is kept on disk for those who follow the counters (CFOLLOW, `fbfkv follow`), " +
			"once there are any. A follower further behind must begin again, and is told which changes it lost. " +
			"INFO FBF shows how far each group is behind.",
		kind: memory(func(c *Config) *int64 { return &c.FollowBacklog }, 1<<20, 1<<50),
	}, {
		Name: "partitions", Group: GroupStorage, Default: "16",
		Doc: "The number of partitions of a new data directory, a power of two; an existing directory " +
			"keeps its number. A few per core are right.",
		kind: integer(func(c *Config) *int { return &c.Partitions }, 1, 1024).must(powerOfTwo),
	}, {
		Name: "accept-forgotten-window", Group: GroupStorage, Default: "no",
		Doc: "Start although both snapshots of a filter are damaged. The table then starts with an empty " +
			"memory: older retries are STALE if their time is known; otherwise they count again.",
		kind: yesNo(func(c *Config) *bool { return &c.AcceptForgetting }),
	}, {
		Name: "appendonly", Group: GroupStorage, Default: "yes", Fixed: true,
		Doc:  "Always yes: every operation is logged. For clients that ask.",
		kind: yesNo(func(*Config) *bool { return new(bool) }).always("appendonly", "yes"),
	}, {
		Name: "databases", Group: GroupStorage, Default: "1", Fixed: true,
		Doc:  "Always 1: there is only database 0. For clients that ask.",
		kind: integer(func(*Config) *int { return new(int) }, 1, math.MaxInt32).always("databases", "1"),
	},
}

var networkSettings = []Setting{
	{
		Name: "bind", Group: GroupNetwork, Default: "127.0.0.1",
		Doc: "The addresses to listen on, separated by spaces. * is every address, ::* every IPv6 address. " +
			"The server ignores an address with a leading - if this machine does not have it.",
		kind: list(func(c *Config) *[]string { return &c.Bind }, "<address> ...", parseAddresses,
			func(v []string) []string { return v }),
	}, {
		Name: "port", Group: GroupNetwork, Default: "6379",
		Doc:  "The TCP port. 0 takes any free port, or none if there is a tls-port.",
		kind: integer(func(c *Config) *int { return &c.Port }, 0, math.MaxUint16),
	}, {
		Name: "protected-mode", Group: GroupNetwork, Default: "yes", Mutable: true,
		Doc:  "Refuse clients from other machines as long as there is no password.",
		kind: yesNo(func(c *Config) *bool { return &c.ProtectedMode }),
	}, {
		Name: "tcp-keepalive", Group: GroupNetwork, Default: "300", Mutable: true,
		Doc:  "After so many idle seconds the server probes a connection, to notice lost clients; 0: never.",
		kind: seconds(func(c *Config) *time.Duration { return &c.TCPKeepalive }, 0, math.MaxInt32),
	}, {
		Name: "timeout", Group: GroupNetwork, Default: "0", Mutable: true,
		Doc:  "After so many idle seconds the server disconnects a client; 0: never.",
		kind: seconds(func(c *Config) *time.Duration { return &c.Timeout }, 0, math.MaxInt32),
	},
}

var limitSettings = []Setting{
	{
		Name: "maxclients", Group: GroupLimits, Default: "10000", Mutable: true,
		Doc:  "How many clients may be connected at once.",
		kind: integer(func(c *Config) *int { return &c.MaxClients }, 1, math.MaxInt32),
	}, {
		Name: "maxmemory-clients", Group: GroupLimits, Default: "512mb", Mutable: true,
		Doc: "How much memory all clients together may hold: buffers of incomplete or waiting requests, " +
			"commands queued by MULTI, keys of WATCH, and buffers of unread replies. At the limit the " +
			"server disconnects the clients that hold the most. It looks once a second. A client with " +
			"CLIENT NO-EVICT is neither counted nor disconnected. 0 sets no limit.",
		kind: memory(func(c *Config) *int64 { return &c.MaxMemoryClients }, 0, 1<<40),
	}, {
		Name: "proto-max-bulk-len", Group: GroupLimits, Default: "1mb", Mutable: true,
		Doc: "The longest argument of a command. A key has at most 64kb and an operation id at most 512 " +
			"bytes in any case.",
		kind: memory(func(c *Config) *int64 { return &c.MaxBulk }, 1<<20, 512<<20),
	}, {
		Name: "client-query-buffer-limit", Group: GroupLimits, Default: "64mb", Mutable: true,
		Doc:  "The longest command with all its arguments.",
		kind: memory(func(c *Config) *int64 { return &c.MaxRequest }, 1<<20, 1<<30),
	}, {
		Name: "client-output-buffer-limit", Group: GroupLimits, Default: "normal 256mb 0 0", Mutable: true,
		Repeatable: true,
		Doc: "normal <hard> <soft> <seconds>, sizes in bytes. The server disconnects a client if a reply " +
			"is longer than the hard limit, or if the client leaves more than the soft limit unread for so " +
			"many seconds. 0 is no limit. Limits for replica and pubsub have no effect: there are no such " +
			"clients.",
		kind: outputLimits(),
	},
}

var generalSettings = []Setting{
	{
		Name: "loglevel", Group: GroupGeneral, Default: "notice", Mutable: true,
		Doc: "How much is logged. debug includes the storage engine's own messages.",
		kind: choice(func(c *Config) *string { return &c.LogLevel },
			"debug", "verbose", "notice", "warning", "nothing"),
	}, {
		Name: "logfile", Group: GroupGeneral, Default: `""`,
		Doc:  "The file to append the log to; empty: standard error.",
		kind: text(func(c *Config) *string { return &c.LogFile }, "<path>", 4096),
	}, {
		Name: "shutdown-timeout", Group: GroupGeneral, Default: "10", Mutable: true,
		Doc:  "A stopping server waits so many seconds for clients' commands to finish.",
		kind: seconds(func(c *Config) *time.Duration { return &c.ShutdownGrace }, 0, math.MaxInt32),
	},
}

// IsList reports whether the setting's value is any number of words.
func (s *Setting) IsList() bool { return s.kind.list }

// operationSettings are the settings of GroupOperation: what looks after the
// server from outside.
var operationSettings = []Setting{
	{
		Name: "metrics-addr", Group: GroupOperation, Default: `""`,
		Doc: `The host:port for the status page (/), Prometheus (/metrics) and health checks (/healthz, /readyz), over HTTP; empty: none. ` +
			"No password protects them: choose an address that only you can reach.",
		kind: text(func(c *Config) *string { return &c.MetricsAddr }, "<host:port>", 512).must(hostAndPort),
	}, {
		Name: "pprof", Group: GroupOperation, Default: "no",
		Doc:  "Serve profiles of the running program under /debug/pprof/ on metrics-addr.",
		kind: yesNo(func(c *Config) *bool { return &c.Pprof }),
	}, {
		Name: "log-format", Group: GroupOperation, Default: "text",
		Doc:  "How messages are logged: one line of key=value pairs each, or one JSON object.",
		kind: choice(func(c *Config) *string { return &c.LogFormat }, "text", "json"),
	},
}

// hostAndPort accepts an address to listen on, or none.
func hostAndPort(c *Config) error {
	if c.MetricsAddr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.MetricsAddr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("argument must be host:port, such as 127.0.0.1:9379")
	}
	return nil
}

// GroupObservation heads the settings of SLOWLOG and LATENCY.
const GroupObservation = "Observation"

// ObservationConfig holds the settings that say what is noted of clients'
// commands.
type ObservationConfig struct {
	SlowlogSlowerThan int // microseconds; -1: nothing is slow
	SlowlogMaxLen     int
	LatencyThreshold  int // milliseconds; 0: the monitor is off
}

// observationSettings are the settings of SLOWLOG and LATENCY.
var observationSettings = []Setting{
	{
		Name: "slowlog-log-slower-than", Group: GroupObservation, Default: "10000", Mutable: true,
		Doc: "A batch that takes at least so many microseconds enters the slow log (SLOWLOG). Commands " +
			"that clients send at the same time are one batch, and one entry: its duration, its first " +
			"command, and how many follow. 0 keeps all, -1 none.",
		kind: count(func(c *Config) *int { return &c.Observation.SlowlogSlowerThan }, time.Microsecond, -1,
			math.MaxInt32),
	}, {
		Name: "slowlog-max-len", Group: GroupObservation, Default: "128", Mutable: true,
		Doc:  "How many entries the slow log keeps.",
		kind: integer(func(c *Config) *int { return &c.Observation.SlowlogMaxLen }, 0, 100_000),
	}, {
		Name: "latency-monitor-threshold", Group: GroupObservation, Default: "0", Mutable: true,
		Doc: "An event (a batch, an fsync, a checkpoint, a snapshot) that takes at least so many " +
			"milliseconds is kept for LATENCY LATEST and HISTORY; 0 keeps none.",
		kind: count(func(c *Config) *int { return &c.Observation.LatencyThreshold }, time.Millisecond, 0,
			math.MaxInt32),
	},
}

// tuning returns the settings as package observe wants them.
func (c *Config) tuning() observe.Tuning {
	o := &c.Observation
	return observe.Tuning{
		SlowlogSlowerThan: time.Duration(o.SlowlogSlowerThan) * time.Microsecond,
		SlowlogMaxLen:     o.SlowlogMaxLen,
		LatencyThreshold:  time.Duration(o.LatencyThreshold) * time.Millisecond,
		OutputLimit:       int(c.MaxOutput.Hard),
	}
}
