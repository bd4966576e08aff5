package bench

import (
	"slices"
	"strings"
	"testing"
)

// TestRowsChosen: rows are chosen by the beginnings of their names, and numbers are not cut.
func TestRowsChosen(t *testing.T) {
	var names []string
	for _, e := range experiments() {
		for _, name := range e.rows {
			if slices.Contains(names, name) {
				t.Errorf("%s is there twice", name)
			}
			names = append(names, name)
		}
	}
	for _, tc := range []struct {
		rows        string
		want        string // rows
		experiments string
	}{
		{"approx-1", "approx-1", "everysec"},
		{"approx-p99-16,ping-6", "", ""},
		{"approx-p99", "approx-p99-1 approx-p99-16 approx-p99-64", "everysec"},
		{"lua-everysec-1,start", "lua-everysec-1 start-kill start-order", "everysec start"},
		{"duplicates-10", "duplicates-10-memory duplicates-10-runs", "everysec"},
		{"hot", "hot-everysec hot-always", "everysec always"},
		{"disk", "disk-EXACT disk-writes", "memory"},
		{"nosuch", "", ""},
		{"approx-1,approx-2", "", ""},
	} {
		t.Run(tc.rows, func(t *testing.T) {
			tab := &table{rows: strings.Split(tc.rows, ",")}
			chosen, err := tab.choose()
			if tc.want == "" {
				if err == nil {
					t.Errorf("chose %v", chosen)
				}
				return
			}
			var got, of []string
			for _, name := range names {
				if tab.wantsRow(name) {
					got = append(got, name)
				}
			}
			for _, e := range chosen {
				of = append(of, e.name)
			}
			if err != nil || strings.Join(got, " ") != tc.want || strings.Join(of, " ") != tc.experiments {
				t.Errorf("%v of %v, %v", got, of, err)
			}
		})
	}
	out, err := runCommand(t, "table", "--redis", "true", "--rows", "lua,nosuch")
	if err == nil || !strings.Contains(err.Error(), `"nosuch"`) || strings.Contains(out, "measured") {
		t.Errorf("an unknown row: %v, after %q", err, out)
	}
}

// TestDeclaredRows: every row of the document's table is declared.
func TestDeclaredRows(t *testing.T) {
	for _, want := range []string{"sadd-16", "bfadd-64", "memory-EXACT-default", "memory-redis", "p99", "recovery", "incrby-always-64"} {
		if !slices.ContainsFunc(experiments(), func(e experiment) bool { return slices.Contains(e.rows, want) }) {
			t.Errorf("%s is not declared", want)
		}
	}
}
