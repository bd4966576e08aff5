package regions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Tables are made in each region by its operator: were they copied, one that was dropped would come
// back. So each region asks the others for theirs, and says by name what is not the same.

// wordTables asks for the tables, in the place of a request's first number.
const wordTables = "TABLES"

const (
	// maxTablesBytes bounds an answer to it. Without prefixes of many kilobytes store.MaxTables
	// take a tenth of it.
	maxTablesBytes = 1 << 20
	// shownTables is how many tables are named to an operator, and shownRunes how much of a name or a prefix.
	shownTables = 3
	shownRunes  = 64
)

// writeTables appends a request for the tables.
func writeTables(w *resp.Writer, group uint64, by part.Region) {
	w.BulkStrings([]string{Command, wordTables, strconv.FormatUint(group, 10), strconv.Itoa(int(by))})
}

// tables answers REGION.PULL TABLES.
func (s *Source) tables(args [][]byte, w *resp.Writer) {
	_, err := s.asMember(args)
	var b []byte
	if err == nil {
		b, err = json.Marshal(s.Store.Tables())
	}
	if err == nil && len(b) > maxTablesBytes {
		err = fmt.Errorf("the tables take %d bytes", len(b))
	}
	if err != nil {
		w.Error(replyOf(err))
		return
	}
	w.Bulk(b)
}

// decodeTables reads an answer. An option that is not known here is not compared.
func decodeTables(b []byte) (store.TableSet, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	set := store.TableSet{}
	_, err := d.Token()                                         // all else than an array is no set
	for err == nil && d.More() && len(set) <= store.MaxTables { // few bytes do not become many tables
		set = append(set, store.TableOptions{})
		err = d.Decode(&set[len(set)-1])
	}
	if err == nil {
		err = set.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: tables: %w", ErrAnswer, err)
	}
	return set, nil
}

// tablesDue reports whether to ask for the tables of the region: when a session begins, and from
// time to time. One peer of a region does, since all shards have the same.
func (p *peer) tablesDue(l *link) bool {
	return p.first == 0 && time.Since(l.asked) >= p.opts.tablesPeriod
}

// learnTables asks for the tables if that is due. Nothing may be under way, nor follow but a
// request that begins anew: a source that does not know the word forgets what it was asked before.
// Of one that does not answer with tables nothing is known, and it is read all the same.
func (p *peer) learnTables(l *link, m *membership) error {
	if !p.tablesDue(l) {
		return nil
	}
	l.asked = time.Now()
	writeTables(&l.w, m.group, m.self)
	if err := l.send(p.opts.Timeout); err != nil {
		return err
	}
	b, failed, err := l.bulk(maxTablesBytes)
	if err != nil {
		return err
	}
	var set store.TableSet
	if failed == "" {
		if set, err = decodeTables(b); err != nil {
			p.opts.Logger.Debug("the tables of another region cannot be compared", "region", p.name(),
				"error", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tables = set
	return nil
}

// tables returns the tables of a region, as it has told them; nil: it has not. The lock is held.
func (m *Mesh) tables(r part.Region) store.TableSet {
	p := m.peers[peerKey{r, 0}]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tables
}

// policy is what regions must agree on for the keys of a table, in the words of CTABLE: the effect
// of an operation, and its recipients. The other options say what memory and disk a region spends
// on it. Names may differ: an opid is of a key.
func policy(o *store.TableOptions) [][2]string {
	all := [][2]string{{"MODE", o.Mode.Word()}, {"WINDOW", span(o.Window)}, {"SKEW", span(o.Skew)},
		{"IDTIME", o.IDTime.Word()}}
	switch {
	case o.Mode == store.Approx: // there is no choice
	case o.Told():
		all = append(all, [2]string{"REGIONS", "ALL"}, [2]string{"MIN", bound(o.Min)},
			[2]string{"MAX", bound(o.Max)})
	default:
		all = append(all, [2]string{"REGIONS", "NONE"})
	}
	return all
}

// bound is a bound as CTABLE reads it, of a table of regions, which has no SCALE.
func bound(b store.Bound) string {
	if !b.Set {
		return "NONE"
	}
	return strconv.FormatInt(b.N, 10)
}

// span is a duration as CTABLE reads it.
func span(d time.Duration) string {
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
		{"ms", time.Millisecond}} {
		if d > 0 && d%unit.is == 0 {
			return fmt.Sprint(int64(d/unit.is), unit.name)
		}
	}
	return fmt.Sprint(d.Milliseconds(), "ms")
}

// quoted is a name or a prefix as an operator types it.
func quoted(s string) string {
	if r := []rune(s); len(r) > shownRunes {
		s = string(r[:shownRunes]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '"' || r == '\'' || r == '\\' || !strconv.IsPrint(r)
	}) || s == "" {
		return strconv.Quote(s)
	}
	return s
}

// tablesIll tells an operator which tables two regions have not got alike, and what helps; "": all
// that are exchanged are alike.
//
// A key's table is that with the longest prefix of the key. So the prefixes of all tables cut the
// keys into pieces, each of which has one table here and one there.
func tablesIll(self, other string, here, there store.TableSet) string {
	if here.Equal(there) {
		return ""
	}
	prefixes := make(map[string]bool)
	for _, o := range slices.Concat(here, there) {
		prefixes[o.Prefix] = true
	}
	var all []string
	for _, prefix := range slices.Sorted(maps.Keys(prefixes)) {
		a, b := here.Of(prefix), there.Of(prefix)
		var says string
		switch {
		case !a.Told() && !b.Told() || slices.Equal(policy(a), policy(b)):
			continue
		case a.Prefix == b.Prefix:
			says = unlike(self, other, a, b)
		case a.Prefix == prefix:
			says = lacks(self, other, a, there)
		default:
			says = lacks(other, self, b, here)
		}
		if !slices.Contains(all, says) {
			all = append(all, says)
		}
	}
	if len(all) == 0 {
		return ""
	}
	more := ""
	if n := len(all) - shownTables; n > 0 {
		all, more = all[:shownTables], fmt.Sprintf("; and %d more", n)
	}
	return fmt.Sprintf("%s and %s have different tables: %s%s. Until they are alike, operations may count "+
		"twice, and counters differ",
		self, other, strings.Join(all, "; "), more)
}

// unlike says how a table differs in two regions.
func unlike(self, other string, a, b *store.TableOptions) string {
	name := quoted(a.Name)
	if a.Name != b.Name {
		name += fmt.Sprintf(", in %s %s,", other, quoted(b.Name))
	}
	var all []string
	here, there := policy(a), policy(b)
	for i := range min(len(here), len(there)) { // with another MODE another REGIONS is no news
		if here[i] != there[i] {
			all = append(all, fmt.Sprintf("%s %s in %s and %s in %s", here[i][0], here[i][1], self,
				there[i][1], other))
		}
	}
	helps := "CTABLE ALTER one of them"
	// keys that are not told cannot be told later (store.ErrTableRegions)
	if told, at := a, self; a.Told() != b.Told() {
		if b.Told() {
			told, at = b, other
		}
		helps = fmt.Sprintf("CTABLE ALTER %s REGIONS NONE in %s", quoted(told.Name), at)
	}
	return fmt.Sprintf("table %s has %s: %s", name, strings.Join(all, ", "), helps)
}

// lacks says that a region has a table and another one, with others, has not.
func lacks(has, without string, o *store.TableOptions, others store.TableSet) string {
	if i := slices.IndexFunc(others, func(t store.TableOptions) bool { return t.Name == o.Name }); i >= 0 {
		first, second := fmt.Sprintf("%s in %s", quoted(o.Prefix), has),
			fmt.Sprintf("%s in %s", quoted(others[i].Prefix), without)
		if others[i].Prefix < o.Prefix { // it is said of both prefixes, and once
			first, second = second, first
		}
		helps := "CTABLE DROP and CREATE it in one of them"
		if !o.Told() { // DROP would have its keys told, without their beginning: store.ErrTableRegions
			helps = "CTABLE CREATE one of another name, with the PREFIX that is lacking, in both"
		}
		return fmt.Sprintf("table %s has PREFIX %s and %s: %s", quoted(o.Name), first, second, helps)
	}
	var helps []string
	if !o.Told() || others.Of(o.Prefix).Told() { // or else it is refused: store.ErrTableRegions
		usual := policy(&store.NewTables()[0])
		create := fmt.Sprintf("CTABLE CREATE %s PREFIX %s", quoted(o.Name), quoted(o.Prefix))
		for i, v := range policy(o) {
			if v != usual[i] {
				create += " " + v[0] + " " + v[1]
			}
		}
		helps = append(helps, create+" in "+without)
	}
	if o.Told() {
		helps = append(helps, fmt.Sprintf("CTABLE DROP %s in %s", quoted(o.Name), has))
	}
	return fmt.Sprintf("%s has a table %s and %s has not: %s", has, quoted(o.Name), without,
		strings.Join(helps, ", or "))
}
