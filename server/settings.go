package server

import (
	"math"
	"slices"
	"strings"
	"time"
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
	// for clients that ask and for files made for Redis, and do not stand in the help
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
var Settings = slices.Concat(storageSettings, networkSettings, securitySettings, tlsSettings, limitSettings, observationSettings,
	generalSettings, operationSettings)

var storageSettings = []Setting{
	{
		Name: "dir", Group: GroupStorage, Default: "./fbfkv-data",
		Doc:  "The data directory. It is created if it is missing and belongs to one server at a time.",
		kind: text(func(c *Config) *string { return &c.Dir }, "<path>", 4096).must(notEmpty),
	}, {
		Name: "appendfsync", Group: GroupStorage, Default: "always", Mutable: true,
		Doc: "What an acknowledged operation survives. always: a power failure, since its reply waits for the disk. " +
			"everysec: a crash of the process, and a power failure but for the last second or two. " +
			"no: a crash of the process; the operating system decides when to write to the disk.",
		kind: choice(func(c *Config) *string { return &c.AppendFsync }, "always", "everysec", "no"),
	}, {
		Name: "save", Group: GroupStorage, Default: "60 1", Mutable: true, Repeatable: true,
		Doc: "How often the filters are written to disk: <seconds> <changes>, as in Redis, of which the shortest time counts; " +
			`"" leaves it to SAVE, BGSAVE and shutdown. It bounds how long a start takes, never what survives.`,
		kind: list(func(c *Config) *SavePoints { return &c.Save }, "<seconds> <changes>", parseSavePoints, SavePoints.words),
	}, {
		Name: "auto-aof-rewrite-min-size", Group: GroupStorage, Default: "128mb",
		Doc: "The size of the operations' log, over all partitions, at half of which counters and filters begin to be written to disk, " +
			"before save's time, so that the log behind them can go. As much as the filters take, up to twice this, is added to it. It " +
			"bounds the time that a start takes after a crash: about a second for the default.",
		kind: memory(func(c *Config) *int64 { return &c.MaxLog }, 16<<20, 1<<40),
	}, {
		Name: "filter-maxmemory", Group: GroupStorage, Default: "1gb", Mutable: true,
		Doc: "How much memory the filters of all tables may use together. Beyond it, tables refuse new operations or let their " +
			"error rate rise, as their OVERLOAD option says. 0 sets no bound.",
		kind: memory(func(c *Config) *int64 { return &c.FilterMaxMemory }, 0, 1<<50),
	}, {
		Name: "hot-counters", Group: GroupStorage, Default: "1000000",
		Doc: "How many counters are kept in memory; the others are read from disk when they are asked for. Counters that " +
			"changed and are not yet written to their rows stay beyond it, up to half as many or some ten thousands.",
		kind: integer(func(c *Config) *int { return &c.HotCounters }, 1000, 1<<40),
	}, {
		Name: "cache-memory", Group: GroupStorage, Default: "128mb",
		Doc: "How much memory is used to ask the disk less often: half caches what is read from it, half holds the newest records " +
			"of EXACT tables until they are sorted and written. More means fewer reads of counters that are not hot, less to " +
			"merge, and more duplicates answered from memory.",
		kind: memory(func(c *Config) *int64 { return &c.CacheMemory }, 2<<20, 1<<50),
	}, {
		Name: "min-free-disk", Group: GroupStorage, Default: "64mb",
		Doc: "Writes are refused while the disk has less free space than this, which is left to others and to background " +
			"work. 0 turns it off; writes for which there is no space at all are refused nevertheless.",
		kind: memory(func(c *Config) *int64 { return &c.MinFreeDisk }, 0, 1<<50),
	}, {
		Name: "partitions", Group: GroupStorage, Default: "16",
		Doc: "Into how many partitions a new data directory is divided, a power of two; an existing one keeps its own. " +
			"Each commits by itself, so a few per core is right.",
		kind: integer(func(c *Config) *int { return &c.Partitions }, 1, 1024).must(powerOfTwo),
	}, {
		Name: "accept-forgotten-window", Group: GroupStorage, Default: "no",
		Doc: "Start although both snapshots of a filter are damaged and what its table remembered is lost. Operations from " +
			"before this start are then refused as STALE where their time is known, and may be applied again where it is not.",
		kind: yesNo(func(c *Config) *bool { return &c.AcceptForgetting }),
	}, {
		Name: "appendonly", Group: GroupStorage, Default: "yes", Fixed: true,
		Doc:  "Always yes, for clients that ask: every operation is logged.",
		kind: yesNo(func(*Config) *bool { return new(bool) }).always("appendonly", "yes"),
	}, {
		Name: "databases", Group: GroupStorage, Default: "1", Fixed: true,
		Doc:  "Always 1, for clients that ask: SELECT knows database 0 alone.",
		kind: integer(func(*Config) *int { return new(int) }, 1, math.MaxInt32).always("databases", "1"),
	},
}

var networkSettings = []Setting{
	{
		Name: "bind", Group: GroupNetwork, Default: "127.0.0.1",
		Doc: "The addresses to listen on, separated by spaces; * is every address, ::* every IPv6 address. One with a " +
			"leading - may be missing on this machine.",
		kind: list(func(c *Config) *[]string { return &c.Bind }, "<address> ...", parseAddresses,
			func(v []string) []string { return v }),
	}, {
		Name: "port", Group: GroupNetwork, Default: "6379",
		Doc:  "The TCP port; 0 takes any free one, or none if there is a tls-port.",
		kind: integer(func(c *Config) *int { return &c.Port }, 0, math.MaxUint16),
	}, {
		Name: "protected-mode", Group: GroupNetwork, Default: "yes", Mutable: true,
		Doc:  "Refuse clients from other machines for as long as there is no password.",
		kind: yesNo(func(c *Config) *bool { return &c.ProtectedMode }),
	}, {
		Name: "tcp-keepalive", Group: GroupNetwork, Default: "300", Mutable: true,
		Doc:  "After how many idle seconds a connection is probed, to notice clients that are gone; 0 never probes.",
		kind: seconds(func(c *Config) *time.Duration { return &c.TCPKeepalive }, math.MaxInt32),
	}, {
		Name: "timeout", Group: GroupNetwork, Default: "0", Mutable: true,
		Doc:  "After how many idle seconds a client is disconnected; 0 never.",
		kind: seconds(func(c *Config) *time.Duration { return &c.Timeout }, math.MaxInt32),
	}, {
		Name: "client-write-timeout", Group: GroupNetwork, Default: "60", Mutable: true,
		Doc:  "For how many seconds a client may leave its replies unread before it is disconnected; 0: for ever.",
		kind: seconds(func(c *Config) *time.Duration { return &c.ClientWriteTimeout }, math.MaxInt32),
	},
}

var limitSettings = []Setting{
	{
		Name: "maxclients", Group: GroupLimits, Default: "10000", Mutable: true,
		Doc:  "How many clients may be connected at once.",
		kind: integer(func(c *Config) *int { return &c.MaxClients }, 1, math.MaxInt32),
	}, {
		Name: "proto-max-bulk-len", Group: GroupLimits, Default: "1mb", Mutable: true,
		Doc:  "The longest argument of a command. Keys end at 64kb and operation ids at 512 bytes all the same.",
		kind: memory(func(c *Config) *int64 { return &c.MaxBulk }, 1<<20, 512<<20),
	}, {
		Name: "client-query-buffer-limit", Group: GroupLimits, Default: "64mb", Mutable: true,
		Doc:  "The longest command with all its arguments.",
		kind: memory(func(c *Config) *int64 { return &c.MaxRequest }, 1<<20, 1<<30),
	}, {
		Name: "client-output-buffer-limit", Group: GroupLimits, Default: "normal 256mb 0 0", Mutable: true, Repeatable: true,
		Doc: "normal <hard> <soft> <seconds>, in bytes: the longest reply, and for how long more than the soft limit of it may " +
			"lie unread; beyond either the client is disconnected. 0 is no bound. Limits for replica and pubsub have no effect: " +
			"there are no such clients here.",
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
		Doc:  `The file to append the log to; "" is standard error.`,
		kind: text(func(c *Config) *string { return &c.LogFile }, "<path>", 4096),
	}, {
		Name: "shutdown-timeout", Group: GroupGeneral, Default: "10", Mutable: true,
		Doc:  "For how many seconds a server that stops lets clients' commands finish.",
		kind: seconds(func(c *Config) *time.Duration { return &c.ShutdownGrace }, math.MaxInt32),
	},
}

// IsList reports whether the setting's value is any number of words.
func (s *Setting) IsList() bool { return s.kind.list }
