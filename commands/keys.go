package commands

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"github.com/fbfkv/fbfkv/server/resp"
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
	return (s.typeName == nil || equalFold(s.typeName, keyTypes[t].name)) && (s.pattern == nil || Match(s.pattern, key))
}

// equalFold compares an argument with a lower-case word, in any letter case.
func equalFold(arg []byte, word string) bool { return bytes.EqualFold(arg, []byte(word)) }

// doScan is SCAN cursor [option …]. The cursor says where to go on and is all
// the state there is.
func doScan(c *Context) {
	s := scanRequest{count: 10}
	var ok bool
	if s.cursor, ok = parseUint(c.Args[1]); !ok || s.cursor > store.MaxCursor {
		c.fail(errInvalidCursor)
		return
	}
	if _, err := parseOptions(&s, scanOptions, c.Args[2:], ""); err != nil {
		c.fail(err)
		return
	}
	var keys [][]byte
	next, err := c.Store.Scan(s.cursor, s.count, func(key []byte, t store.Type) {
		if s.wants(key, t) { // key is ours to keep
			keys = append(keys, key)
		}
	})
	if err != nil {
		c.fail(err)
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
	if err := checkPattern(c.Args[1]); err != nil {
		c.fail(err)
		return
	}
	var keys [][]byte
	for cursor := uint64(0); ; {
		next, err := c.Store.Scan(cursor, maxScanCount, func(key []byte, _ store.Type) {
			if Match(c.Args[1], key) {
				keys = append(keys, key)
			}
		})
		if err != nil {
			c.fail(err)
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
	if err != nil {
		c.fail(err)
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

// keyCommands work on keys of any type.
var keyCommands = []Command{
	{
		Name: "del", Arity: -2, Flags: Write, Keys: manyKeys(keyDelete), Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: sumTips,
		Summary: "Deletes keys. The operation ids of counters stay remembered, so a late retry does not bring a counter back.",
		Args:    []Arg{multi(keyArg())}, Parse: parseKeys(store.Del), Reply: replyInt,
	},
	{
		Name: "unlink", Arity: -2, Flags: Write | Fast, Keys: manyKeys(keyDelete), Group: groupGeneric, ACL: keyspaceACL,
		Since: "4.0.0", Complexity: "O(N), where N is the number of keys", Tips: sumTips, Summary: "Deletes keys, like DEL.",
		Args: []Arg{multi(keyArg())}, Parse: parseKeys(store.Del), Reply: replyInt,
	},
	{
		Name: "exists", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyLook), Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: sumTips,
		Summary: "Returns how many of the keys exist. A key given twice counts twice.",
		Args:    []Arg{multi(keyArg())}, Parse: parseKeys(store.Exists), Reply: replyInt,
	},
	{
		Name: "touch", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyLook), Group: groupGeneric, ACL: keyspaceACL,
		Since: "3.2.1", Complexity: "O(N), where N is the number of keys", Tips: sumTips,
		Summary: "Returns how many of the keys exist; there is no access time to change.",
		Args:    []Arg{multi(keyArg())}, Parse: parseKeys(store.Exists), Reply: replyInt,
	},
	{
		Name: "type", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyLook), Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Returns the type of a key: string for a counter, fbf for a filter, or none.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.TypeOf), Reply: replyType,
	},
	{
		Name: "scan", Arity: -2, Flags: ReadOnly, Group: groupGeneric, ACL: keyspaceACL,
		Since: "2.8.0", Complexity: "O(1) for every call, O(N) for all keys",
		Tips:    []string{"nondeterministic_output", "request_policy:special"},
		Summary: "Returns some keys and the cursor for the next call. A key that exists throughout is returned at least once.",
		Args: []Arg{intArg("cursor"), opt(with("MATCH", patArg("pattern"))), opt(with("COUNT", intArg("count"))),
			opt(with("TYPE", strArg("type")))},
		Run: doScan,
	},
	{
		Name: "keys", Arity: 2, Flags: ReadOnly, Group: groupGeneric, ACL: dangerousKeyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys",
		Tips:    []string{"request_policy:all_shards", "nondeterministic_output_order"},
		Summary: "Returns all keys that match a pattern.", Args: []Arg{patArg("pattern")}, Run: doKeys,
	},
	{
		Name: "randomkey", Arity: 1, Flags: ReadOnly, Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(1)", Tips: []string{"request_policy:all_shards", "nondeterministic_output"},
		Summary: "Returns a random key.", Run: doRandomKey,
	},
	{
		Name: "dbsize", Arity: 1, Flags: ReadOnly | Fast, Group: groupServer, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(1)", Tips: []string{"request_policy:all_shards", "response_policy:agg_sum"},
		Summary: "Returns the number of keys.", Run: doDBSize,
	},
	{
		Name: "flushall", Arity: -1, Flags: Write | waits, Group: groupServer, ACL: dangerousKeyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: flushTips,
		Summary: "Deletes all keys and forgets all operation ids. Operations of an earlier time are stale from then on.",
		Args:    flushArgs, Parse: parseFlush(0), Reply: replyOK, Audit: auditAll,
	},
	{
		Name: "flushdb", Arity: -1, Flags: Write | waits, Group: groupServer, ACL: dangerousKeyspaceACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: flushTips,
		Summary: "Like FLUSHALL: there is one database.",
		Args:    flushArgs, Parse: parseFlush(store.OneDB), Reply: replyOK, Audit: auditAll,
	},
}
