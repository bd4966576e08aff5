package regions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// tableOf is a table as clients create it.
func tableOf(name, prefix string, change store.TableChange) store.TableOptions {
	o, _ := change.Apply(store.TableOptions{Name: name, Prefix: prefix, Skew: store.DefaultSkew,
		IDTime: store.DefaultIDTime})
	return o
}

// tablesOf are the tables of a region that has made these.
func tablesOf(t testing.TB, all ...store.TableOptions) store.TableSet {
	set := store.NewTables()
	for _, o := range all {
		var err error
		set, err = set.Create(o)
		must(t, err)
	}
	return set
}

// ills are what is wrong with a region.
func (r *region) ills() string { return strings.Join(r.node.Status().Ills, "\n") }

// TestTables: what tables differ is said by name, also while there is much to read, and no longer
// when they are made alike.
func TestTables(t *testing.T) {
	all := newServers(t, 1, 2)
	a, b := all[0], all[1]
	often := func(o *Options) { o.tablesPeriod, o.soon = time.Millisecond, time.Minute }
	a.openNode(often)
	_, err := a.node.Create("eu", a.server.address())
	must(t, err)
	second := 10 * time.Second
	votes := tableOf("votes", "vote:", store.TableChange{Window: &second})
	must(t, b.s.CreateTable(votes))
	b.openNode(often)
	b.join("us", a.node)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				a.once("k", fmt.Sprint("a", i), 1)
				b.once("k", fmt.Sprint("b", i), 1)
			}
		}
	}()
	defer func() { close(done); <-ended }()
	const want = "us has a table votes and eu has not: CTABLE CREATE votes PREFIX vote: WINDOW 10s in eu, " +
		"or CTABLE DROP votes in us"
	for _, r := range all {
		eventually(t, "it is said which table is missing", func() bool {
			return strings.Contains(r.ills(), want)
		})
		if st := r.node.Status(); len(st.Ills) != 1 || st.Ills[0] != st.Peers[0].Tables[0] {
			t.Errorf("%+v", st)
		}
	}
	must(t, a.s.CreateTable(votes))
	if ills := a.ills(); ills != "" {
		t.Errorf("the own tables of before: %s", ills)
	}
	eventually(t, "the other one hears of the table", func() bool { return b.ills() == "" })
	minute := time.Minute
	must(t, b.s.AlterTable("votes", store.TableChange{Window: &minute}))
	eventually(t, "the other one hears of the change", func() bool {
		return strings.Contains(a.ills(), "table votes has WINDOW 10s in eu and 1m in us: CTABLE ALTER "+
			"one of them")
	})
	must(t, b.s.DropTable("votes"))
	must(t, a.s.DropTable("votes"))
	for _, r := range all {
		eventually(t, "nothing is wrong", func() bool { return r.ills() == "" })
	}
}

// TestTablesOfOld: nothing is said of the tables of a region that does not tell them, and it is
// read all the same.
func TestTablesOfOld(t *testing.T) {
	all := newServers(t, 1, 1)
	a, b := all[0], all[1]
	b.server.old.Store(true)
	minute := time.Minute
	must(t, b.s.CreateTable(tableOf("t", "t:", store.TableChange{Window: &minute})))
	for i, r := range all {
		r.openNode(func(o *Options) { o.tablesPeriod = time.Millisecond })
		if i == 0 {
			_, err := a.node.Create("eu", a.server.address())
			must(t, err)
		}
	}
	b.join("us", a.node)
	count(t, "both", all...)
	failed := a.logged("cannot be read")
	for i := range 50 {
		must(t, b.once("k", fmt.Sprint(i), 1).Err)
		eventually(t, "it has arrived", func() bool { return a.value("k") == int64(i+1) })
	}
	if st := a.node.Status(); len(st.Ills) > 0 || a.logged("cannot be read") != failed ||
		a.node.Mesh().Status()[0].tables != nil {
		t.Errorf("%+v; the log: %s", st, a.log.String())
	}
	eventually(t, "it does tell the other one", func() bool {
		return strings.Contains(b.ills(), "us has a table t ")
	})
	b.server.old.Store(false)
	must(t, b.once("k", "last", 1).Err)
	eventually(t, "it tells its tables", func() bool {
		return strings.Contains(a.ills(), "us has a table t ")
	})
}

// TestTablesOfShards: the tables of a region are asked of its first shard only, and the status
// names them once, although several leaders of a reading cluster know them.
func TestTablesOfShards(t *testing.T) {
	all := newRegions(t, 2, 2)
	c := &cutShards{t: t, r: all[0],
		all: []Shard{{Partitions: [][2]uint16{{0, 0}}}, {Partitions: [][2]uint16{{1, 1}}}}}
	first, second := c.node(0), c.node(1)
	asked := [2]atomic.Int64{}
	for i, s := range []*testServer{first, second} {
		count := func(args [][]byte, reply []byte) []byte {
			if isWord(args, wordTables) {
				asked[i].Add(1)
			}
			return reply
		}
		s.change.Store(&count)
	}
	all[1].start(map[part.Region]string{0: second.address()}, nil)
	eventually(t, "both shards are read, and its tables known", func() bool {
		s := all[1].of(0)
		return s.Connected && len(s.Ranges) == 2 && s.tables.Equal(all[0].s.Tables())
	})
	if asked[0].Load() == 0 || asked[1].Load() != 0 {
		t.Errorf("asked %d and %d times", asked[0].Load(), asked[1].Load())
	}
	p := PeerStatus{Tables: []string{"a"}}
	for _, of := range []string{"a", "b"} {
		p.Add(&PeerStatus{Tables: []string{of}})
	}
	if !slices.Equal(p.Tables, []string{"a", "b"}) {
		t.Errorf("together: %q", p.Tables)
	}
}

// TestTablesIll: whatever decides over the keys of a table is compared, and nothing else.
func TestTablesIll(t *testing.T) {
	minute, hour, skew, approx, none, ms, error, disk := time.Minute, time.Hour, time.Duration(0),
		store.Approx, store.RegionsNone, store.IDTimeMS, 0.01, uint64(1<<30)
	type change = store.TableChange
	plain := tableOf("t", "t:", change{Window: &minute})
	for name, c := range map[string]struct {
		here, there []store.TableOptions
		want        string
	}{
		"the same": {[]store.TableOptions{plain}, []store.TableOptions{plain}, ""},
		"memory and disk": {[]store.TableOptions{plain},
			[]store.TableOptions{tableOf("t", "t:", change{Window: &minute, Error: &error, MaxDisk: &disk})},
			""},
		"another name": {[]store.TableOptions{plain},
			[]store.TableOptions{tableOf("u", "t:", change{Window: &minute})}, ""},
		"no other than its keys": {[]store.TableOptions{tableOf("t", "t:", change{})}, nil, ""},
		"both at home": {[]store.TableOptions{tableOf("t", "t:", change{Mode: &approx})},
			[]store.TableOptions{tableOf("t", "t:", change{Regions: &none, Window: &hour})}, ""},
		"at home, within another one": {
			[]store.TableOptions{tableOf("t", "t:", change{Regions: &none}),
				tableOf("u", "t:u:", change{Mode: &approx})},
			[]store.TableOptions{tableOf("t", "t:", change{Regions: &none})}, ""},
		"window": {[]store.TableOptions{plain},
			[]store.TableOptions{tableOf("t", "t:", change{Window: &hour})},
			"table t has WINDOW 1m in eu and 1h in us: CTABLE ALTER one of them"},
		"all else": {[]store.TableOptions{plain}, []store.TableOptions{tableOf("t", "t:",
			change{Window: &minute, Skew: &skew, IDTime: &ms, Regions: &none})},
			"table t has SKEW 5s in eu and 0ms in us, IDTIME AUTO in eu and MS in us, REGIONS ALL in eu " +
				"and NONE in us: CTABLE ALTER t REGIONS NONE in eu"},
		"bounds": {[]store.TableOptions{plain}, []store.TableOptions{tableOf("t", "t:",
			change{Window: &minute, Min: &store.Bound{N: -5, Set: true}, Max: &store.Bound{Set: true}})},
			"table t has MIN NONE in eu and -5 in us, MAX NONE in eu and 0 in us: CTABLE ALTER one of them"},
		"mode": {[]store.TableOptions{plain},
			[]store.TableOptions{tableOf("t", "t:", change{Window: &minute, Mode: &approx})},
			"table t has MODE EXACT in eu and APPROX in us: CTABLE ALTER t REGIONS NONE in eu"},
		"another name and window": {[]store.TableOptions{plain},
			[]store.TableOptions{tableOf("u", "t:", change{Window: &hour})},
			"table t, in us u, has WINDOW 1m in eu and 1h in us: CTABLE ALTER one of them"},
		"only there": {nil, []store.TableOptions{tableOf("t", "t:", change{Window: &minute, Regions: &none})},
			"us has a table t and eu has not: CTABLE CREATE t PREFIX t: WINDOW 1m REGIONS NONE in eu"},
		"at home, and told there": {[]store.TableOptions{tableOf("t", "t:", change{Mode: &approx})}, nil,
			"eu has a table t and us has not: CTABLE CREATE t PREFIX t: MODE APPROX in us"},
		"told, and at home there": {[]store.TableOptions{tableOf("u", "t:", change{Regions: &none})},
			[]store.TableOptions{tableOf("u", "t:", change{Regions: &none}), tableOf("t", "t:t:", change{})},
			"us has a table t and eu has not: CTABLE DROP t in us"},
		"at home, and told there by another name": {[]store.TableOptions{tableOf("u", "t:",
			change{Regions: &none})}, []store.TableOptions{tableOf("t", "t:", change{})},
			"table u, in us t, has REGIONS NONE in eu and ALL in us: CTABLE ALTER t REGIONS NONE in us"},
		"another prefix": {[]store.TableOptions{plain},
			[]store.TableOptions{tableOf("t", "s:", change{Window: &minute})},
			"table t has PREFIX s: in us and t: in eu: CTABLE DROP and CREATE it in one of them"},
		"another prefix, at home": {[]store.TableOptions{tableOf("t", "t:", change{Regions: &none})},
			[]store.TableOptions{tableOf("t", "s:", change{Regions: &none})},
			"table t has PREFIX s: in us and t: in eu: CTABLE CREATE one of another name, with the PREFIX " +
				"that is lacking, in both"},
		"within another one": {[]store.TableOptions{plain, tableOf("u", "t:u:", change{Window: &hour})},
			[]store.TableOptions{tableOf("u", "t:u:", change{Window: &hour})},
			"eu has a table t and us has not: CTABLE CREATE t PREFIX t: WINDOW 1m in us, or CTABLE " +
				"DROP t in eu"},
		"what nobody types": {[]store.TableOptions{tableOf("a b", "\x1b[2J"+strings.Repeat("x", 99),
			change{Window: &minute})}, nil,
			`eu has a table "a b" and us has not: CTABLE CREATE "a b" PREFIX "\x1b[2J` +
				strings.Repeat("x", 60) + `…" WINDOW 1m in us, or CTABLE DROP "a b" in eu`},
	} {
		got := tablesIll("eu", "us", tablesOf(t, c.here...), tablesOf(t, c.there...))
		if c.want != "" {
			c.want = "eu and us have different tables: " + c.want +
				". Until they are alike, operations may count twice, and counters differ"
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
	var many []store.TableOptions
	for i := range shownTables + 2 {
		many = append(many, tableOf(fmt.Sprint("t", i), fmt.Sprint("t", i), change{Window: &minute}))
	}
	if got := tablesIll("eu", "us", tablesOf(t), tablesOf(t, many...)); !strings.Contains(got,
		"; and 2 more. ") || strings.Contains(got, "t3") {
		t.Error(got)
	}
	own := tablesOf(t)
	own[0].Window = hour
	if got := tablesIll("eu", "us", own, tablesOf(t)); !strings.Contains(got, "table default has WINDOW "+
		"1h in eu and 2m in us") {
		t.Error(got)
	}
}

// TestTablesToStranger: tables are told to whom knows the group.
func TestTablesToStranger(t *testing.T) {
	r := newRegions(t, 1, 1)[0]
	for args, want := range map[string]string{
		"TABLES 77 1": "$", "TABLES 78 1": "-REFUSED ", "TABLES 77": "-ERR wrong number",
		"TABLES 77 16": "-ERR region ", "TABLES 77 1 2": "-ERR wrong number",
	} {
		var w resp.Writer
		r.server.source.Pull(t.Context(), new(Told), bytes.Fields([]byte(args)), &w)
		if got := string(w.Bytes()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", args, got)
		}
	}
}

// TestTablesMemory: what is no valid set takes no more memory than its bytes, and is no set.
func TestTablesMemory(t *testing.T) {
	b := []byte("[" + strings.Repeat("{},", maxTablesBytes/3))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decodeTables(b)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err == nil || taken > 4*maxTablesBytes {
		t.Errorf("%d bytes, %v", taken, err)
	}
}

func FuzzTables(f *testing.F) {
	minute := time.Minute
	for _, set := range []store.TableSet{tablesOf(f),
		tablesOf(f, tableOf("t", "t:", store.TableChange{Window: &minute}),
			tableOf("u", "u\"\x00", store.TableChange{}))} {
		b, err := json.Marshal(set)
		must(f, err)
		f.Add(b)
	}
	f.Add([]byte(`[{"Name":"default","Mode":7}]`))
	f.Add([]byte(`{"Name":"default"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		set, err := decodeTables(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(set)
		must(t, err)
		if same, err := decodeTables(again); err != nil || !slices.Equal(same, set) ||
			len(set) > store.MaxTables {
			t.Fatalf("%+v: %v", set, err)
		}
		ill := tablesIll("eu", "us", store.NewTables(), set)
		if back := tablesIll("us", "eu", set, store.NewTables()); (ill == "") != (back == "") {
			t.Errorf("%q, and from the other side %q", ill, back)
		}
		const escaped = 10 // bytes of a rune, at most
		if most := 300 + shownTables*(300+4*escaped*(shownRunes+1)); len(ill) > most ||
			strings.ContainsFunc(ill, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%d bytes: %q", len(ill), ill)
		}
	})
}
