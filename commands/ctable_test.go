package commands

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"CTABLE CREATE pay PREFIX pay: WINDOW 60000 ERROR 0.01 MODE approx MAXMEMORY " +
			"16777216 MAXDISK 0 IDTIME ms SKEW 0", "+OK"},
		// again
		{"CTABLE CREATE pay PREFIX pay: WINDOW 60000 ERROR 0.01 MODE approx MAXMEMORY " +
			"16777216 MAXDISK 0 IDTIME ms SKEW 0", "+OK"},
		{"CTABLE CREATE pay PREFIX p2", "-ERR table or prefix exists"},
		{"CTABLE CREATE pay2 PREFIX pay:", "-ERR table or prefix exists"},
		{"CTABLE DROP default", "-ERR table default cannot be dropped"},
		{"CTABLE DROP nope", "-ERR no such table"},
		{"CTABLE INFO nope", "-ERR no such table"},
		{"CTABLE ALTER nope WINDOW 5000", "-ERR no such table"},
		{"CTABLE LIST", `["default" "" "pay" "pay:"]`},
		{"CINCRBY pay:1 x 1", "-ERR the table reads the operation's time from its opid, and this opid " +
			"contains none"},
		{"CTABLE ALTER pay IDTIME none WINDOW 30000 MODE exact", "+OK"},
		{"CINCRBY pay:1 x 1", ":1"},
		{"CTABLE DROP pay", "+OK"},
		{"CINCRBY pay:1 x 1 WITHSTATUS", "[:1 :0]"}, // honoured by the dropped table's memory
		{"GET pay:1", `"1"`},
		{"MULTI", "+OK"},
		{"CTABLE CREATE x PREFIX x", "-ERR Command not allowed inside a transaction"},
		{"EXEC", "-" + errExecAbort.Error()},
	})
	c.say("CTABLE CREATE shown PREFIX s WINDOW 60000 ERROR 0.25 IDTIME uuidv7 SKEW 7")
	got := c.say("CTABLE INFO shown")
	want := `["name" "shown" "prefix" "s" "window" :60000 "error" "0.25" "mode" "exact" "maxmemory" :0 ` +
		`"maxdisk" :0 "idtime" "uuidv7" "skew" :7 "regions" "all"`
	if !strings.HasPrefix(got, want) {
		t.Errorf("CTABLE INFO\n got %s\nwant %s", got, want)
	}
}

// Times and sizes take units, and are shown without.
func TestTableUnits(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"CTABLE CREATE t PREFIX t: WINDOW 10m SKEW 2S MAXMEMORY 16mb MAXDISK 1G", "+OK"},
		{"FBF.RESERVE f WINDOW 1h", "+OK"},
		{"FBF.INFO f WINDOW", "[:3600000]"},
		{"FBF.RESERVE g BITS 1024 HASHES 3 REFRESH 250ms", "+OK"},
		{"FBF.INFO g REFRESH", "[:250]"},
		{"FBF.INSERT h WINDOW 7d ITEMS x", "[:1]"},
		{"FBF.INFO h WINDOW", "[:604800000]"},
	})
	shown := c.say("CTABLE INFO t")
	for _, want := range []string{`"window" :600000 `, `"skew" :2000 `, `"maxmemory" :16777216 `,
		`"maxdisk" :1000000000 `} {
		if !strings.Contains(shown, want) {
			t.Errorf("CTABLE INFO lacks %s: %s", want, shown)
		}
	}
	c.play([]step{{"CTABLE ALTER t WINDOW 30s SKEW 0ms", "+OK"}})
	if shown := c.say("CTABLE INFO t"); !strings.Contains(shown, `"window" :30000 `) ||
		!strings.Contains(shown, `"skew" :0 `) {
		t.Errorf("CTABLE INFO after ALTER: %s", shown)
	}
}

// A table that names no IDTIME reads the times of UUIDv7 and ULID.
func TestIDTimeByDefault(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.say("CTABLE CREATE t PREFIX t:")
	c.say("CTABLE CREATE none PREFIX none: IDTIME none")
	for table, want := range map[string]string{"default": "auto", "t": "auto", "none": "none"} {
		if got := c.say("CTABLE INFO " + table); !strings.Contains(got, `"idtime" "`+want+`"`) {
			t.Errorf("IDTIME of %s is not %s: %s", table, want, got)
		}
	}
	const old, stale = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "-" + staleText
	c.play([]step{
		{"CINCRBY k " + old + " 1", stale},
		{"CINCRBY t:k " + old + " 1", stale},
		{"CINCRBY k 01ARZ3NDEKTSV4RRFFQ69G5FAV 1", stale},
		{"INCREX k IDMP shop " + old, stale},
		{"CINCRBY none:k " + old + " 1", ":1"},
		{"CINCRBY k ffffffff-ffff-7fff-bfff-ffffffffffff 1", ":1"},
		{"CINCRBY k order-7 1", ":2"},
		{"CTABLE ALTER none IDTIME auto", "+OK"},
		{"CINCRBY none:k 017f22e2-79b0-7cc3-98c4-dc0c0c073990 1", stale},
	})
}

// Absurd settings are refused with a text that names the option and its range,
// and leave no table behind.
func TestTableOptionErrors(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	const window = "-ERR invalid option: WINDOW must be 1s to 366d"
	const errorRange = "-ERR invalid option: ERROR must be 1e-12 to 0.5"
	const no = "-ERR invalid option: CTABLE has no "
	for options, want := range map[string]string{
		"WINDOW 0":                    window,
		"WINDOW -1":                   window,
		"WINDOW x":                    window,
		"WINDOW 999":                  window,
		"WINDOW 9223372036854775807":  window,
		"WINDOW 99999999999999999999": window,
		"WINDOW 999ms":                window,
		"WINDOW 367d":                 window,
		"WINDOW 10min":                window,
		"WINDOW 10mb":                 window,
		"ERROR 0":                     errorRange,
		"ERROR -0.1":                  errorRange,
		"ERROR 1":                     errorRange,
		"ERROR nan":                   errorRange,
		"ERROR inf":                   errorRange,
		"ERROR 0x1p-3":                errorRange,
		"ERROR 1e-400":                errorRange,
		"ERROR x":                     errorRange,
		"CAPACITY 1000": no + "CAPACITY: a table's filter grows by itself; a filter of a given size is " +
			"FBF.RESERVE's",
		"MODE foo": "-ERR invalid option: MODE must be EXACT or APPROX",
		"WINDOW 5000 PAST 3": no + "PAST: a table's filter chooses its generations; a filter of given ones " +
			"is FBF.RESERVE's",
		"IDTIME foo": "-ERR invalid option: IDTIME must be AUTO, NONE, UUIDV7, " +
			"ULID or MS",
		"SKEW -1":      "-ERR invalid option: SKEW must be 0 to 1h",
		"SKEW 3600001": "-ERR invalid option: SKEW must be 0 to 1h",
		"OVERLOAD degrade": no + "OVERLOAD: at the memory cap, MODE APPROX refuses new operations and " +
			"MODE EXACT accepts them",
		"MAXMEMORY 1":  "-ERR invalid option: MAXMEMORY must be at least 1048576 bytes",
		"MAXMEMORY 1k": "-ERR invalid option: MAXMEMORY must be at least 1048576 bytes",
		"MAXDISK 1": "-ERR invalid option: MAXDISK must be at least 1048576 bytes, " +
			"or 0 for no limit",
		"MAXDISK 10s": "-ERR invalid option: MAXDISK must be a number of bytes, 0 " +
			"for no limit",
		"MAXMEMORY x": "-ERR invalid option: MAXMEMORY must be a number of bytes, 0 " +
			"for no limit",
		"MAXDISK 18446744073709551615": "-ERR invalid option: MAXDISK must be a number of bytes, 0 " +
			"for no limit",
		"WINDOW":                  "-ERR syntax error",
		"WINDOW 5000 WINDOW 5000": "-ERR syntax error",
		"FOO 1":                   "-ERR syntax error",
		"FOO":                     "-ERR syntax error",
	} {
		if got := c.say("CTABLE CREATE t PREFIX t " + options); got != want {
			t.Errorf("CREATE %s: %s", options, got)
		}
		if strings.Contains(options, " ") {
			if got := c.say("CTABLE ALTER default " + options); got != want {
				t.Errorf("ALTER %s: %s", options, got)
			}
		}
	}
	c.play([]step{
		{"CTABLE CREATE t PREFIX t PREFIX u", "-ERR syntax error"},
		{"CTABLE CREATE t WINDOW 5000", "-ERR syntax error"},
		{"CTABLE ALTER default PREFIX x", "-ERR syntax error"},
		{"CTABLE ALTER default", "-ERR wrong number of arguments for 'ctable|alter' command"},
		{`CTABLE CREATE "" PREFIX t`, "-ERR invalid option: a table's name must be 1 to 128 bytes"},
		{`CTABLE CREATE t PREFIX ""`, "-ERR table or prefix exists"},
		{"CTABLE LIST", `["default" ""]`},
	})
}

func TestFilters(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"FBF.RESERVE f WINDOW 60000 ERROR 0.01 CAPACITY 1000 PAST 3", "+OK"},
		{"FBF.RESERVE f", "-ERR item exists"},
		{"FBF.ADD f x", ":1"},
		{"FBF.ADD f x", ":0"},
		{"FBF.MADD f x y z", "[:0 :1 :1]"},
		{"FBF.EXISTS f x", ":1"},
		{"FBF.EXISTS none x", ":0"},
		{"FBF.MEXISTS f x q", "[:1 :0]"},
		{"FBF.CARD f", ":3"},
		{"FBF.CARD none", ":0"},
		{"FBF.INSERT g NOCREATE ITEMS x", "-ERR not found"},
		{"FBF.INSERT g WINDOW 60000 ITEMS x y", "[:1 :1]"},
		{"FBF.INSERT g NOCREATE ITEMS x q", "[:0 :1]"},
		{"FBF.INSERT g ITEMS ITEMS", "[:1]"},
		{"FBF.INFO f ITEMS", "[:3]"},
		{"FBF.INFO f window", "[:60000]"},
		{"FBF.INFO f past", "[:3]"},
		{"FBF.INFO none", "-ERR not found"},
		{"FBF.INFO f ITEMS x", "-ERR syntax error"},
		{"FBF.REFRESH f", "+OK"},
		{"FBF.REFRESH none", "-ERR not found"},
		{"FBF.EXISTS f x", ":1"}, // an adaptive filter forgets nothing early
		{"TYPE f", "+fbf"},
		{"GET f", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"INCR f", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"SET k 1", "+OK"},
		{"FBF.ADD k x", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"FBF.INFO k", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"FBF.RESERVE p BITS 1024 HASHES 3 REFRESH 1000 PAST 1 FIXED", "+OK"},
		{"FBF.RESERVE p2 BITS 1024 HASHES 3 REFRESH 1000", "+OK"},
		{"FBF.INFO p2 FIXED", "[:1]"},
		{"FBF.INFO p BITS", "[:1024]"},
		{"DEL f g p p2", ":4"},
	})
	if got := c.say("FBF.INFO f foo"); !strings.HasPrefix(got, "-ERR invalid information value: one of "+
		"CAPACITY, SIZE, FILTERS, ITEMS") {
		t.Error(got)
	}
	c.say("FBF.ADD f x")
	if got := c.say("FBF.INFO f"); !strings.HasPrefix(got, `["Capacity" :`) ||
		!strings.Contains(got, `"Number of items inserted" :1`) {
		t.Error(got)
	}
}

func TestFilterOptionErrors(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	const bits = "-ERR invalid option: BITS must be 64 to 68719476736"
	for options, want := range map[string]string{
		"WINDOW 0": "-ERR invalid option: WINDOW must be 1s to 366d",
		"ERROR 1":  "-ERR invalid option: ERROR must be 1e-12 to 0.5",
		"PAST 9":   "-ERR invalid option: PAST must be 1 to 6",
		"BITS 4611686018427387904 HASHES 3 REFRESH 1000": bits,
		"BITS 0 HASHES 3 REFRESH 1000":                   bits,
		"BITS x HASHES 3 REFRESH 1000":                   bits,
		"BITS 1024 HASHES 0 REFRESH 1000":                "-ERR invalid option: HASHES must be 1 to 32",
		"BITS 1024 HASHES 33 REFRESH 1000":               "-ERR invalid option: HASHES must be 1 to 32",
		"BITS 1024 HASHES 3 REFRESH 0":                   "-ERR invalid option: REFRESH must be 10ms to 366d",
		"BITS 1024 HASHES 3 REFRESH 1000 PAST 65":        "-ERR invalid option: PAST must be 1 to 64",
		"BITS 1024 HASHES 3 REFRESH 1000 WINDOW 5000": "-ERR invalid option: a FIXED filter takes only " +
			"BITS, HASHES, REFRESH and PAST",
		"FIXED":         bits,
		"CAPACITY -1":   "-ERR invalid option: CAPACITY must be at most 1099511627776",
		"FIXED FIXED":   "-ERR syntax error",
		"BITS":          "-ERR syntax error",
		"FOO":           "-ERR syntax error",
		"NOCREATE":      "-ERR syntax error",
		"PAST 1 PAST 2": "-ERR syntax error",
	} {
		if got := c.say("FBF.RESERVE f " + options); got != want {
			t.Errorf("RESERVE %s: %s", options, got)
		}
		if options == "NOCREATE" {
			continue
		}
		if got := c.say("FBF.INSERT f " + options + " ITEMS x"); got != want && options != "BITS" {
			t.Errorf("INSERT %s: %s", options, got)
		}
	}
	c.play([]step{
		{"FBF.INSERT f ITEMS", "-ERR wrong number of arguments for 'fbf.insert' command"},
		{"FBF.INSERT f WINDOW 5000 ITEMS", "-ERR syntax error"},
		{"FBF.INSERT f NOCREATE WINDOW 5000 ITEMS x", "-ERR syntax error"},
		{"FBF.INSERT f WINDOW 5000", "-ERR syntax error"},
		{"EXISTS f", ":0"},
	})
}
