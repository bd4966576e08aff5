package commands

import (
	"math"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// CMS.* are RedisBloom's commands on count-min sketches, with its replies and error texts,
// which have no code. They look at keys before arguments. CMS.CINCRBY and CMS.INNERPROD are
// ours.

// The refusals of CMS.*.
var (
	errSketchWidth   error = refusal("CMS: invalid width")
	errSketchDepth   error = refusal("CMS: invalid depth")
	errSketchError   error = refusal("CMS: invalid overestimation value")
	errSketchProb    error = refusal("CMS: invalid prob value")
	errSketchNumber  error = refusal("CMS: Cannot parse number")
	errMergeNumKeys  error = refusal("CMS: invalid numkeys")
	errMergePositive error = refusal("CMS: Number of keys must be positive")
	errMergeKeys     error = refusal("CMS: wrong number of keys")
	errMergeWeights  error = refusal("CMS: wrong number of keys/weights")
	errMergeWeight   error = refusal("CMS: invalid weight value")
)

// cmsInitOptions are the options of CMS.INITBYDIM and CMS.INITBYPROB.
var cmsInitOptions = []option[store.SketchOptions]{
	{token: "CELL_SIZE", class: 1, value: func(o *store.SketchOptions, v []byte) error {
		n, ok := parseUint(v)
		if o.Cell = n; !ok || n == 0 {
			return store.ErrSketchOptions
		}
		return nil
	}},
	{token: "WINDOW", class: 2, value: func(o *store.SketchOptions, v []byte) error {
		if o.Window = durationMs(v).Milliseconds(); o.Window <= 0 {
			return store.ErrSketchOptions
		}
		return nil
	}},
	{token: "PAST", class: 4, value: func(o *store.SketchOptions, v []byte) error {
		n := positive(v)
		if o.Past = uint64(n); n < 0 {
			return store.ErrSketchOptions
		}
		return nil
	}},
}

// parseCMSInit parses CMS.INITBYDIM and CMS.INITBYPROB, of which size reads two arguments.
func parseCMSInit(size func(a, b []byte) (width, depth uint64, err error)) func(*Request) error {
	return func(r *Request) error {
		if len(r.Args)%2 != 0 {
			return arityError(r)
		}
		r.Op.Kind, r.Op.Key = store.CMSInit, r.Args[1]
		o := new(store.SketchOptions)
		var err error
		o.Width, o.Depth, err = size(r.Args[2], r.Args[3])
		if err == nil {
			_, err = parseOptions(o, cmsInitOptions, r.Args[4:], "")
		}
		if o.Window > 0 && o.Past == 0 {
			o.Past = store.DefaultPast
		}
		if err == errSyntax {
			err = store.ErrSketchOptions
		}
		if r.Op.Object = o; err != nil {
			r.Op.Object = &store.BadArgument{Err: err}
		}
		return nil
	}
}

// byDimensions reads width and depth.
func byDimensions(a, b []byte) (width, depth uint64, err error) {
	w, ok := parseInt(a)
	if !ok || w < 1 {
		return 0, 0, errSketchWidth
	}
	d, ok := parseInt(b)
	if !ok || d < 1 {
		return 0, 0, errSketchDepth
	}
	return uint64(w), uint64(d), nil
}

// byProbability reads the overestimate, as a share of the count, and the probability that
// an estimate is beyond it. The depth is computed in 32 bits, as others do.
func byProbability(a, b []byte) (width, depth uint64, err error) {
	e, ok := parseDouble(a)
	if !ok || !(e > 0 && e < 1) {
		return 0, 0, errSketchError
	}
	p, ok := parseDouble(b)
	if !ok || !(p > 0 && p < 1) {
		return 0, 0, errSketchProb
	}
	w := math.Ceil(2 / e)
	d := math.Ceil(float64(float32(math.Log10(float64(float32(p)))) / float32(math.Log10(0.5))))
	if w > math.MaxInt64 || !(d >= 1 && d < math.MaxInt32) {
		return 0, 0, store.ErrSketchOptions
	}
	return uint64(w), uint64(d), nil
}

// parsePairs reads items and their deltas.
func parsePairs(op *store.Op, pairs [][]byte) error {
	for i := 0; i < len(pairs); i += 2 {
		n, ok := parseInt(pairs[i+1])
		if !ok {
			return errSketchNumber
		}
		op.Keys, op.Deltas = append(op.Keys, pairs[i]), append(op.Deltas, n)
	}
	return nil
}

// parseCMSIncr parses CMS.INCRBY key item increment [item increment …].
func parseCMSIncr(r *Request) error {
	if len(r.Args)%2 != 0 {
		return arityError(r)
	}
	r.Op.Kind, r.Op.Key = store.CMSIncrBy, r.Args[1]
	if err := parsePairs(r.Op, r.Args[2:]); err != nil {
		r.Op.Object = &store.BadArgument{Err: err}
	}
	return nil
}

// parseCMSCIncr parses CMS.CINCRBY key opid item increment [item increment …] [AT ms]
// [WITHSTATUS].
func parseCMSCIncr(r *Request) error {
	pairs, err := parseID(r, 2)
	switch r.Op.Kind = store.CMSCIncrBy; {
	case err != nil:
		return err
	case len(pairs)%2 != 0:
		return arityError(r)
	}
	return parsePairs(r.Op, pairs)
}

// replyCMSValues answers estimates, or why a pair was left out.
func replyCMSValues(w *resp.Writer, r *Result) {
	w.Array(len(r.Op.Values))
	for i, v := range r.Op.Values {
		if i < len(r.Op.Fulls) && r.Op.Fulls[i] {
			w.Error(errorText(store.SketchRange(r.Op.Deltas[i])))
		} else {
			w.Int(v)
		}
	}
}

// parseMerge parses CMS.MERGE destination numkeys source … [WEIGHTS weight …]. The word is
// looked for behind the sources only: a source may be called so.
func parseMerge(r *Request) error {
	op := r.Op
	op.Kind = store.CMSMerge
	op.Keys = append(op.Keys, r.Args[1])
	bad := func(after int, err error) error {
		op.Object = &store.BadArgument{Err: err, After: after}
		return nil
	}
	n, ok := parseInt(r.Args[2])
	rest := r.Args[3:]
	weighted := ok && n > 0 && int64(len(rest)) > n && is(rest[n], "WEIGHTS")
	switch {
	case !ok:
		return bad(1, errMergeNumKeys)
	case n < 1:
		return bad(1, errMergePositive)
	case weighted && int64(len(rest)) != 2*n+1:
		return bad(1, errMergeWeights)
	case !weighted && int64(len(rest)) != n:
		return bad(1, errMergeKeys)
	}
	op.Keys = append(op.Keys, rest[:n]...)
	for i := range n {
		weight := int64(1)
		if weighted {
			if weight, ok = parseInt(rest[n+1+i]); !ok && op.Object == nil {
				bad(1+int(i), errMergeWeight)
			}
		}
		op.Deltas = append(op.Deltas, weight)
	}
	return nil
}

// replyCMSInfo answers cell_size, window and panes only of sketches that were made with them:
// some clients refuse what they do not know.
func replyCMSInfo(w *resp.Writer, r *Result) {
	type pair struct {
		name  string
		value int64
	}
	info := r.Op.Object.(*store.SketchInfo)
	pairs := []pair{{"width", int64(info.Width)}, {"depth", int64(info.Depth)}, {"count", info.Count}}
	if info.Cell != 0 {
		pairs = append(pairs, pair{"cell_size", int64(info.Cell)})
	}
	if info.Window != 0 {
		pairs = append(pairs, pair{"window", info.Window}, pair{"panes", int64(info.Past) + 1})
	}
	w.Map(len(pairs))
	for _, p := range pairs {
		w.Status(p.name)
		w.Int(p.value)
	}
}

const groupCountMin = "cms"

// countMinType is the type of count-min sketches.
var countMinType = keyType{name: "CMSk-TYPE", encoding: "raw", category: "cms", commands: countMinCommands}

var (
	countMinACL     = []string{"@cms"}
	countMinFastACL = []string{"@cms", "@fast"}

	perPair = "O(N*D), where N is the number of items and D the depth"
)

// cmsInitArgs documents cmsInitOptions.
var cmsInitArgs = []Arg{opt(with("CELL_SIZE", intArg("bytes"))), opt(with("WINDOW", strArg("milliseconds"))),
	opt(with("PAST", intArg("panes")))}

// countArgs documents items and their increments.
func countArgs() Arg { return multi(block("items", strArg("item"), intArg("increment"))) }

// countMinCommands are RedisBloom's count-min sketches.
var countMinCommands = family(Command{Group: groupCountMin, ACL: countMinACL}, []Command{
	{
		Name: "cms.initbydim", Arity: -4, Flags: Write | DenyOOM, Keys: oneKey(keyInsert),
		ACL: countMinFastACL, Since: "2.0.0",
		Summary: "Creates a count-min sketch with a width and a depth. A cell has 4 bytes unless CELL_SIZE " +
			"says 1, 2 or 8. With WINDOW an increment counts for that time, and at most a PAST-th of it " +
			"longer.",
		Args: []Arg{keyArg(), intArg("width"), intArg("depth"), cmsInitArgs[0], cmsInitArgs[1],
			cmsInitArgs[2]},
		Parse: parseCMSInit(byDimensions), Reply: replyOK,
	},
	{
		Name: "cms.initbyprob", Arity: -4, Flags: Write | DenyOOM, Keys: oneKey(keyInsert),
		ACL: countMinFastACL, Since: "2.0.0",
		Summary: "Creates a count-min sketch. With at most the given probability, an estimate exceeds the " +
			"true count by more than error times the total count.",
		Args: []Arg{keyArg(), dblArg("error"), dblArg("probability"), cmsInitArgs[0], cmsInitArgs[1],
			cmsInitArgs[2]},
		Parse: parseCMSInit(byProbability), Reply: replyOK,
	},
	{
		Name: "cms.incrby", Arity: -4, Flags: Write | DenyOOM, Keys: oneKey(keyReadUpdate), Since: "2.0.0",
		Complexity: perPair,
		Summary: "Increments items of a count-min sketch and returns their estimates. Not idempotent: a " +
			"retry counts twice, see CMS.CINCRBY. A pair that would take a cell out of its range changes " +
			"nothing, and its element of the reply is an error.",
		Args: []Arg{keyArg(), countArgs()}, Parse: parseCMSIncr, Reply: replyCMSValues,
	},
	{
		Name: "cms.cincrby", Arity: -5, Flags: Write | DenyOOM, Keys: oneKey(keyReadUpdate), ACL: sketchACL,
		Since: "0.2.0", Complexity: perPair,
		Summary: "Increments items of a count-min sketch once per operation id, all or none, and returns " +
			"their estimates. The same opid sent again within the table's window changes nothing and gets " +
			"the present estimates. " + onceNote,
		Args: onceArgs(keyArg(), strArg("opid"), countArgs()), Parse: parseCMSCIncr, Reply: replyCMIncr,
	},
	{
		Name: "cms.query", Arity: -3, Flags: ReadOnly, Keys: oneKey(keyRead), Since: "2.0.0",
		Complexity: perPair,
		Summary:    "Returns estimates of how often items were counted. They are never too low.",
		Args:       []Arg{keyArg(), multi(strArg("item"))}, Parse: parseItems(store.CMSQuery, 0),
		Reply: replyCMSValues,
	},
	{
		Name: "cms.merge", Arity: -4, Flags: Write | DenyOOM | waits,
		Keys: KeySpec{First: 1, Last: 1, Step: 1, Sources: 2, Flags: keyReadUpdate}, Since: "2.0.0",
		Complexity: "O(N*W*D), where N is the number of sources, W the width and D the depth",
		Summary:    "Replaces a count-min sketch with the sum of others, each times its weight.",
		Args: []Arg{Arg{Name: "destination", Type: TypeKey}, intArg("numkeys"),
			multi(Arg{Name: "source", Type: TypeKey}),
			opt(with("WEIGHTS", multi(intArg("weight"))))},
		Parse: parseMerge, Reply: replyOK,
	},
	{
		Name: "cms.info", Arity: 2, Flags: ReadOnly, Keys: oneKey(keyRead), ACL: countMinFastACL,
		Since: "2.0.0", Summary: "Returns width, depth and count of a count-min sketch.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.CMSInfo), Reply: replyCMSInfo,
	},
	{
		Name: "cms.innerprod", Arity: 3, Flags: ReadOnly | waits, Keys: manyKeys(keyRead), ACL: sketchACL,
		Since: "0.2.0", Complexity: "O(W*D), where W is the width and D the depth",
		Summary: "Returns the inner product of two count-min sketches of the same width and depth: the sum " +
			"over all items of the product of their counts, as in the size of a join. It is never too low, " +
			"and with the probability of the sketches at most 2/width times the product of their counts " +
			"too high.",
		Args: []Arg{multi(keyArg())}, Parse: parseKeys(store.CMSInner), Reply: replyInt,
	},
})
