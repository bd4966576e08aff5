package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestTableChangesForgetNothing creates, alters and drops tables between an
// operation and its retry, with and without a restart. The retry must be
// recognised every time.
func TestTableChangesForgetNothing(t *testing.T) {
	t.Parallel()
	changes := []struct {
		name   string
		before [][]string // before the operation
		after  [][]string // between the operation and its retry
	}{
		{"create", nil, [][]string{{"CREATE", "T", "PREFIX", "P"}}},
		{"create approx", nil, [][]string{{"CREATE", "T", "PREFIX", "P", "MODE", "APPROX"}}},
		{"create nested", nil, [][]string{{"CREATE", "T1", "PREFIX", "P"}, {"CREATE", "T2", "PREFIX", "P:"}}},
		{"drop", [][]string{{"CREATE", "T", "PREFIX", "P"}}, [][]string{{"DROP", "T"}}},
		{"drop approx", [][]string{{"CREATE", "T", "PREFIX", "P", "MODE", "APPROX"}},
			[][]string{{"DROP", "T"}}},
		{"drop nested", [][]string{{"CREATE", "T1", "PREFIX", "P"}, {"CREATE", "T2", "PREFIX", "P:"}},
			[][]string{{"DROP", "T2"}, {"DROP", "T1"}}},
		{"drop and create", [][]string{{"CREATE", "T", "PREFIX", "P"}},
			[][]string{{"DROP", "T"}, {"CREATE", "T", "PREFIX", "P", "MODE", "APPROX"}}},
		{"alter window", [][]string{{"CREATE", "T", "PREFIX", "P"}},
			[][]string{{"ALTER", "T", "WINDOW", "1000", "SKEW", "0"}}},
		{"alter error", [][]string{{"CREATE", "T", "PREFIX", "P"}},
			[][]string{{"ALTER", "T", "ERROR", "0.0000001"}}},
		{"to approx", [][]string{{"CREATE", "T", "PREFIX", "P"}},
			[][]string{{"ALTER", "T", "MODE", "APPROX"}}},
		{"to exact", [][]string{{"CREATE", "T", "PREFIX", "P", "MODE", "APPROX"}},
			[][]string{{"ALTER", "T", "MODE", "EXACT"}}},
		{"to and fro", [][]string{{"CREATE", "T", "PREFIX", "P"}},
			[][]string{{"ALTER", "T", "MODE", "APPROX"}, {"ALTER", "T", "MODE", "EXACT"}}},
	}
	s := startServer(t, "--appendfsync", "everysec")
	between := map[string]func(){"": func() {}, "restart": func() { s.restart() }, "crash": s.crash}
	for i, change := range changes {
		for how, do := range between {
			c := s.dial()
			// Names of its own for each case: tables and keys.
			own := strings.NewReplacer("T", fmt.Sprintf("table-%d%s", i, how), "P",
				fmt.Sprintf("p%d%s", i, how))
			key := own.Replace("P:k")
			ctable(c, own, change.before)
			for n := range 20 {
				c.want(fmt.Sprintf("[:%d :1]", n+1), "CINCRBY", key, strconv.Itoa(n), "1", "WITHSTATUS")
			}
			ctable(c, own, change.after)
			do()
			c = s.dial()
			for n := range 20 {
				if got := c.do("CINCRBY", key, strconv.Itoa(n), "1", "WITHSTATUS"); !strings.HasSuffix(got,
					" :0]") {
					t.Errorf("%s, %s: the retry of %d was answered %s", change.name, how, n, got)
				}
			}
			c.want(":20", "CGET", key)
		}
	}
}

// ctable sends CTABLE commands with the case's own names.
func ctable(c *rawConn, own *strings.Replacer, commands [][]string) {
	c.t.Helper()
	for _, args := range commands {
		command := append([]string{"CTABLE", args[0]}, args[1:]...)
		for i := 2; i < len(command); i++ {
			if command[i] == "T" || command[i] == "T1" || command[i] == "T2" || command[i][0] == 'P' &&
				len(command[i]) <= 2 {
				command[i] = own.Replace(command[i])
			}
		}
		c.want("+OK", command...)
	}
}

// TestTablesSurvive restarts and crashes the server and finds the same tables.
func TestTablesSurvive(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "CTABLE", "CREATE", "a", "PREFIX", "a:", "MODE", "APPROX", "WINDOW", "5000", "ERROR",
		"0.001")
	c.want("+OK", "CTABLE", "CREATE", "b", "PREFIX", "b:", "IDTIME", "MS")
	c.want("+OK", "CTABLE", "ALTER", "a", "WINDOW", "7000")
	c.want("+OK", "CTABLE", "CREATE", "c", "PREFIX", "c:")
	c.want("+OK", "CTABLE", "DROP", "c")
	settings := func() string {
		c := s.dial()
		a, _, _ := strings.Cut(c.do("CTABLE", "INFO", "a"), `"forgotten-before"`)
		b, _, _ := strings.Cut(c.do("CTABLE", "INFO", "b"), `"forgotten-before"`)
		return c.do("CTABLE", "LIST") + a + b
	}
	want := settings()
	s.crash()
	if got := settings(); got != want {
		t.Errorf("after a crash\n got %s\nwant %s", got, want)
	}
	s.restart()
	if got := settings(); got != want {
		t.Errorf("after a restart\n got %s\nwant %s", got, want)
	}
}

// TestTableCounts finds out by CTABLE INFO which table a key belongs to: the
// one with the longest prefix that matches.
func TestTableCounts(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "CTABLE", "CREATE", "shop", "PREFIX", "shop:")
	c.want("+OK", "CTABLE", "CREATE", "cart", "PREFIX", "shop:cart:")
	for _, key := range []string{"shop:1", "shop:2", "shop:cart:1", "shop:cart", "sho", "x"} {
		c.want(":1", "CINCRBY", key, "op", "1")
	}
	c.want(":1", "CINCRBY", "shop:1", "op", "1")
	for table, want := range map[string]string{"shop": "3", "cart": "1", "default": "2"} {
		info := c.do("CTABLE", "INFO", table)
		if !strings.Contains(info, `"applied" :`+want+" ") {
			t.Errorf("table %s: want %s applied in %s", table, want, info)
		}
	}
	if info := c.do("CTABLE", "INFO", "shop"); !strings.Contains(info, `"duplicates" :1 `) {
		t.Errorf("table shop: want 1 duplicate in %s", info)
	}
}
