package commands

import (
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

var decimalOps = flag.Int("decimal.ops", 20_000, "random operations that TestDecimalModel compares with math/big")

// decimalTable is a table of the model: the first byte of its keys names it.
type decimalTable struct {
	create   string
	scale    int
	min, max *big.Rat // nil: none
}

var decimalTables = map[byte]*decimalTable{
	'i': {create: "SCALE 0", scale: 0},
	'c': {create: "SCALE 2", scale: 2},
	'n': {create: "SCALE 9", scale: 9},
	'm': {create: "SCALE 3 MIN -1000.5 MAX 1000.125", scale: 3, min: rat("-1000.5"), max: rat("1000.125")},
	'a': {create: "SCALE 1 MODE APPROX", scale: 1},
}

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	return r
}

// least and most are the values that an int64 of steps can have.
func (t *decimalTable) least() *big.Rat { return t.step(math.MinInt64) }
func (t *decimalTable) most() *big.Rat  { return t.step(math.MaxInt64) }

func (t *decimalTable) step(n int64) *big.Rat {
	f := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.scale)), nil)
	return new(big.Rat).SetFrac(big.NewInt(n), f)
}

func (t *decimalTable) holds(r *big.Rat) bool { return r.Cmp(t.least()) >= 0 && r.Cmp(t.most()) <= 0 }

// shown is how a number is answered.
func (t *decimalTable) shown(r *big.Rat) string {
	if t.scale == 0 {
		return ":" + r.FloatString(0)
	}
	return strconv.Quote(trimmed(r))
}

// trimmed has no zeros behind the point that do not count.
func trimmed(r *big.Rat) string {
	return strings.TrimSuffix(strings.TrimRight(r.FloatString(9), "0"), ".")
}

var (
	isDecimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	errRead   = "-ERR value is not an integer or out of range"
	errWhole  = "-ERR value is not an integer" // as errRead, of a number that has a table
)

// read reads a number, or returns the refusal.
func (t *decimalTable) read(text string) (*big.Rat, string) {
	whole, behind, _ := strings.Cut(text, ".")
	if !isDecimal.MatchString(text) {
		return nil, errRead
	}
	if n, _ := new(big.Int).SetString(whole+behind, 10); len(behind) <= 9 && !n.IsInt64() {
		return nil, errRead
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch r := rat(text); {
	case t.scale == 0 && (err != nil || strconv.FormatInt(n, 10) != text):
		return nil, errWhole
	case len(behind) > t.scale && t.scale == 1:
		return nil, "-ERR at most 1 decimal"
	case len(behind) > t.scale:
		return nil, fmt.Sprintf("-ERR at most %d decimals", t.scale)
	case !t.holds(r):
		return nil, "-ERR value is out of range"
	default:
		return r, ""
	}
}

// decimalModel is the exact reference.
type decimalModel struct {
	values map[string]*big.Rat
	first  map[string][2]*big.Rat // by key and opid: delta and result
}

func tableOfKey(key string) *decimalTable { return decimalTables[key[0]] }

func (m *decimalModel) value(key string) *big.Rat {
	if v := m.values[key]; v != nil {
		return v
	}
	return new(big.Rat)
}

// bound refuses a value.
func (m *decimalModel) bound(key string, next, lower, upper *big.Rat) string {
	t, v := tableOfKey(key), m.value(key)
	refused := func(b *big.Rat, side string) string {
		return fmt.Sprintf("-BOUND key %q would become %s, %s %s", key, trimmed(next), side, trimmed(b))
	}
	switch {
	case lower != nil && next.Cmp(lower) < 0:
		return refused(lower, "below")
	case upper != nil && next.Cmp(upper) > 0:
		return refused(upper, "above")
	case t.max != nil && next.Cmp(v) > 0 && next.Cmp(t.max) > 0:
		return refused(t.max, "above")
	case t.min != nil && next.Cmp(v) < 0 && next.Cmp(t.min) < 0:
		return refused(t.min, "below")
	}
	return ""
}

// added returns what an increment makes of a counter, or the refusal.
func (m *decimalModel) added(key string, delta, lower, upper *big.Rat) (*big.Rat, string) {
	next := new(big.Rat).Add(m.value(key), delta)
	if !tableOfKey(key).holds(next) {
		return nil, "-ERR increment or decrement would overflow"
	}
	return next, m.bound(key, next, lower, upper)
}

// decimalRun makes random requests, and the replies that they must get.
type decimalRun struct {
	*rand.Rand
	decimalModel
	keys []string
	ids  int
}

func (d *decimalRun) key() string { return d.keys[d.IntN(len(d.keys))] }

// number writes a random number, which most tables of the scale take.
func (d *decimalRun) number(scale int) string {
	switch d.IntN(60) {
	case 0:
		return []string{".5", "1.", "+1", "1e2", "-", "", "1.2.3", "--1", "0x1", "1_0", " 1"}[d.IntN(11)]
	case 1:
		return []string{"007", "-0", "00.50", "-0.0", "0.1234567890", "92233720368547758.08",
			"-9223372036854775808", "9223372036854775807", "9223372036854775.807", "-9223372036.854775808"}[d.IntN(10)]
	case 2, 3:
		scale++
	}
	n := d.Int64N(2001) - 1000
	if d.IntN(20) == 0 {
		n = d.Int64() >> d.IntN(40)
	}
	text := strconv.FormatInt(n, 10)
	if digits := d.IntN(scale + 1); digits > 0 {
		text = fmt.Sprintf("%s.%0*d", text, digits, d.Uint64N(uint64(math.Pow10(digits))))
	}
	return text
}

// options adds bounds to a request; they are nil if it has none.
func (d *decimalRun) options(t *decimalTable) (words string, lower, upper *big.Rat) {
	if d.IntN(3) > 0 {
		return "", nil, nil
	}
	lower, upper = t.step(-d.Int64N(100_000)), t.step(d.Int64N(100_000))
	return fmt.Sprintf(" LBOUND %s UBOUND %s", trimmed(lower), trimmed(upper)), lower, upper
}

// increment is CINCRBY with a new opid, or one that was used.
func (d *decimalRun) increment() (request, reply string) {
	key := d.key()
	t := tableOfKey(key)
	text, id := d.number(t.scale), d.IntN(d.ids+20)
	if id >= d.ids {
		d.ids++
		id = d.ids
	}
	words, lower, upper := d.options(t)
	request = fmt.Sprintf("CINCRBY %s %d %q%s", key, id, text, words)
	delta, refused := t.read(text)
	if refused != "" {
		return request, refused
	}
	of := fmt.Sprint(key, " ", id)
	if first, known := d.first[of]; known {
		switch {
		case t.create == decimalTables['a'].create:
			return request, t.shown(d.value(key))
		case first[0].Cmp(delta) != 0:
			return request, "-MISMATCH opid was used with another delta"
		}
		return request, t.shown(first[1])
	}
	next, refused := d.added(key, delta, lower, upper)
	if refused != "" {
		return request, refused
	}
	d.values[key], d.first[of] = next, [2]*big.Rat{delta, next}
	return request, t.shown(next)
}

// plain is INCRBYFLOAT, INCRBY, SET or GET.
func (d *decimalRun) plain() (request, reply string) {
	key := d.key()
	t := tableOfKey(key)
	name := []string{"INCRBYFLOAT", "INCRBY", "SET", "GET"}[d.IntN(4)]
	if name == "GET" {
		if d.values[key] == nil {
			return "GET " + key, "nil"
		}
		return "GET " + key, strconv.Quote(trimmed(d.value(key)))
	}
	text := d.number(t.scale)
	request = fmt.Sprintf("%s %s %q", name, key, text)
	n, refused := t.read(text)
	_, err := strconv.ParseInt(text, 10, 64)
	switch integer := err == nil && !strings.HasPrefix(strings.TrimPrefix(text, "-"), "0"); {
	case name == "INCRBYFLOAT" && refused == errRead:
		return request, "-ERR value is not a valid float"
	case name == "INCRBYFLOAT" && t.scale == 0:
		return request, "-ERR " + store.ErrNoFloat.Error()
	case name == "INCRBY" && !integer && text != "0":
		return request, errRead
	case refused != "":
		return request, refused
	}
	next := n
	if name != "SET" {
		next, refused = d.added(key, n, nil, nil)
	} else {
		refused = d.bound(key, next, nil, nil)
	}
	if refused != "" {
		return request, refused
	}
	d.values[key] = next
	if name == "SET" {
		return request, "+OK"
	}
	return request, t.shown(next)
}

// bounded is INCREX.
func (d *decimalRun) bounded() (request, reply string) {
	key := d.key()
	t := tableOfKey(key)
	delta, value := t.step(d.Int64N(20_000)-10_000), d.value(key)
	words, lower, upper := d.options(t)
	by, saturate := "BYFLOAT", d.IntN(2) == 0
	if t.scale == 0 {
		by = "BYINT"
	}
	if request = fmt.Sprintf("INCREX %s %s %s%s", key, by, trimmed(delta), words); saturate {
		request += " SATURATE"
	}
	if lower == nil {
		lower, upper = t.least(), t.most()
	}
	if t.min != nil && lower.Cmp(t.min) < 0 {
		lower = t.min
	}
	if t.max != nil && upper.Cmp(t.max) > 0 {
		upper = t.max
	}
	next := new(big.Rat).Add(value, delta)
	clipped := next
	if next.Cmp(lower) < 0 {
		clipped = lower
	} else if next.Cmp(upper) > 0 {
		clipped = upper
	}
	if clipped != next && !saturate {
		return request, fmt.Sprintf("[%s %s]", t.shown(value), t.shown(new(big.Rat)))
	}
	made := new(big.Rat).Sub(clipped, value)
	if !t.holds(made) {
		return request, "-ERR applied increment would overflow"
	}
	d.values[key] = clipped
	return request, fmt.Sprintf("[%s %s]", t.shown(clipped), t.shown(made))
}

// transfer is CMINCRBY between tables.
func (d *decimalRun) transfer() (request, reply string) {
	var all []string
	var refused string
	deltas := make(map[string]*big.Rat)
	for range 3 {
		key := d.key()
		if deltas[key] != nil || key[0] == 'a' {
			continue
		}
		text := trimmed(tableOfKey(key).step(d.Int64N(20_000) - 10_000))
		if d.IntN(20) == 0 {
			text += "5"
			text = strings.Replace(text, "0.5", "0.05", 1)
		}
		var of string
		if deltas[key], of = tableOfKey(key).read(text); refused == "" {
			refused = of
		}
		if all = append(all, key, text); deltas[key] == nil {
			break
		}
	}
	if len(all) == 0 {
		return d.plain()
	}
	d.ids++
	request = fmt.Sprintf("CMINCRBY %d %d %s", d.ids, len(all)/2, strings.Join(all, " "))
	next := make(map[string]*big.Rat)
	for pass := range 2 { // overflows of all keys come before bounds
		for i := 0; i < len(all) && refused == ""; i += 2 {
			var why string
			next[all[i]], why = d.added(all[i], deltas[all[i]], nil, nil)
			if pass == 1 || next[all[i]] == nil {
				refused = why
			}
		}
	}
	if refused != "" {
		return request, refused
	}
	var shown []string
	for i := 0; i < len(all); i += 2 {
		key := all[i]
		d.values[key], d.first[fmt.Sprint(key, " ", d.ids)] = next[key], [2]*big.Rat{deltas[key], next[key]}
		shown = append(shown, tableOfKey(key).shown(next[key]))
	}
	return request, "[" + strings.Join(shown, " ") + "]"
}

// TestDecimalModel compares random operations on tables of several scales with math/big.
func TestDecimalModel(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	d := decimalRun{Rand: rand.New(rand.NewPCG(1, uint64(*decimalOps)))}
	d.values, d.first = make(map[string]*big.Rat), make(map[string][2]*big.Rat)
	for name, table := range decimalTables {
		create := fmt.Sprintf("CTABLE CREATE %c PREFIX %c: WINDOW 10d ERROR 1e-9 %s", name, name, table.create)
		if got := c.say(create); got != "+OK" {
			t.Fatal(create, got)
		}
		for i := range 5 {
			d.keys = append(d.keys, fmt.Sprintf("%c:%d", name, i))
		}
	}
	for range *decimalOps {
		f := []func() (string, string){d.increment, d.increment, d.plain, d.bounded, d.transfer}[d.IntN(5)]
		request, want := f()
		got := c.say(request)
		if got != want && !(want[0] == '-' && strings.HasPrefix(got, want)) { // a remedy follows
			t.Fatalf("%s\n got %s\nwant %s", request, got, want)
		}
	}
}

// BenchmarkDecimal compares CINCRBY in tables with and without SCALE: the same counters, opids and steps,
// written as decimals in one. An iteration is one operation, in pipelines of 64.
func BenchmarkDecimal(b *testing.B) {
	for _, table := range []struct{ name, create, delta string }{
		{"SCALE=0", "SCALE 0", "125"}, {"SCALE=2", "SCALE 2", "1.25"}} {
		b.Run(table.name, func(b *testing.B) {
			st := newStore(b)
			srv := &Server{}
			p := NewPipeline(srv, NewSession(7, "127.0.0.1:50000", "127.0.0.1:6379", srv))
			NewRound(st, srv, false).Join(p)
			var w resp.Writer
			p.Do(toArgs(append(strings.Fields("CTABLE CREATE t PREFIX t:"), strings.Fields(table.create)...)), &w)
			requests := make([][][]byte, 64)
			for i := range requests {
				requests[i] = toArgs([]string{"CINCRBY", fmt.Sprint("t:", i), "0123456789abcdef", table.delta})
			}
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(requests) {
				for i, args := range requests {
					args[1] = fmt.Appendf(args[1][:0], "t:%d", (n+i)*7919%10_000)
					args[2] = fmt.Appendf(args[2][:0], "%016d", n+i)
					p.Do(args, &w)
				}
				p.Flush(&w)
				if n == 0 && w.Bytes()[0] == '-' {
					b.Fatal(string(w.Bytes()))
				}
				w.Reset()
			}
		})
	}
}
