package commands

import (
	"encoding/hex"
	"errors"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// doBgsave is BGSAVE [SCHEDULE]. A snapshot that is already being taken is
// followed by none, and the client told so.
func doBgsave(c *Context) {
	if len(c.Args) > 2 || len(c.Args) == 2 && !is(c.Args[1], "SCHEDULE") {
		c.fail(errSyntax)
		return
	}
	if err := c.Store.BackgroundSnapshot(); c.failed(err) {
		return
	}
	c.W.Status("Background saving started")
}

// doLastSave is LASTSAVE: when the last snapshot was published, in Unix
// seconds; before the first one, when the server was started.
func doLastSave(c *Context) {
	at, _, _ := c.Store.LastSnapshot()
	if at.IsZero() {
		at = c.Server.figures().Started
	}
	if at.IsZero() {
		at = time.Unix(0, 0)
	}
	c.W.Int(at.Unix())
}

// shutdownRequest is SHUTDOWN while its options are read.
type shutdownRequest struct{ noSave, now, abort bool }

// shutdownOptions are the options of SHUTDOWN.
var shutdownOptions = []option[shutdownRequest]{
	{token: "NOSAVE", class: 1, flag: func(s *shutdownRequest) { s.noSave = true }},
	{token: "SAVE", class: 1, flag: func(*shutdownRequest) {}},
	{token: "NOW", class: 2, flag: func(s *shutdownRequest) { s.now = true }},
	{token: "FORCE", class: 4, flag: func(*shutdownRequest) {}},
	{token: "ABORT", class: 1 | 2 | 4, flag: func(s *shutdownRequest) { s.abort = true }},
}

// doShutdown is SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE]. It answers only if the
// server cannot stop. NOSAVE loses nothing that was acknowledged: the log is
// redone at the next start.
func doShutdown(c *Context) {
	var s shutdownRequest
	if _, err := parseOptions(&s, shutdownOptions, c.Args[1:], ""); c.failed(err) {
		return
	}
	switch {
	case s.abort:
		c.fail(refusal("ERR No shutdown in progress."))
	case c.Server.Shutdown == nil || c.Server.Shutdown(!s.noSave, s.now) != nil:
		c.fail(refusal("ERR Errors trying to SHUTDOWN. Check logs."))
	default:
		c.Session.closing.Store(true)
	}
}

// waitArgs checks the numbers of WAIT and WAITAOF: counts, then a timeout.
func waitArgs(args [][]byte) error {
	for _, a := range args[:len(args)-1] {
		if _, ok := parseInt(a); !ok {
			return errNotInteger
		}
	}
	_, err := parseTimeout(args[len(args)-1])
	return err
}

// parseTimeout reads a time in milliseconds from now on. Its end must fit into
// an integer as well.
func parseTimeout(v []byte) (ms int64, err error) {
	ms, ok := parseInt(v)
	switch {
	case !ok:
		return 0, refusal("ERR timeout is not an integer or out of range")
	case ms < 0:
		return 0, refusal("ERR timeout is negative")
	case ms > math.MaxInt64-time.Now().UnixMilli():
		return 0, refusal("ERR timeout is out of range")
	}
	return ms, nil
}

// doWaitAOF is WAITAOF numlocal numreplicas timeout: whatever appendfsync is,
// what was acknowledged is on disk when it answers.
func doWaitAOF(c *Context) {
	if err := waitArgs(c.Args[1:]); c.failed(err) {
		return
	}
	if local, _ := parseInt(c.Args[1]); local < 0 || local > 1 {
		c.fail(refusal("ERR value is out of range, value must between 0 and 1"))
		return
	}
	if err := c.Store.Sync(); c.failed(err) {
		return
	}
	replicas := 0
	if n, _ := parseInt(c.Args[2]); n > 0 {
		replicas = c.awaitReplicas(n, c.Args[3])
	}
	c.W.Array(2)
	c.W.Int(1)
	c.W.Int(int64(replicas))
}

// doTime is TIME: Unix seconds and the microseconds of the present one.
func doTime(c *Context) {
	now := time.Now()
	if wall := c.Store.WallTime(); wall > now.UnixMilli() {
		now = time.UnixMilli(wall) // the clock was set back, and operations are decided by this time
	}
	c.W.Array(2)
	c.W.BulkString(strconv.FormatInt(now.Unix(), 10))
	c.W.BulkString(strconv.Itoa(now.Nanosecond() / 1000))
}

const groupServer = "server"

var dangerousACL = []string{"@dangerous"}

var (
	errBackupPath error = refusal("ERR BACKUP writes to no directory of this server: BACKUP - answers " +
		"a stream")
	errBackupNext   error = refusal("ERR BACKUP NEXT goes on with what BACKUP - began on the same connection")
	errBackupVerify error = refusal("ERR BACKUP VERIFIED needs the data's id, of 32 hexadecimal digits, " +
		"and a Unix time in milliseconds")
)

// maxBackupPiece is how many bytes of a stream are answered at once.
const maxBackupPiece = 512 << 10

// doBackup is BACKUP dir, a consistent copy of the data directory, made while operations
// go on; BACKUP - and BACKUP NEXT, a copy piece by piece; and BACKUP VERIFIED, which notes
// that one is good. It answers the path of the copy when that is whole.
func doBackup(c *Context) {
	switch first := string(c.Args[1]); {
	case is(c.Args[1], "VERIFIED"):
		backupVerified(c)
	case len(c.Args) != 2:
		c.fail(errSyntax)
	case first == "-":
		c.Session.endStream()
		stream, err := c.Store.StreamBackup()
		if c.failed(err) {
			return
		}
		c.Session.stream = stream
		backupNext(c)
	case is(c.Args[1], "NEXT"):
		backupNext(c)
	case c.Server.BackupPath == nil:
		c.fail(errBackupPath)
	default:
		path, err := c.Server.BackupPath(first)
		if err == nil {
			err = c.Store.Backup(path)
		}
		if !c.failed(err) {
			c.W.BulkString(path)
		}
	}
}

// backupNext answers the next piece of the session's stream; an empty one is its end.
func backupNext(c *Context) {
	if c.Session.stream == nil {
		c.fail(errBackupNext)
		return
	}
	piece := make([]byte, maxBackupPiece)
	n, err := io.ReadFull(c.Session.stream, piece)
	if err != nil && n == 0 {
		c.Session.endStream()
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.Session.endStream()
		c.fail(err)
		return
	}
	c.W.Bulk(piece[:n])
}

// endStream ends a backup that the session streams.
func (s *Session) endStream() {
	if s.stream != nil {
		s.stream.Close()
		s.stream = nil
	}
}

// backupVerified is BACKUP VERIFIED id unix-milliseconds.
func backupVerified(c *Context) {
	var id [16]byte
	if len(c.Args) != 4 {
		c.fail(errSyntax)
		return
	}
	ms, ok := parseInt(c.Args[3])
	if n, err := hex.Decode(id[:], c.Args[2][:min(len(c.Args[2]), 32)]); !ok || ms < 0 || err != nil ||
		n != len(id) || len(c.Args[2]) != 32 {
		c.fail(errBackupVerify)
		return
	}
	c.ok(c.Store.BackupVerified(id, time.UnixMilli(ms)))
}

// auditBackup leaves out the pieces of a stream but the first.
func auditBackup(args [][]byte, _ func(int)) bool { return len(args) < 2 || !is(args[1], "NEXT") }

// What a Redis that stands alone answers to questions about replication, a
// cluster and modules.

const (
	clusterDisabled = "This instance has cluster support disabled"
	noReplication   = "nodes of a cluster replicate counters, see fbfkv cluster"
)

// doReplicaOf is REPLICAOF host port; NO ONE is what this server is anyway.
func doReplicaOf(c *Context) {
	if c.Server.Cluster != nil {
		c.fail(refusal("ERR REPLICAOF not allowed in cluster mode."))
		return
	}
	if is(c.Args[1], "NO") && is(c.Args[2], "ONE") {
		c.W.Status("OK")
		return
	}
	c.fail(refusal("ERR REPLICAOF is not supported: " + noReplication))
}

// moduleList is MODULE LIST.
func moduleList(c *Context) {
	if !c.Server.figures().ListsBloom {
		c.W.Array(0)
		return
	}
	c.W.Array(1)
	c.W.Map(4)
	c.W.Pair("name", "bf")
	c.W.BulkString("ver")
	c.W.Int(observe.BloomModule)
	c.W.Pair("path", "")
	c.W.BulkString("args")
	c.W.Array(0)
}

// serverCommands administer the server and copy its data directory.
var serverCommands = family(Command{Group: groupServer}, []Command{
	{
		Name: "info", Arity: -1, Flags: Loading | Stale, ACL: dangerousACL, Since: "1.0.0",
		Tips: []string{"nondeterministic_output", "request_policy:all_shards",
			"response_policy:special"},
		Summary: "Returns figures about the server.", Args: []Arg{opt(multi(strArg("section")))},
		Run: doInfo,
	},
	{
		Name: "save", Arity: 1, Flags: Admin | NoScript | NoAsyncLoading | NoMulti, Since: "1.0.0",
		Complexity: "O(N), where N is the size of the filters",
		Summary:    "Takes a snapshot and waits for it.", Run: func(c *Context) { c.ok(c.Store.Snapshot()) },
	},
	{
		Name: "bgsave", Arity: -1, Flags: Admin | NoScript | NoAsyncLoading, Since: "1.0.0",
		Summary: "Takes a snapshot in the background.", Args: []Arg{opt(word("SCHEDULE"))}, Run: doBgsave,
	},
	{
		Name: "lastsave", Arity: 1, Flags: Loading | Stale | Fast, ACL: []string{"@admin", "@dangerous"},
		Since: "1.0.0", Tips: changingTip, Summary: "Returns the Unix time of the last snapshot.",
		Run: doLastSave,
	},
	{
		Name: "shutdown", Arity: -1, Flags: Admin | NoScript | Loading | Stale | NoMulti | AllowBusy,
		Since: "1.0.0", Complexity: "O(N), where N is the size of the filters when saving",
		Summary: "Stops the server, after a snapshot unless NOSAVE is given. Loses nothing acknowledged " +
			"either way.",
		Args: []Arg{opt(oneOf("save-selector", word("NOSAVE"), word("SAVE"))), opt(word("NOW")),
			opt(word("FORCE")), opt(word("ABORT"))},
		Run: doShutdown, Audit: auditAll,
	},
	{
		Name: "wait", Arity: 3, Flags: NoScript, Group: groupGeneric, ACL: connectionACL, Since: "3.0.0",
		Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
		Summary: "Waits until numreplicas replicas have everything acknowledged, or until the timeout, and " +
			"returns how many have; 0 without a cluster.",
		Args: []Arg{intArg("numreplicas"), intArg("timeout")}, Run: doWait,
	},
	{
		Name: "waitaof", Arity: 4, Flags: NoScript, Group: groupGeneric, ACL: connectionACL, Since: "7.2.0",
		Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
		Summary: "Writes everything acknowledged to disk, whatever appendfsync is, and returns how many " +
			"replicas have it on their disks.",
		Args: []Arg{intArg("numlocal"), intArg("numreplicas"), intArg("timeout")}, Run: doWaitAOF,
	},
	{
		Name: "time", Arity: 1, Flags: Loading | Stale | Fast, Since: "2.6.0", Tips: changingTip,
		Summary: "Returns the server's time.", Run: doTime,
	},
	{
		Name: "role", Arity: 1, Flags: NoScript | Loading | Stale | Fast,
		ACL: []string{"@admin", "@dangerous"}, Since: "2.8.12",
		Summary: "Returns the role in replication: a master, or the " +
			"replica of one in a cluster.",
		Run: doRole,
	},
	{
		Name: "backup", Arity: -2, Flags: Admin | NoScript | NoAsyncLoading | NoMulti, Since: "0.2.0",
		Complexity: "O(N), where N is the size of the filters and, on another file system, of the data " +
			"directory",
		Summary: "Writes a consistent copy of the data directory to a new directory below backup-dir on " +
			"the server's machine, and returns its path when it is complete. Clients are served meanwhile. " +
			"fbfkv restore makes a data directory from the copy. With -, the command returns the first " +
			"piece of the copy as a stream (fbfkv backup -); NEXT on the same connection returns the next " +
			"piece, and an empty one at the end. VERIFIED records, for INFO, when the last good backup of " +
			"this data was made (fbfkv verify).",
		Args: []Arg{oneOf("target", strArg("directory"), word("-"), word("NEXT"),
			with("VERIFIED", block("verified", strArg("id"), intArg("unix-time-milliseconds"))))},
		Run: doBackup, Audit: auditBackup,
	},
})

// standaloneCommands are about what this server is not.
var standaloneCommands = family(Command{Group: groupServer}, []Command{
	{
		Name: "replicaof", Arity: 3, Flags: Admin | NoScript | Stale | NoAsyncLoading, Since: "5.0.0",
		Summary: "Accepts only NO ONE: nodes of a cluster replicate by themselves.",
		Args:    []Arg{strArg("host"), strArg("port")}, Run: doReplicaOf,
	},
	{
		Name: "module", Arity: -2, Since: "4.0.0",
		Summary: "A container for commands on modules, of which there are none.",
		Subcommands: []Command{
			{
				Name: "list", Arity: 2, Flags: Admin | NoScript,
				Complexity: "O(N) where N is the number of loaded modules.",
				Tips:       []string{"nondeterministic_output_order"},
				Summary: "Returns nothing: there are no modules. With module-list-bf it returns " +
					"RedisBloom's.",
				Run: moduleList,
			},
			since("5.0.0", helpFor("module", groupServer)),
		},
	},
})
