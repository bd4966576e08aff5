package store

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

var formatUpdate = flag.Bool("format.update", false, "write the table of entries in "+
	"persistence/FORMAT.md anew")

// TestFormatHasTheKinds compares the table in FORMAT.md with the rows from which entries are encoded.
func TestFormatHasTheKinds(t *testing.T) {
	const path, begin = "../persistence/FORMAT.md", "| kind | fields | what happened |\n| --- | --- | --- |\n"
	text, err := os.ReadFile(path)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatal("FORMAT.md has no table of entries")
	}
	is, behind, _ := strings.Cut(rest, "\n\n")
	var want []string
	for kind := range entryEnd {
		row := kind.row()
		if kind == 0 {
			continue
		}
		var fields []string
		for _, f := range row.fields {
			fields = append(fields, f.format)
		}
		want = append(want, fmt.Sprintf("| %d %s | %s | %s |", kind, row.name, strings.Join(fields, ", "),
			row.meaning))
	}
	if *formatUpdate {
		must(t, os.WriteFile(path, []byte(before+begin+strings.Join(want, "\n")+"\n\n"+behind), 0o666))
		return
	}
	for i, line := range strings.Split(is, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("FORMAT.md is not of these kinds (go test ./store -run %s -format.update):\n%s",
				t.Name(), line)
		}
	}
	if n := strings.Count(is, "\n") + 1; n != len(want) {
		t.Errorf("FORMAT.md has %d kinds of %d", n, len(want))
	}
}

// TestKindsAreWhole looks for what a row lacks, or has although it must not.
func TestKindsAreWhole(t *testing.T) {
	for n := range len(kindRows) {
		kind := entryKind(n)
		row := kind.row()
		if there := kind > 0 && kind < entryEnd; !there {
			if !reflect.ValueOf(*row).IsZero() {
				t.Errorf("kind %d has a row", kind)
			}
			continue
		}
		named := slices.ContainsFunc(row.fields, func(f entryField) bool {
			return strings.HasPrefix(f.format, "key bytes")
		})
		switch {
		case row.name == "" || row.meaning == "" || row.redo == nil || len(row.fields) == 0:
			t.Errorf("kind %d lacks name, meaning, redo or fields", kind)
		case (row.key != noKey) != named:
			t.Errorf("%s: has a key %v, and redo asks for it %v", row.name, named, row.key != noKey)
		case row.told == nil && row.inState == nil && (row.change != nil || row.take != nil):
			t.Errorf("%s: regions that are not told of it make something of it", row.name)
		case row.traits&hasTable != 0 != (row.fields[0].format == fieldTable.format):
			t.Errorf("%s: its first field is %s", row.name, row.fields[0].format)
		}
	}
}

// TestFrequentKindsFollowTheTable compares the kinds that are encoded without asking the table with
// their rows.
func TestFrequentKindsFollowTheTable(t *testing.T) {
	for kind := entryApply; kind < entryEnd; kind++ {
		e := entry{kind: kind, typ: TypeFilter, table: 300, key: []byte("key"), id: []byte("id"), delta: -700,
			value: 1 << 40, end: &HoldEnd{How: Settled}, r: someRegional()}
		b := e.putFields(nil)
		want := e
		var byTable []byte
		for _, f := range kind.row().fields {
			byTable = f.put(&want, byTable)
		}
		if !bytes.Equal(b, byTable) {
			t.Errorf("%s: %x, and by the table %x", kind.row().name, b, byTable)
		}
	}
}

// TestNewKind adds a kind: a row, what redoes it, and what decides it. It is redone live and by a
// start, and other regions hear of it.
func TestNewKind(t *testing.T) {
	const kind = entryEnd
	redone := 0
	kindRows[kind] = kindRow{
		name: "double", meaning: "a counter was doubled; value is the counter after it",
		fields: []entryField{fieldKey, fieldValue}, traits: isPlain, key: keyCounter,
		redo: func(p *machine, e *entry, seq uint64, at moment) error {
			redone++
			return p.redoSet(e, seq, at)
		},
		told: always,
		change: func(e *entry, ch Change, _ part.Expiry) (Change, bool) {
			ch.Kind, ch.Delta = ChangeAdd, e.value/2
			return ch, true
		},
	}
	defer func() { kindRows[kind] = kindRow{} }()
	double := func(x *turn, r *ref) {
		x.log(r.p, &entry{kind: kind, key: r.key, c: r.c, value: 2 * r.c.value})
	}

	var opts Options
	s := testStore(t, func(o *Options) { o.Partitions = 1; opts = *o })
	incr(s, "k", 21)
	p := s.partitions[0]
	x := s.internal(p)
	x.lock()
	must(t, x.reserveMore(entryRoom+1))
	double(&x.turn, &ref{p: &p.machine, key: []byte("k"), c: p.hot.peek("k")})
	must(t, x.finish())
	if v, _ := get(s, "k"); v != 42 || redone != 1 {
		t.Fatalf("%d, redone %d times", v, redone)
	}
	s.CloseNow() // without a checkpoint
	s = testStore(t, func(o *Options) { *o = opts })
	if v, _ := get(s, "k"); v != 42 || redone != 2 {
		t.Fatalf("after a start %d, redone %d times", v, redone)
	}
	e := entry{kind: kind, key: []byte("k"), value: 42}
	if ch, ok := e.change(1, 5); !ok || ch.Delta != 21 || ch.Region != 1 || !e.told(1) {
		t.Errorf("other regions hear %v, %+v", ok, ch)
	}
	kindRows[kind].redo = nil
	rd, err := newSectionReader(e.appendTo(beginSection(nil, moment{})))
	if must(t, err); rd.next(&e) || !errors.Is(rd.err(), errCorruptEntry) {
		t.Error("a kind without redo is read")
	}
}
