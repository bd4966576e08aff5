package commands

import (
	"bytes"
	"math"
	"strconv"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// BF.* are RedisBloom's commands on Bloom filters, with its replies and error texts, some of
// which have no code. BF.CADD is ours.

// The refusals of BF.*.
var (
	errBadRate       error = refusal("ERR bad error rate")
	errRateRange     error = refusal("ERR error rate must be in the range (0.000000, 1.000000)")
	errBadCapacity   error = refusal("ERR bad capacity")
	errCapacityRange error = refusal("ERR capacity must be in the range [1, 1073741824]")
	errNoExpansion   error = refusal("ERR no expansion")
	errBadExpansion  error = refusal("ERR bad expansion")
	errNonscaling    error = refusal("Nonscaling filters cannot expand")
	errExpansion     error = refusal("ERR expansion must be in the range [0, 32768]")

	errInsertRate      error = refusal("Bad error rate")
	errInsertCapacity  error = refusal("Bad capacity")
	errInsertExpansion error = refusal("Bad expansion")
	errInsertArgument  error = refusal("Unknown argument received")

	errBloomField    error = refusal("Invalid information value")
	errDumpIterator  error = refusal("Second argument must be numeric")
	errChunkIterator error = refusal("ERR Second argument must be numeric")
)

const (
	maxBloomCapacity  = 1 << 30
	maxBloomExpansion = 32768
	// maxDumped is how much of a filter one SCANDUMP answers, bytes: what a client with the
	// default proto-max-bulk-len could send back.
	maxDumped = 1 << 20
)

// arityError is the refusal of a request whose number of words only Parse can judge.
func arityError(r *Request) error {
	return refusal("ERR wrong number of arguments for '" + lower(r.Args[0]) + "' command")
}

// parseDouble reads a number as Redis does: infinity is one.
func parseDouble(v []byte) (float64, bool) {
	digits := bytes.TrimLeft(v, "+-")
	if len(v)-len(digits) <= 1 &&
		(bytes.EqualFold(digits, []byte("inf")) || bytes.EqualFold(digits, []byte("infinity"))) {
		return math.Inf(1 - 2*bytes.Count(v, []byte("-"))), true
	}
	return parseDecimal(v)
}

// parseBFReserve parses BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING].
// Other words are ignored: old clients send some.
func parseBFReserve(r *Request) error {
	if len(r.Args) > 7 {
		return arityError(r)
	}
	o := *r.bloom()
	var ok bool
	if o.Error, ok = parseDouble(r.Args[2]); !ok {
		return errBadRate
	}
	if o.Error <= 0 || o.Error >= 1 {
		return errRateRange
	}
	n, ok := parseInt(r.Args[3])
	switch o.Capacity = uint64(n); {
	case !ok:
		return errBadCapacity
	case n < 1 || n > maxBloomCapacity:
		return errCapacityRange
	}
	given := int64(0)
	for i := 4; i < len(r.Args); i++ {
		switch {
		case is(r.Args[i], "NONSCALING"):
			o.NonScaling = true
		case is(r.Args[i], "EXPANSION"):
			if i++; i == len(r.Args) {
				return errNoExpansion
			}
			if given, ok = parseInt(r.Args[i]); !ok {
				return errBadExpansion
			}
			o.Expansion = uint32(given)
		}
	}
	switch {
	case given > 0 && o.NonScaling:
		return errNonscaling
	case given < 0 || given > maxBloomExpansion:
		return errExpansion
	}
	r.Op.Kind, r.Op.Key, r.Op.Object = store.BFReserve, r.Args[1], &o
	return nil
}

// parseBFItems parses the commands of a key and items.
func parseBFItems(kind store.Kind, style Style) func(*Request) error {
	items := parseItems(kind, style)
	return func(r *Request) error {
		r.Op.Object = r.bloom()
		return items(r)
	}
}

// bfInsert is BF.INSERT while its options are read.
type bfInsert struct {
	store.BloomOptions
	flags store.Flags
}

// bfInsertOptions are its options. Each counts as often as it comes, the last time.
var bfInsertOptions = []option[bfInsert]{
	{token: "CAPACITY", value: func(o *bfInsert, v []byte) error {
		n, ok := parseInt(v)
		if o.Capacity = uint64(n); !ok || n < 1 || n > maxBloomCapacity {
			return errInsertCapacity
		}
		return nil
	}},
	{token: "ERROR", value: func(o *bfInsert, v []byte) (err error) {
		var ok bool
		if o.Error, ok = parseDouble(v); !ok || o.Error <= 0 || o.Error >= 1 {
			return errInsertRate
		}
		return nil
	}},
	{token: "EXPANSION", value: func(o *bfInsert, v []byte) error {
		n, ok := parseInt(v)
		if o.Expansion = uint32(n); !ok || n < 0 || n > maxBloomExpansion {
			return errInsertExpansion
		}
		return nil
	}},
	{token: "NOCREATE", flag: func(o *bfInsert) { o.flags |= store.NoCreate }},
	{token: "NONSCALING", flag: func(o *bfInsert) { o.NonScaling = true }},
}

// parseBFInsert parses BF.INSERT key [option …] ITEMS item [item …].
func parseBFInsert(r *Request) error {
	o := bfInsert{BloomOptions: *r.bloom()}
	for i := 2; i < len(r.Args); i++ {
		if is(r.Args[i], "ITEMS") && i+1 < len(r.Args) {
			r.Op.Kind, r.Op.Key, r.Op.Object = store.BFAdd, r.Args[1], &o.BloomOptions
			r.Op.Flags |= o.flags
			r.Op.Keys = append(r.Op.Keys, r.Args[i+1:]...)
			return nil
		}
		switch option := findOption(bfInsertOptions, r.Args[i]); {
		case option == nil && !is(r.Args[i], "ITEMS"):
			return errInsertArgument
		case option == nil, option.flag == nil && i+1 == len(r.Args):
			return arityError(r)
		case option.flag != nil:
			option.flag(&o)
		default:
			i++
			if err := option.value(&o, r.Args[i]); err != nil {
				return err
			}
		}
	}
	return arityError(r)
}

// replyBFAdded answers for each item whether it is new, and an error for one that was not
// added: the array ends with that if the filter does not grow.
func replyBFAdded(w *resp.Writer, r *Result) {
	full := store.ErrBloomGrowth
	if r.Op.Found {
		full = store.ErrBloomFull
	}
	replyBools(w, r, false, full)
}

// parseID parses key and opid, and AT and WITHSTATUS at the end, and returns what is in
// between, of which there must be something: what could be an option is an item if
// otherwise there were none. AT 0 gives no time: behind it and WITHSTATUS everything is an
// item, whatever its name.
func parseID(r *Request, least int) ([][]byte, error) {
	op, timed := r.Op, false
	op.Key, op.ID = r.Args[1], r.Args[2]
	rest := r.Args[3:]
	for {
		n := len(rest)
		switch {
		case n > least && r.Style == 0 && is(rest[n-1], "WITHSTATUS"):
			r.Style, rest = withStatus, rest[:n-1]
			continue
		case n-2 >= least && !timed && is(rest[n-2], "AT") && isInt(rest[n-1]):
			op.At, _ = parseInt(rest[n-1])
			if timed = true; op.At != 0 {
				op.Flags |= store.HasAt
			}
			rest = rest[:n-2]
			continue
		}
		return rest, checkOpID(op.ID)
	}
}

// parseBFCAdd parses BF.CADD key opid item [item …] [AT ms] [WITHSTATUS].
func parseBFCAdd(r *Request) error {
	items, err := parseID(r, 1)
	r.Op.Kind, r.Op.Object = store.BFCAdd, r.bloom()
	if r.Op.Keys = append(r.Op.Keys, items...); err == nil && len(items) > store.MaxCAdd {
		err = store.ErrManyCAdd
	}
	return err
}

func replyBFCAdd(w *resp.Writer, r *Result) {
	status := r.Style == withStatus
	if status {
		w.Array(2)
		r.Style = 0 // an array of one item, too
	}
	replyBFAdded(w, r)
	if status {
		w.Int(bit(r.Op.Applied))
	}
}

type bloomInfo = store.BloomInfo

// bloomFields are the pairs of BF.INFO.
var bloomFields = infoTable[bloomInfo]{
	{"CAPACITY", number("Capacity", func(f *bloomInfo) (n int64) {
		for i := range f.Filters {
			n += int64(f.Filters[i].Capacity)
		}
		return n
	})},
	{"SIZE", number("Size", func(f *bloomInfo) int64 {
		n := 32 + 64*int64(len(f.Filters)) // what RedisBloom's own structures take
		for i := range f.Filters {
			n += int64(f.Filters[i].Bytes)
		}
		return n
	})},
	{"FILTERS", number("Number of filters", func(f *bloomInfo) int64 { return int64(len(f.Filters)) })},
	{"ITEMS", number("Number of items inserted", func(f *bloomInfo) int64 { return int64(f.Size) })},
	{"EXPANSION", infoField[bloomInfo]{"Expansion rate", func(w *resp.Writer, f *bloomInfo) {
		if f.NonScaling {
			w.Null()
		} else {
			w.Int(int64(f.Expansion))
		}
	}}},
}

// parseBFInfo parses BF.INFO key [field].
func parseBFInfo(r *Request) error {
	r.Op.Kind, r.Op.Key = store.BFInfo, r.Args[1]
	switch {
	case len(r.Args) > 3:
		return arityError(r)
	case !bloomFields.choose(r):
		r.Op.Object = &store.BadArgument{Err: errBloomField}
	}
	return nil
}

// replyBFInfo answers a map; of one field an array of one value in RESP2.
func replyBFInfo(w *resp.Writer, r *Result) {
	info := r.Op.Object.(*bloomInfo)
	fields := bloomFields
	if r.Style != 0 {
		fields = fields[r.Style-1 : r.Style]
	}
	if r.Style != 0 && w.Proto != 3 {
		w.Array(1)
		fields[0].write(w, info)
		return
	}
	w.Map(len(fields))
	for i := range fields {
		w.Status(fields[i].name)
		fields[i].write(w, info)
	}
}

// replyBFDebug answers a line for the filter and one for each sub-filter.
func replyBFDebug(w *resp.Writer, r *Result) {
	info := r.Op.Object.(*bloomInfo)
	w.Array(1 + len(info.Filters))
	w.BulkString("size:" + strconv.FormatUint(info.Size, 10))
	for i := range info.Filters {
		f := &info.Filters[i]
		line := strconv.AppendUint([]byte("bytes:"), f.Bytes, 10)
		line = strconv.AppendUint(append(line, " bits:"...), 8*f.Bytes, 10)
		line = strconv.AppendUint(append(line, " hashes:"...), uint64(f.Hashes), 10)
		line = strconv.AppendUint(append(line, " hashwidth:64 capacity:"...), f.Capacity, 10)
		line = strconv.AppendUint(append(line, " size:"...), f.Size, 10)
		w.Bulk(strconv.AppendFloat(append(line, " ratio:"...), f.Error, 'g', 6, 64))
	}
}

// parseScanDump parses BF.SCANDUMP key iterator.
func parseScanDump(r *Request) error {
	r.Op.Kind, r.Op.Key, r.Op.Deltas = store.BFDump, r.Args[1], append(r.Op.Deltas, maxDumped)
	var ok bool
	if r.Op.Delta, ok = parseInt(r.Args[2]); !ok {
		r.Op.Object = &store.BadArgument{Err: errDumpIterator}
	}
	return nil
}

func replyScanDump(w *resp.Writer, r *Result) {
	w.Array(2)
	w.Int(r.Op.Value)
	w.Bulk(r.Op.Object.([]byte))
}

// parseLoadChunk parses BF.LOADCHUNK key iterator data.
func parseLoadChunk(r *Request) error {
	var ok bool
	if r.Op.Delta, ok = parseInt(r.Args[2]); !ok {
		return errChunkIterator
	}
	r.Op.Kind, r.Op.Key, r.Op.Keys = store.BFLoad, r.Args[1], append(r.Op.Keys, r.Args[3])
	return nil
}

const groupBloom = "bloom"

// onceNote says how the items of an idempotent command may be called AT.
const onceNote = "An item may have the name of an option if AT and WITHSTATUS follow; AT 0 gives no time."

// bloomType is the type of Bloom filters.
var bloomType = keyType{name: "MBbloom--", encoding: "raw", category: "bloom", commands: bloomCommands}

var (
	bloomACL     = []string{"@bloom"}
	bloomFastACL = []string{"@bloom", "@fast"}
	sketchACL    = []string{"@sketch"}

	perItem = "O(N*K), where N is the number of items and K of hashes"
)

// bloomCommands are RedisBloom's Bloom filters.
var bloomCommands = family(Command{Group: groupBloom, ACL: bloomACL}, []Command{
	{
		Name: "bf.reserve", Arity: -4, Flags: Write | DenyOOM, Keys: oneKey(keyInsert), ACL: bloomFastACL,
		Since: "1.0.0",
		Summary: "Creates a Bloom filter with a capacity and an error rate. It grows by EXPANSION; with " +
			"NONSCALING it does not grow.",
		Args: []Arg{keyArg(), dblArg("error_rate"), intArg("capacity"),
			opt(with("EXPANSION", intArg("expansion"))),
			opt(word("NONSCALING"))},
		Parse: parseBFReserve, Reply: replyOK,
	},
	{
		Name: "bf.add", Arity: 3, Flags: Write | DenyOOM, Keys: oneKey(keyReadUpdate), Since: "1.0.0",
		Complexity: "O(K), where K is the number of hashes",
		Summary: "Adds an item to a Bloom filter and creates the filter if necessary. Returns 1 if the " +
			"item is new.",
		Args: []Arg{keyArg(), strArg("item")}, Parse: parseBFItems(store.BFAdd, single), Reply: replyBFAdded,
	},
	{
		Name: "bf.madd", Arity: -3, Flags: Write | DenyOOM, Keys: oneKey(keyReadUpdate), Since: "1.0.0",
		Complexity: perItem, Summary: "Adds items to a Bloom filter and creates the filter if necessary.",
		Args: []Arg{keyArg(), multi(strArg("item"))}, Parse: parseBFItems(store.BFAdd, 0),
		Reply: replyBFAdded,
	},
	{
		Name: "bf.insert", Arity: -4, Flags: Write | DenyOOM, Keys: oneKey(keyReadUpdate), Since: "1.0.0",
		Complexity: perItem,
		Summary:    "Adds items to a Bloom filter and creates the filter, with the given options, if necessary.",
		Args: []Arg{keyArg(), opt(with("CAPACITY", intArg("capacity"))), opt(with("ERROR", dblArg("error"))),
			opt(with("EXPANSION", intArg("expansion"))), opt(word("NOCREATE")), opt(word("NONSCALING")),
			with("ITEMS", multi(strArg("item")))},
		Parse: parseBFInsert, Reply: replyBFAdded,
	},
	{
		Name: "bf.cadd", Arity: -4, Flags: Write | DenyOOM, Keys: oneKey(keyReadUpdate), ACL: sketchACL,
		Since: "0.2.0", Complexity: perItem,
		Summary: "Adds up to 64 items to a Bloom filter once per operation id, all or none, and creates " +
			"the filter if necessary. The same opid sent again within the table's window gets the first " +
			"answers, so a retry still tells which items were new. Needs a table of MODE EXACT. " + onceNote,
		Args: onceArgs(keyArg(), strArg("opid"), multi(strArg("item"))), Parse: parseBFCAdd,
		Reply: replyBFCAdd,
	},
	{
		Name: "bf.exists", Arity: 3, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "1.0.0",
		Complexity: "O(K), where K is the number of hashes",
		Summary:    "Says whether an item was added to a Bloom filter (1: probably, 0: no).",
		Args:       []Arg{keyArg(), strArg("item")}, Parse: parseItems(store.BFExists, single),
		Reply: replyPresent,
	},
	{
		Name: "bf.mexists", Arity: -3, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "1.0.0",
		Complexity: perItem, Summary: "Says for each item whether it was added to a Bloom filter.",
		Args: []Arg{keyArg(), multi(strArg("item"))}, Parse: parseItems(store.BFExists, 0),
		Reply: replyPresent,
	},
	{
		Name: "bf.card", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "2.4.4",
		Summary: "Returns the number of items that were new to a Bloom filter, 0 if it does not exist.",
		Args:    []Arg{keyArg()}, Parse: parseKey(store.BFCard), Reply: replyInt,
	},
	{
		Name: "bf.info", Arity: -2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "1.0.0",
		Summary: "Returns a Bloom filter's parameters and size, or one of these fields.",
		Args:    []Arg{keyArg(), bloomFields.arg()}, Parse: parseBFInfo, Reply: replyBFInfo,
	},
	{
		Name: "bf.debug", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "1.0.0",
		Complexity: "O(N), where N is the number of sub-filters",
		Summary:    "Describes each sub-filter of a Bloom filter.", Args: []Arg{keyArg()},
		Parse: parseKey(store.BFInfo), Reply: replyBFDebug,
	},
	{
		Name: "bf.scandump", Arity: 3, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "1.0.0",
		Complexity: "O(N), where N is the length of the chunk",
		Summary: "Returns a chunk of a Bloom filter for BF.LOADCHUNK, at most 1 MiB, and the iterator of " +
			"the next one, 0 after the last.",
		Args: []Arg{keyArg(), intArg("iterator")}, Parse: parseScanDump, Reply: replyScanDump,
	},
	{
		Name: "bf.loadchunk", Arity: 4, Flags: Write | DenyOOM | waits, Keys: oneKey(keyUpdate),
		Since: "1.0.0", Complexity: "O(N), where N is the length of the chunk",
		Summary: "Restores a Bloom filter from the chunks of BF.SCANDUMP, up to 16 MiB each, with the " +
			"iterators that came with them.",
		Args: []Arg{keyArg(), intArg("iterator"), strArg("data")}, Parse: parseLoadChunk, Reply: replyOK,
	},
})
