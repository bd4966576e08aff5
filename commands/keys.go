package commands

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/commands/glob"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// keyType is what commands know of a type of keys: a row of keyTypes.
type keyType struct {
	name     string    // in TYPE and SCAN … TYPE
	encoding string    // in OBJECT ENCODING
	category string    // of its commands, in ACL
	commands []Command // that only keys of this type take; those of counters are several families
}

// keyTypes are the types of keys. That of a type other than the counter is declared in
// the file of its commands.
var keyTypes = map[store.Type]keyType{
	store.TypeNone:    {name: "none"},
	store.TypeCounter: {name: "string", encoding: "int"},
	store.TypeFilter:  filterType,
	store.TypeBloom:   bloomType,

	store.TypeCountMin: countMinType,
}

// typeFamilies are the commands of the types of keys.
func typeFamilies() (families [][]Command) {
	for _, t := range slices.Sorted(maps.Keys(keyTypes)) {
		families = append(families, keyTypes[t].commands)
	}
	return families
}

// typeCategories are their categories in ACL, with a prefix.
func typeCategories(prefix string) (list []string) {
	for _, t := range slices.Sorted(maps.Keys(keyTypes)) {
		if row := keyTypes[t]; row.category != "" {
			list = append(list, prefix+row.category)
		}
	}
	return list
}

// replyType answers the name of a key's type.
func replyType(w *resp.Writer, r *Result) {
	t := store.TypeNone
	if r.Op.Found {
		t = r.Op.Type
	}
	w.Status(keyTypes[t].name)
}

// maxScanCount bounds the work of one SCAN, whatever COUNT asks for.
const maxScanCount = 1 << 16

// scanRequest is SCAN while its options are read.
type scanRequest struct {
	cursor   uint64
	count    int
	pattern  []byte // nil: every key
	typeName []byte // nil: every type
}

// scanOptions are the options of SCAN.
var scanOptions = []option[scanRequest]{
	{token: "MATCH", class: 1, again: true, value: func(s *scanRequest, v []byte) error {
		s.pattern = v
		return checkPattern(v)
	}},
	{token: "COUNT", class: 2, again: true, value: func(s *scanRequest, v []byte) error {
		n, ok := parseInt(v)
		switch {
		case !ok:
			return errNotInteger
		case n < 1:
			return errSyntax
		}
		s.count = int(min(n, maxScanCount))
		return nil
	}},
	{token: "TYPE", class: 4, again: true, value: func(s *scanRequest, v []byte) error {
		s.typeName = v
		return nil
	}},
}

// checkPattern refuses a pattern that is too long to be matched in good time.
func checkPattern(p []byte) error {
	if len(p) > maxPattern {
		return refusal("ERR pattern is longer than " + strconv.Itoa(maxPattern) + " bytes")
	}
	return nil
}

// wants reports whether SCAN is to return a key.
func (s *scanRequest) wants(key []byte, t store.Type) bool {
	return (s.typeName == nil || bytes.EqualFold(s.typeName, []byte(keyTypes[t].name))) &&
		(s.pattern == nil || Match(s.pattern, key))
}

// doScan is SCAN cursor [option …]. The cursor says where to go on and is all
// the state there is.
func doScan(c *Context) {
	s := scanRequest{count: 10}
	var ok bool
	if s.cursor, ok = parseUint(c.Args[1]); !ok || s.cursor > store.MaxCursor {
		c.fail(errInvalidCursor)
		return
	}
	if _, err := parseOptions(&s, scanOptions, c.Args[2:], ""); c.failed(err) {
		return
	}
	var keys [][]byte
	next, err := c.Store.Scan(s.cursor, s.count, func(key []byte, t store.Type) {
		if s.wants(key, t) { // key is ours to keep
			keys = append(keys, key)
		}
	})
	if c.failed(err) {
		return
	}
	c.W.Array(2)
	c.W.BulkString(strconv.FormatUint(next, 10))
	replyKeys(c.W, keys)
}

// replyKeys writes an array of keys.
func replyKeys(w *resp.Writer, keys [][]byte) {
	w.Array(len(keys))
	for _, k := range keys {
		w.Bulk(k)
	}
}

// doKeys is KEYS pattern: a whole SCAN. Each key is returned once.
func doKeys(c *Context) {
	if err := checkPattern(c.Args[1]); c.failed(err) {
		return
	}
	var keys [][]byte
	for cursor := uint64(0); ; {
		next, err := c.Store.Scan(cursor, maxScanCount, func(key []byte, _ store.Type) {
			if Match(c.Args[1], key) {
				keys = append(keys, key)
			}
		})
		if c.failed(err) {
			return
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	replyKeys(c.W, slices.CompactFunc(keys, bytes.Equal))
}

// doDBSize is DBSIZE.
func doDBSize(c *Context) {
	n, err := c.Store.DBSize()
	if c.failed(err) {
		return
	}
	c.W.Int(n)
}

// doRandomKey is RANDOMKEY.
func doRandomKey(c *Context) {
	key, ok, err := c.Store.RandomKey()
	switch {
	case err != nil:
		c.fail(err)
	case !ok:
		c.W.Null()
	default:
		c.W.Bulk(key)
	}
}

// parseFlush parses FLUSHALL and FLUSHDB: there is one database.
func parseFlush(flags store.Flags) func(*Request) error {
	return func(r *Request) error {
		r.Op.Kind = store.FlushAll
		r.Op.Flags |= flags
		if len(r.Args) > 2 || len(r.Args) == 2 && !is(r.Args[1], "ASYNC") && !is(r.Args[1], "SYNC") {
			return errSyntax
		}
		return nil
	}
}

var (
	flushArgs = []Arg{opt(oneOf("flush-type", word("ASYNC"), word("SYNC")))}
	flushTips = []string{"request_policy:all_shards", "response_policy:all_succeeded"}
	sumTips   = []string{"request_policy:multi_shard", "response_policy:agg_sum"}

	dangerousKeyspaceACL = []string{"@keyspace", "@dangerous"}
)

// invalidExpire is Redis' refusal of an expiry out of range.
func invalidExpire(r *Request) error { return refusal(invalidExpireText(lower(r.Args[0]))) }

func invalidExpireText(command string) string {
	return "ERR invalid expire time in '" + command + "' command"
}

// lower is a command's name as errors show it.
func lower(name []byte) string { return strings.ToLower(string(name)) }

// expireConditions are the conditions of EXPIRE.
var expireConditions = []option[store.Op]{
	{token: "NX", class: 1, again: true, flag: func(op *store.Op) { op.Flags |= store.NX }},
	{token: "XX", class: 2, again: true, flag: func(op *store.Op) { op.Flags |= store.XX }},
	{token: "GT", class: 4, again: true, flag: func(op *store.Op) { op.Flags |= store.GT }},
	{token: "LT", class: 8, again: true, flag: func(op *store.Op) { op.Flags |= store.LT }},
}

// parseExpire parses EXPIRE and its variants: unit in milliseconds, and
// whether the time counts from now.
func parseExpire(unit int64, relative bool) func(*Request) error {
	return func(r *Request) error {
		r.Op.Kind, r.Op.Key = store.ExpireAt, r.Args[1]
		if err := parseConditions(r); err != nil {
			return err
		}
		n, ok := parseInt(r.Args[2])
		if !ok {
			return errNotInteger
		}
		var base int64
		if relative {
			base = r.Now()
		}
		if n > math.MaxInt64/unit || n < math.MinInt64/unit || n*unit > math.MaxInt64-base {
			return invalidExpire(r)
		}
		r.Op.ExpireAt = max(n*unit+base, 1) // long past is past, and 0 means never
		return nil
	}
}

// parseConditions reads NX, XX, GT and LT; only XX goes with GT or LT.
func parseConditions(r *Request) error {
	for _, a := range r.Args[3:] {
		if findOption(expireConditions, a) == nil {
			return refusal("ERR Unsupported option " + string(cString(a, maxQuoted)))
		}
	}
	if _, err := parseOptions(r.Op, expireConditions, r.Args[3:], ""); err != nil {
		return err
	}
	f := r.Op.Flags
	switch {
	case f&store.NX != 0 && f&(store.XX|store.GT|store.LT) != 0:
		return errNXWithOthers
	case f&store.GT != 0 && f&store.LT != 0:
		return errGTWithLT
	}
	return nil
}

// replyTTL answers the time until the key expires, in units of unit ms; -1 if
// it does not expire, -2 if it does not exist. Seconds are rounded, as Redis
// does.
func replyTTL(unit int64, relative bool) func(*resp.Writer, *Result) {
	return func(w *resp.Writer, r *Result) {
		switch {
		case !r.Op.Found:
			w.Int(-2)
		case r.Op.Value == 0:
			w.Int(-1)
		case relative:
			w.Int((max(r.Op.Values[0], 0) + unit/2) / unit)
		default:
			w.Int((r.Op.Value + unit/2) / unit)
		}
	}
}

const groupGeneric = "generic"

var (
	keyspaceACL = []string{"@keyspace"}
	conditions  = opt(oneOf("condition", word("NX"), word("XX"), word("GT"), word("LT")))
)

// maxPattern is the longest glob-style pattern accepted, in bytes. Matching
// costs at most the product of the pattern's and the key's length.
const maxPattern = 1024

// Match reports whether s as a whole matches a glob-style pattern under Redis'
// rules, see glob.Match.
func Match(pattern, s []byte) bool { return glob.Match(pattern, s) }

// expireCommand declares EXPIRE or one of its variants; unit is in milliseconds, and relative says
// whether the time counts from now.
func expireCommand(name, since, summary string, time Arg, unit int64, relative bool) Command {
	return Command{
		Name: name, Arity: -3, Flags: Write | Fast, Keys: oneKey(keyUpdate), Group: groupGeneric,
		ACL: keyspaceACL, Since: since, Summary: summary, Args: []Arg{keyArg(), time, conditions},
		Parse: parseExpire(unit, relative), Reply: replyApplied,
	}
}

// ttlCommand declares TTL or one of its variants, likewise.
func ttlCommand(name, since, summary string, unit int64, relative bool) Command {
	return Command{
		Name: name, Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Group: groupGeneric,
		ACL: keyspaceACL, Since: since, Summary: summary, Args: []Arg{keyArg()},
		Parse: parseKey(store.ExpireTime), Reply: replyTTL(unit, relative),
	}
}

// keyCommands work on keys of any type and on their expiry.
var keyCommands = family(Command{Group: groupGeneric, ACL: keyspaceACL}, []Command{
	{
		Name: "del", Arity: -2, Flags: Write, Keys: manyKeys(keyDelete), Since: "1.0.0",
		Complexity: "O(N), where N is the number of keys", Tips: sumTips,
		Summary: "Deletes keys. The operation ids of counters stay remembered, so a late retry does not " +
			"bring a counter back.",
		Args: []Arg{multi(keyArg())}, Parse: parseKeys(store.Del), Reply: replyInt,
	},
	{
		Name: "unlink", Arity: -2, Flags: Write | Fast, Keys: manyKeys(keyDelete), Since: "4.0.0",
		Complexity: "O(N), where N is the number of keys", Tips: sumTips, Summary: "Deletes keys, like DEL.",
		Args: []Arg{multi(keyArg())}, Parse: parseKeys(store.Del), Reply: replyInt,
	},
	{
		Name: "exists", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyLook), Since: "1.0.0",
		Complexity: "O(N), where N is the number of keys", Tips: sumTips,
		Summary: "Returns how many of the keys exist. A key given twice counts twice.",
		Args:    []Arg{multi(keyArg())}, Parse: parseKeys(store.Exists), Reply: replyInt,
	},
	{
		Name: "touch", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyLook), Since: "3.2.1",
		Complexity: "O(N), where N is the number of keys", Tips: sumTips,
		Summary: "Returns how many of the keys exist; there is no access time to change.",
		Args:    []Arg{multi(keyArg())}, Parse: parseKeys(store.Exists), Reply: replyInt,
	},
	{
		Name: "type", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyLook), Since: "1.0.0",
		Summary: "Returns the type of a key: string for a counter, " +
			"fbf, MBbloom-- or CMSk-TYPE for a filter or sketch, or none.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.TypeOf), Reply: replyType,
	},
	{
		Name: "scan", Arity: -2, Flags: ReadOnly, Since: "2.8.0",
		Complexity: "O(1) for every call, O(N) for all keys",
		Tips:       []string{"nondeterministic_output", "request_policy:special"},
		Summary: "Returns some keys and the cursor for the next call. A key that exists throughout is " +
			"returned at least once.",
		Args: []Arg{intArg("cursor"), opt(with("MATCH", patArg("pattern"))),
			opt(with("COUNT", intArg("count"))),
			opt(with("TYPE", strArg("type")))},
		Run: doScan,
	},
	{
		Name: "keys", Arity: 2, Flags: ReadOnly, ACL: dangerousKeyspaceACL, Since: "1.0.0",
		Complexity: "O(N), where N is the number of keys",
		Tips:       []string{"request_policy:all_shards", "nondeterministic_output_order"},
		Summary:    "Returns all keys that match a pattern.", Args: []Arg{patArg("pattern")}, Run: doKeys,
	},
	{
		Name: "randomkey", Arity: 1, Flags: ReadOnly, Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "nondeterministic_output"},
		Summary: "Returns a random key.", Run: doRandomKey,
	},
	{
		Name: "dbsize", Arity: 1, Flags: ReadOnly | Fast, Group: groupServer, Since: "1.0.0",
		Tips:    []string{"request_policy:all_shards", "response_policy:agg_sum"},
		Summary: "Returns the number of keys.", Run: doDBSize,
	},
	{
		Name: "flushall", Arity: -1, Flags: Write | waits, Group: groupServer, ACL: dangerousKeyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: flushTips,
		Summary: "Deletes all keys and forgets all operation ids. Operations with an earlier time are " +
			"STALE from then on.",
		Args: flushArgs, Parse: parseFlush(0), Reply: replyOK, Audit: auditAll,
	},
	{
		Name: "flushdb", Arity: -1, Flags: Write | waits, Group: groupServer, ACL: dangerousKeyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: flushTips,
		Summary: "Like FLUSHALL: there is one database.", Args: flushArgs, Parse: parseFlush(store.OneDB),
		Reply: replyOK, Audit: auditAll,
	},
	expireCommand("expire", "1.0.0", "Sets the expiry of a key in seconds. Operation ids do not expire "+
		"with it.", intArg("seconds"), 1000, true),
	expireCommand("pexpire", "2.6.0", "Sets the expiry of a key in milliseconds.", intArg("milliseconds"), 1,
		true),
	expireCommand("expireat", "1.2.0", "Sets the expiry of a key to a Unix time in seconds.",
		timeArg("unix-time-seconds"), 1000, false),
	expireCommand("pexpireat", "2.6.0", "Sets the expiry of a key to a Unix time in milliseconds.",
		timeArg("unix-time-milliseconds"), 1, false),
	withTips(ttlCommand("ttl", "1.0.0", "Returns the seconds until a key expires, -1 if it does not, -2 "+
		"if there is no such key.", 1000, true), changingTip...),
	withTips(ttlCommand("pttl", "2.6.0", "Returns the milliseconds until a key expires, -1 if it does "+
		"not, -2 if there is no such key.", 1, true), changingTip...),
	ttlCommand("expiretime", "7.0.0", "Returns the Unix time in seconds at which a key expires.", 1000,
		false),
	ttlCommand("pexpiretime", "7.0.0", "Returns the Unix time in milliseconds at which a key expires.", 1,
		false),
	{
		Name: "persist", Arity: 2, Flags: Write | Fast, Keys: oneKey(keyUpdate), Since: "2.2.0",
		Summary: "Removes the expiry of a key.", Args: []Arg{keyArg()}, Parse: parseKey(store.Persist),
		Reply: replyApplied,
	},
})

// The refusals of OBJECT; the first is Redis' own.
const (
	noFrequencies = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please " +
		"note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
	noIdleTimes = "ERR idle time is not tracked: nothing here is evicted for not being used"
)

// parseObject parses OBJECT subcommand key.
func parseObject(r *Request) error {
	r.Op.Kind, r.Op.Key = store.TypeOf, r.Args[2]
	return nil
}

// replyObject answers null for a key that does not exist, otherwise what
// answer writes.
func replyObject(answer func(w *resp.Writer, r *Result)) func(*resp.Writer, *Result) {
	return func(w *resp.Writer, r *Result) {
		if !r.Op.Found {
			w.Null()
			return
		}
		answer(w, r)
	}
}

// objectSub declares a subcommand of OBJECT.
func objectSub(name, since, summary string, answer func(w *resp.Writer, r *Result)) Command {
	return Command{
		Name: name, Arity: 3, Flags: ReadOnly, Keys: KeySpec{First: 2, Last: 2, Step: 1, Flags: keyLook},
		Group: groupGeneric, ACL: keyspaceACL, Since: since, Summary: summary, Tips: changingTip,
		Args: []Arg{keyArg()}, Parse: parseObject, Reply: replyObject(answer),
	}
}

// objectCommands describe how a key is kept.
var objectCommands = []Command{{
	Name: "object", Arity: -2, Group: groupGeneric, Since: "2.2.3",
	Summary: "A container for commands that describe how a key is kept.",
	Subcommands: []Command{
		objectSub("encoding", "2.2.3", "Returns how a key is stored: int for a counter, raw for a filter "+
			"or sketch.",
			func(w *resp.Writer, r *Result) { w.BulkString(keyTypes[r.Op.Type].encoding) }),
		objectSub("freq", "4.0.0", "Refused: access frequencies are not tracked.",
			func(w *resp.Writer, _ *Result) { w.Error(noFrequencies) }),
		objectSub("idletime", "2.2.3", "Refused: idle times are not tracked.",
			func(w *resp.Writer, _ *Result) { w.Error(noIdleTimes) }),
		objectSub("refcount", "2.2.3", "Returns 1: a value belongs to one key.",
			func(w *resp.Writer, _ *Result) { w.Int(1) }),
		since("6.2.0", helpFor("object", groupGeneric, keyspaceACL...)),
	},
}}
