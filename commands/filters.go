package commands

import (
	"strings"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// filterRequest is what the options of FBF.RESERVE and FBF.INSERT fill.
type filterRequest struct {
	store.FilterOptions
	given    bool // an option of the filter was there
	noCreate bool
}

// filterSetting makes an option of a filter.
func filterSetting(token string, class uint32, set func(f *filterRequest, v []byte)) option[filterRequest] {
	return option[filterRequest]{token: token, class: class, value: func(f *filterRequest, v []byte) error {
		set(f, v)
		f.given = true
		return nil
	}}
}

// reserveOptions are the options of FBF.RESERVE. BITS, HASHES and REFRESH ask
// for the paper's filter as it is, so each of them means FIXED.
var reserveOptions = []option[filterRequest]{
	filterSetting("WINDOW", 1<<0, func(f *filterRequest, v []byte) { f.Window = durationMs(v) }),
	filterSetting("ERROR", 1<<1, func(f *filterRequest, v []byte) { f.Error = probability(v) }),
	filterSetting("CAPACITY", 1<<2, func(f *filterRequest, v []byte) { f.Capacity = hint(v) }),
	filterSetting("PAST", 1<<3, func(f *filterRequest, v []byte) { f.Past = positive(v) }),
	filterSetting("BITS", 1<<4, func(f *filterRequest, v []byte) { f.Bits, f.Fixed = hint(v), true }),
	filterSetting("HASHES", 1<<5, func(f *filterRequest, v []byte) { f.Hashes, f.Fixed = positive(v), true }),
	filterSetting("REFRESH", 1<<6, func(f *filterRequest, v []byte) {
		f.Refresh, f.Fixed = durationMs(v), true
	}),
	{token: "FIXED", class: 1 << 7, flag: func(f *filterRequest) { f.Fixed, f.given = true, true }},
}

// insertOptions are the options of FBF.INSERT before ITEMS.
var insertOptions = append([]option[filterRequest]{
	{token: "NOCREATE", class: 1 << 8, flag: func(f *filterRequest) { f.noCreate = true }},
}, reserveOptions...)

// parseReserve parses FBF.RESERVE key [option …].
func parseReserve(r *Request) error {
	var f filterRequest
	if _, err := parseOptions(&f, reserveOptions, r.Args[2:], ""); err != nil {
		return err
	}
	r.Op.Kind, r.Op.Key, r.Op.Object = store.FBFReserve, r.Args[1], &f.FilterOptions
	return f.Validate()
}

// single tells replyFounds that the command takes one item: no array.
const single Style = 1

func parseItems(kind store.Kind, style Style) func(*Request) error {
	return func(r *Request) error {
		r.Op.Kind, r.Op.Key, r.Style = kind, r.Args[1], style
		r.Op.Keys = append(r.Op.Keys, r.Args[2:]...)
		return nil
	}
}

// parseInsert parses FBF.INSERT key [option …] ITEMS item [item …]. NOCREATE
// and options of a filter to create exclude each other, as in BF.INSERT.
func parseInsert(r *Request) error {
	var f filterRequest
	items, err := parseOptions(&f, insertOptions, r.Args[2:], "ITEMS")
	switch {
	case err != nil:
		return err
	case len(items) == 0 || f.noCreate && f.given:
		return errSyntax
	}
	r.Op.Kind, r.Op.Key = store.FBFAdd, r.Args[1]
	r.Op.Keys = append(r.Op.Keys, items...)
	if f.noCreate {
		r.Op.Flags |= store.NoCreate
	}
	if f.given {
		r.Op.Object = &f.FilterOptions
		return f.Validate()
	}
	return nil
}

// replyAdded answers 1 for an item that was added and 0 for one that was
// present before; booleans in RESP3, as BF.ADD.
func replyAdded(w *resp.Writer, r *Result) { replyBools(w, r, false, store.ErrOutOfMemory) }

// replyPresent answers 1 for an item that is present; booleans in RESP3.
func replyPresent(w *resp.Writer, r *Result) { replyBools(w, r, true, nil) }

// replyBools answers for each item whether its finding is the wanted one, or
// why it was not added.
func replyBools(w *resp.Writer, r *Result, want bool, full error) {
	if r.Style != single {
		w.Array(len(r.Op.Founds))
	}
	for i, found := range r.Op.Founds {
		if i < len(r.Op.Fulls) && r.Op.Fulls[i] {
			w.Error(errorText(full))
			continue
		}
		w.Bool(found == want)
	}
}

type filterInfo = store.FilterInfo

// filterInfoFields are the pairs of FBF.INFO: BF.INFO's under its names, then
// our own.
var filterInfoFields = infoTable[filterInfo]{
	{"CAPACITY", number("Capacity", func(f *filterInfo) int64 { return int64(f.Options.Capacity) })},
	{"SIZE", number("Size", func(f *filterInfo) int64 { return int64(f.Bytes) })},
	{"FILTERS", number("Number of filters", func(f *filterInfo) int64 { return int64(f.Generations) })},
	{"ITEMS", number("Number of items inserted", func(f *filterInfo) int64 { return int64(f.Inserted) })},
	{"REMEMBERED", number("Number of items remembered", func(f *filterInfo) int64 { return int64(f.Items) })},
	{"SEGMENTS", number("Number of segments", func(f *filterInfo) int64 { return int64(f.Segments) })},
	{"WINDOW", number("Window", func(f *filterInfo) int64 { return f.Window.Milliseconds() })},
	{"ERROR", double("Error rate", func(f *filterInfo) float64 { return f.Options.Error })},
	{"FPP", double("Effective error rate", func(f *filterInfo) float64 { return f.EffectiveFPP })},
	{"PAST", number("Past generations", func(f *filterInfo) int64 { return int64(f.Options.Past) })},
	{"FIXED", number("Fixed", func(f *filterInfo) int64 { return bit(f.Options.Fixed) })},
	{"BITS", number("Bits", func(f *filterInfo) int64 { return int64(f.Options.Bits) })},
	{"HASHES", number("Hashes", func(f *filterInfo) int64 { return int64(f.Options.Hashes) })},
	{"REFRESH", number("Refresh period",
		func(f *filterInfo) int64 { return f.RefreshPeriod.Milliseconds() })},
	{"REFRESHES", number("Number of refreshes", func(f *filterInfo) int64 { return int64(f.Refreshes) })},
	{"FILL", fills("Fill", func(f *filterInfo) []float64 { return f.Fill })},
}

// parseFilterInfo parses FBF.INFO key [field].
func parseFilterInfo(r *Request) error {
	r.Op.Kind, r.Op.Key = store.FBFInfo, r.Args[1]
	switch {
	case len(r.Args) > 3:
		return errSyntax
	case !filterInfoFields.choose(r):
		return refusal("ERR invalid information value: one of " +
			strings.Join(filterInfoFields.tokens(), ", "))
	}
	return nil
}

// replyFilterInfo answers all pairs, or an array with the one value that was
// asked for, as BF.INFO.
func replyFilterInfo(w *resp.Writer, r *Result) {
	info := r.Op.Object.(*filterInfo)
	if r.Style != 0 {
		w.Array(1)
		filterInfoFields[r.Style-1].write(w, info)
		return
	}
	w.Map(len(filterInfoFields))
	for i := range filterInfoFields {
		f := &filterInfoFields[i]
		w.BulkString(f.name)
		f.write(w, info)
	}
}

// replyInt answers the outcome's value, replyOK just OK, and replyApplied
// whether the operation changed anything, as 1 or 0.
func replyInt(w *resp.Writer, r *Result)     { w.Int(r.Op.Value) }
func replyOK(w *resp.Writer, _ *Result)      { w.Status("OK") }
func replyApplied(w *resp.Writer, r *Result) { w.Int(bit(r.Op.Applied)) }

const groupFilter = "fbf"

// filterType is the type of FBF keys.
var filterType = keyType{name: "fbf", encoding: "raw", category: "fbf", commands: filterCommands}

var filterACL = []string{"@fbf"}

// filterOptionArgs documents the options of a filter.
func filterOptionArgs() []Arg {
	return []Arg{
		opt(with("WINDOW", strArg("milliseconds"))),
		opt(with("ERROR", dblArg("probability"))),
		opt(with("CAPACITY", intArg("items-per-window"))),
		opt(with("PAST", intArg("generations"))),
		opt(with("BITS", intArg("bits"))),
		opt(with("HASHES", intArg("hashes"))),
		opt(with("REFRESH", strArg("milliseconds"))),
		opt(word("FIXED")),
	}
}

// filterCommands are the filters that are keys of their own.
var filterCommands = family(Command{Group: groupFilter, ACL: filterACL, Since: "0.2.0"}, []Command{
	{
		Name: "fbf.reserve", Arity: -2, Flags: Write | DenyOOM, Keys: oneKey(keyInsert),
		Summary: "Creates a forgetful Bloom filter. With BITS, HASHES, REFRESH or FIXED it is the paper's, " +
			"which does not adapt. Times take units: 10m.",
		Args: append([]Arg{keyArg()}, filterOptionArgs()...), Parse: parseReserve, Reply: replyOK,
	},
	{
		Name: "fbf.add", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
		Summary: "Adds an item to a filter and creates the filter if necessary. Returns 1 if the item was " +
			"not present.",
		Args: []Arg{keyArg(), strArg("item")}, Parse: parseItems(store.FBFAdd, single), Reply: replyAdded,
	},
	{
		Name: "fbf.madd", Arity: -3, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
		Complexity: "O(N), where N is the number of items",
		Summary:    "Adds items to a filter and creates the filter if necessary.",
		Args:       []Arg{keyArg(), multi(strArg("item"))}, Parse: parseItems(store.FBFAdd, 0), Reply: replyAdded,
	},
	{
		Name: "fbf.insert", Arity: -4, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
		Complexity: "O(N), where N is the number of items",
		Summary:    "Adds items to a filter and creates the filter, with the given options, if necessary.",
		Args: append(append([]Arg{keyArg(), opt(word("NOCREATE"))}, filterOptionArgs()...),
			with("ITEMS", multi(strArg("item")))),
		Parse: parseInsert, Reply: replyAdded,
	},
	{
		Name: "fbf.exists", Arity: 3, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Summary: "Says whether a filter remembers an item (1: maybe, 0: no).",
		Args:    []Arg{keyArg(), strArg("item")}, Parse: parseItems(store.FBFExists, single),
		Reply: replyPresent,
	},
	{
		Name: "fbf.mexists", Arity: -3, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Complexity: "O(N), where N is the number of items",
		Summary:    "Says for each item whether a filter remembers it.",
		Args:       []Arg{keyArg(), multi(strArg("item"))}, Parse: parseItems(store.FBFExists, 0),
		Reply: replyPresent,
	},
	{
		Name: "fbf.card", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Summary: "Returns how many items a filter remembers, 0 if it does not exist.", Args: []Arg{keyArg()},
		Parse: parseKey(store.FBFCard), Reply: replyInt,
	},
	{
		Name: "fbf.info", Arity: -2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Summary: "Returns a filter's parameters and fill, or one of these fields.",
		Args:    []Arg{keyArg(), filterInfoFields.arg()}, Parse: parseFilterInfo, Reply: replyFilterInfo,
	},
	{
		Name: "fbf.refresh", Arity: 2, Flags: Write | DenyOOM, Keys: oneKey(keyUpdate),
		Complexity: "O(B), where B is the size of a generation",
		Summary: "Refreshes a filter now. A FIXED filter drops its oldest generation; any other seals its " +
			"newest and forgets nothing early.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.FBFRefresh), Reply: replyOK,
	},
})
