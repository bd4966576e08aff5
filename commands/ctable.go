package commands

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// A value that does not parse, and a zero that a client wrote where the
// options' zero means "default", are handed on as a value that is out of
// range: so Validate in package store is the one place that knows the ranges
// and their texts.

// durationMs reads a time above 0, in milliseconds unless it has a unit.
func durationMs(v []byte) time.Duration {
	d := skew(v)
	if d == 0 {
		return -1
	}
	return d
}

// skew reads a time that may be 0.
func skew(v []byte) time.Duration {
	d, ok := ParseDuration(string(v), time.Millisecond)
	if !ok {
		return -1
	}
	return d
}

// probability reads a number above 0.
func probability(v []byte) float64 {
	f, ok := parseDecimal(v)
	if !ok || f == 0 {
		return math.NaN()
	}
	return f
}

// hint reads a size for which 0 is a meaningful value.
func hint(v []byte) uint64 {
	n, ok := parseUint(v)
	if !ok {
		return math.MaxUint64
	}
	return n
}

// positive reads a small number above 0.
func positive(v []byte) int {
	n, ok := parseInt(v)
	if !ok || n <= 0 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// boundOrNone reads a bound, or NONE. N without Set is no bound that Validate accepts.
func boundOrNone(v []byte) store.Bound {
	if is(v, "NONE") {
		return store.Bound{}
	}
	n, points, ok := parseAmount(v)
	if !ok {
		return store.Bound{N: 1}
	}
	return store.Bound{N: n, Set: true, Points: points}
}

// scale reads a SCALE.
func scale(v []byte) uint8 {
	n, ok := parseUint(v)
	if !ok || n > store.MaxScale {
		return store.MaxScale + 1
	}
	return uint8(n)
}

// byteCount reads a size in bytes, 0 being no limit.
func byteCount(name string, v []byte) (uint64, error) {
	n, ok := ParseBytes(string(v))
	if !ok {
		return 0, fmt.Errorf("%w: %s must be a number of bytes, 0 for no limit", store.ErrOption, name)
	}
	return uint64(n), nil
}

// The words of the options that name a choice; the index is the value.
var (
	modeWords   = wordsOf(store.Exact, store.Approx)
	idTimeWords = wordsOf(store.IDTimeNone, store.IDTimeUUIDv7, store.IDTimeULID, store.IDTimeMS,
		store.IDTimeAuto)
	regionsWords = []string{"DEFAULT", "ALL", "NONE"}
)

func wordsOf[T interface{ Word() string }](values ...T) (all []string) {
	for _, v := range values {
		all = append(all, v.Word())
	}
	return all
}

// choice returns the index of a word, from the first one that may be chosen,
// or 255.
func choice(words []string, first int, v []byte) uint8 {
	for i := first; i < len(words); i++ {
		if is(v, words[i]) {
			return uint8(i)
		}
	}
	return math.MaxUint8
}

// tableSettings is what the options of CTABLE CREATE and ALTER fill.
type tableSettings struct {
	prefix *string
	store.TableChange
}

// setting makes an option whose value always parses, see above.
func setting[V any](token string, class uint32, read func([]byte) V,
	dst func(*tableSettings) **V) option[tableSettings] {
	return option[tableSettings]{token: token, class: class, value: func(t *tableSettings, v []byte) error {
		x := read(v)
		*dst(t) = &x
		return nil
	}}
}

// bytesSetting makes an option whose value is a number of bytes.
func bytesSetting(token string, class uint32, dst func(*tableSettings) **uint64) option[tableSettings] {
	return option[tableSettings]{token: token, class: class, value: func(t *tableSettings, v []byte) error {
		n, err := byteCount(token, v)
		*dst(t) = &n
		return err
	}}
}

// alterOptions are the options of CTABLE ALTER.
var alterOptions = []option[tableSettings]{
	setting("WINDOW", 1<<1, durationMs, func(t *tableSettings) **time.Duration { return &t.Window }),
	setting("ERROR", 1<<2, probability, func(t *tableSettings) **float64 { return &t.Error }),
	setting("MODE", 1<<3, func(v []byte) store.Mode { return store.Mode(choice(modeWords, 0, v)) },
		func(t *tableSettings) **store.Mode { return &t.Mode }),
	bytesSetting("MAXMEMORY", 1<<5, func(t *tableSettings) **uint64 { return &t.MaxMemory }),
	bytesSetting("MAXDISK", 1<<6, func(t *tableSettings) **uint64 { return &t.MaxDisk }),
	setting("IDTIME", 1<<8, func(v []byte) store.IDTime { return store.IDTime(choice(idTimeWords, 0, v)) },
		func(t *tableSettings) **store.IDTime { return &t.IDTime }),
	setting("SKEW", 1<<9, skew, func(t *tableSettings) **time.Duration { return &t.Skew }),
	{token: "REGIONS", class: 1 << 11, value: func(t *tableSettings, v []byte) error {
		if is(v, "HOME") {
			return refusal("ERR REGIONS HOME is not supported: each region answers by itself")
		}
		x := store.TableRegions(choice(regionsWords, 1, v))
		t.Regions = &x
		return nil
	}},
	setting("SCALE", 1<<15, scale, func(t *tableSettings) **uint8 { return &t.Scale }),
	setting("MIN", 1<<13, boundOrNone, func(t *tableSettings) **store.Bound { return &t.Min }),
	setting("MAX", 1<<14, boundOrNone, func(t *tableSettings) **store.Bound { return &t.Max }),
	setting("TOP", 1<<16, topCount, func(t *tableSettings) **int { return &t.Top }),
	noOption("CAPACITY", "a table's filter grows by itself; a filter of a given size is FBF.RESERVE's"),
	noOption("PAST", "a table's filter chooses its generations; a filter of given ones is FBF.RESERVE's"),
	noOption("OVERLOAD", "at the memory cap, MODE APPROX refuses new operations and MODE EXACT accepts them"),
}

// noOption makes an option that clients may look for here but that a table does not have.
func noOption(token, remedy string) option[tableSettings] {
	return option[tableSettings]{token: token, value: func(*tableSettings, []byte) error {
		return fmt.Errorf("%w: CTABLE has no %s: %s", store.ErrOption, token, remedy)
	}}
}

// createOptions are the options of CTABLE CREATE.
var createOptions = append([]option[tableSettings]{
	setting("PREFIX", 1, func(v []byte) string { return string(v) }, func(t *tableSettings) **string {
		return &t.prefix
	}),
}, alterOptions...)

// ctableCreate is CTABLE CREATE name PREFIX p [option value …].
func ctableCreate(c *Context) {
	var t tableSettings
	if _, err := parseOptions(&t, createOptions, c.Args[3:], ""); c.failed(err) {
		return
	}
	if t.prefix == nil {
		c.fail(errSyntax)
		return
	}
	o, err := t.Apply(store.TableOptions{Name: string(c.Args[2]), Prefix: *t.prefix, Skew: store.DefaultSkew,
		IDTime: store.DefaultIDTime})
	if err = cmp.Or(err, o.Validate()); c.failed(err) {
		return
	}
	c.ok(c.tables().CreateTable(o))
}

// ctableAlter is CTABLE ALTER name option value [option value …].
func ctableAlter(c *Context) {
	var t tableSettings
	if _, err := parseOptions(&t, alterOptions, c.Args[3:], ""); c.failed(err) {
		return
	}
	c.ok(c.tables().AlterTable(string(c.Args[2]), t.TableChange))
}

// tables is what changes tables: those of the cluster if there is one.
func (c *Context) tables() TableChanger {
	if cluster := c.Server.Cluster; cluster != nil && cluster.Tables != nil {
		return cluster.Tables
	}
	return c.Store
}

// ctableList is CTABLE LIST: the tables' names and prefixes.
func ctableList(c *Context) {
	tables := c.Store.Tables()
	c.W.Map(len(tables))
	for _, t := range tables {
		c.W.Pair(t.Name, t.Prefix)
	}
}

// ctableInfo is CTABLE INFO name.
func ctableInfo(c *Context) {
	info, err := c.Store.TableInfo(string(c.Args[2]))
	if c.failed(err) {
		return
	}
	c.W.Map(len(tableInfoFields))
	for _, f := range tableInfoFields {
		c.W.BulkString(f.name)
		f.write(c.W, &info)
	}
}

// infoField is one pair of CTABLE INFO or FBF.INFO.
type infoField[T any] struct {
	name  string
	write func(w *resp.Writer, t *T)
}

// infoTable are the fields of FBF.INFO or BF.INFO; token is what asks for one of them alone.
type infoTable[T any] []struct {
	token string
	infoField[T]
}

// choose makes the Style the number from 1 of the field that key [field] asks for, or 0 for all.
// It returns false if there is no such field.
func (t infoTable[T]) choose(r *Request) bool {
	for i := range t {
		if len(r.Args) > 2 && is(r.Args[2], t[i].token) {
			r.Style = Style(i + 1)
		}
	}
	return len(r.Args) == 2 || r.Style != 0
}

// tokens lists the words that ask for one field.
func (t infoTable[T]) tokens() []string {
	list := make([]string, len(t))
	for i := range t {
		list[i] = t[i].token
	}
	return list
}

// arg documents them.
func (t infoTable[T]) arg() Arg {
	words := make([]Arg, len(t))
	for i, token := range t.tokens() {
		words[i] = word(token)
	}
	return opt(oneOf("field", words...))
}

// number, text and double make fields of one value.
func number[T any](name string, get func(*T) int64) infoField[T] {
	return infoField[T]{name, func(w *resp.Writer, t *T) { w.Int(get(t)) }}
}

func text[T any](name string, get func(*T) string) infoField[T] {
	return infoField[T]{name, func(w *resp.Writer, t *T) { w.BulkString(get(t)) }}
}

func double[T any](name string, get func(*T) float64) infoField[T] {
	return infoField[T]{name, func(w *resp.Writer, t *T) { w.Double(get(t)) }}
}

// bound makes a field that is an amount, or "none".
func bound(name string, get func(*tableInfo) store.Bound) infoField[tableInfo] {
	return infoField[tableInfo]{name, func(w *resp.Writer, t *tableInfo) {
		if b := get(t); b.Set {
			writeAmount(w, b.N, t.Scale)
		} else {
			w.BulkString("none")
		}
	}}
}

// fills makes the field of the fill ratios, an array from the newest
// generation to the oldest.
func fills[T any](name string, get func(*T) []float64) infoField[T] {
	return infoField[T]{name, func(w *resp.Writer, t *T) {
		list := get(t)
		w.Array(len(list))
		for _, f := range list {
			w.Double(f)
		}
	}}
}

// word returns words[i], or "unknown".
func wordAt(words []string, i uint8) string {
	if int(i) < len(words) {
		return strings.ToLower(words[i])
	}
	return "unknown"
}

type tableInfo = store.TableInfo

// tableInfoFields are the pairs of CTABLE INFO, first the settings under the
// names of their options, then what the table's filters and records hold.
var tableInfoFields = []infoField[tableInfo]{
	text("name", func(t *tableInfo) string { return t.Name }),
	text("prefix", func(t *tableInfo) string { return t.Prefix }),
	number("window", func(t *tableInfo) int64 { return t.TableOptions.Window.Milliseconds() }),
	double("error", func(t *tableInfo) float64 { return t.Error }),
	text("mode", func(t *tableInfo) string { return wordAt(modeWords, uint8(t.Mode)) }),
	number("maxmemory", func(t *tableInfo) int64 { return int64(t.MaxMemory) }),
	number("maxdisk", func(t *tableInfo) int64 { return int64(t.MaxDisk) }),
	text("idtime", func(t *tableInfo) string { return wordAt(idTimeWords, uint8(t.IDTime)) }),
	number("skew", func(t *tableInfo) int64 { return t.Skew.Milliseconds() }),
	text("regions", func(t *tableInfo) string {
		if t.Told() {
			return "all"
		}
		return "none"
	}),
	number("scale", func(t *tableInfo) int64 { return int64(t.Scale) }),
	bound("min", func(t *tableInfo) store.Bound { return t.Min }),
	bound("max", func(t *tableInfo) store.Bound { return t.Max }),
	number("top", func(t *tableInfo) int64 { return int64(t.Top) }),
	number("forgotten-before", func(t *tableInfo) int64 { return t.ForgottenBefore }),
	number("ids-remembered", func(t *tableInfo) int64 { return int64(t.Filter.Items) }),
	number("memory", func(t *tableInfo) int64 { return int64(t.Filter.Bytes) }),
	number("generations", func(t *tableInfo) int64 { return int64(t.Filter.Generations) }),
	number("segments", func(t *tableInfo) int64 { return int64(t.Filter.Segments) }),
	number("refreshes", func(t *tableInfo) int64 { return int64(t.Filter.Refreshes) }),
	number("refresh-period", func(t *tableInfo) int64 { return t.Filter.RefreshPeriod.Milliseconds() }),
	double("effective-fpp", func(t *tableInfo) float64 { return t.Filter.EffectiveFPP }),
	fills("fill", func(t *tableInfo) []float64 { return t.Filter.Fill }),
	number("records", func(t *tableInfo) int64 { return int64(t.Records) }),
	number("record-bytes", func(t *tableInfo) int64 { return int64(t.RecordBytes) }),
	number("runs", func(t *tableInfo) int64 { return int64(t.Runs) }),
	number("holds", func(t *tableInfo) int64 { return int64(t.Holds) }),
	number("hold-bytes", func(t *tableInfo) int64 { return int64(t.HoldBytes) }),
	number("applied", func(t *tableInfo) int64 { return int64(t.Applied) }),
	number("duplicates", func(t *tableInfo) int64 { return int64(t.Duplicates) }),
	number("confirmed", func(t *tableInfo) int64 { return int64(t.Confirmed) }),
	number("dismissed", func(t *tableInfo) int64 { return int64(t.Dismissed) }),
	number("stale", func(t *tableInfo) int64 { return int64(t.Stale) }),
	number("refused", func(t *tableInfo) int64 { return int64(t.Refused) }),
	number("twins", func(t *tableInfo) int64 { return int64(t.Twins) }),
}

const groupTable = "table"

var tableACL = []string{"@table"}

// tableOptionArgs documents the options that CREATE and ALTER share.
func tableOptionArgs(own ...Arg) []Arg {
	return append(own,
		opt(with("WINDOW", strArg("milliseconds"))),
		opt(with("ERROR", dblArg("probability"))),
		opt(with("MODE", oneOf("mode", word("APPROX"), word("EXACT")))),
		opt(with("MAXMEMORY", strArg("bytes"))),
		opt(with("MAXDISK", strArg("bytes"))),
		opt(with("IDTIME", oneOf("idtime", word("AUTO"), word("NONE"), word("UUIDV7"), word("ULID"),
			word("MS")))),
		opt(with("SKEW", strArg("milliseconds"))),
		opt(with("REGIONS", oneOf("regions", word("ALL"), word("NONE")))),
		opt(with("SCALE", intArg("decimals"))),
		opt(with("MIN", oneOf("min", intArg("min"), word("NONE")))),
		opt(with("MAX", oneOf("max", intArg("max"), word("NONE")))),
		opt(with("TOP", oneOf("top", intArg("top"), word("NONE")))),
	)
}

// tableCommands are CTABLE and its subcommands.
var tableCommands = []Command{{
	Name: "ctable", Arity: -2, Group: groupTable, ACL: tableACL, Since: "0.2.0",
	Summary: "A container for commands on tables, the named policies for counters by key prefix.",
	Subcommands: []Command{
		{
			Name: "create", Arity: -5, Flags: Write | DenyOOM | Admin | NoMulti | anyNode, ACL: tableACL,
			Complexity: "O(N), where N is the number of tables",
			Summary: "Creates a table. Keys that change their table are also checked against the previous " +
				"one, for its window. IDTIME AUTO, the default, reads the operation's time from an opid " +
				"that is a UUIDv7 or a ULID. With REGIONS NONE, the default of APPROX tables, each region " +
				"counts these keys alone; tables must be alike in all regions. With SCALE n, counters are exact " +
				"decimals of n digits behind the point. With TOP n, CTOP lists up to n of its counters. Times and sizes take units: 10m, 64mb.",
			Args: tableOptionArgs(strArg("name"), with("PREFIX", strArg("prefix"))), Run: ctableCreate,
			Audit: auditAll,
		},
		{
			Name: "alter", Arity: -5, Flags: Write | DenyOOM | Admin | NoMulti | anyNode, ACL: tableACL,
			Summary: "Changes options of a table, except its prefix. No opid is forgotten.",
			Args:    tableOptionArgs(strArg("name")), Run: ctableAlter, Audit: auditAll,
		},
		{
			Name: "drop", Arity: 3, Flags: Write | Admin | NoMulti | anyNode, ACL: tableACL,
			Complexity: "O(N), where N is the number of tables",
			Summary:    "Drops a table, but no counter. Its operation ids stay remembered for its window.",
			Args:       []Arg{strArg("name")},
			Run:        func(c *Context) { c.ok(c.tables().DropTable(string(c.Args[2]))) }, Audit: auditAll,
		},
		{
			Name: "list", Arity: 2, Flags: ReadOnly, ACL: tableACL,
			Complexity: "O(N), where N is the number of tables",
			Summary:    "Returns the names of the tables with their prefixes.", Run: ctableList,
		},
		{
			Name: "info", Arity: 3, Flags: ReadOnly, ACL: tableACL,
			Complexity: "O(P), where P is the number of partitions",
			Summary:    "Returns a table's options and the state of its filters and records.",
			Args:       []Arg{strArg("name")}, Run: ctableInfo,
		},
		helpFor("ctable", groupTable),
	},
}}
