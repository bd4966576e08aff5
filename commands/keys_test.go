package commands

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// TestTimeStandsStill sets the clock back by an hour: what expires relative to the present
// is not expired at once, and TIME tells the time by which operations are decided.
func TestTimeStandsStill(t *testing.T) {
	var wall atomic.Int64
	ahead := time.Now().Add(2 * time.Hour).UnixMilli()
	wall.Store(ahead)
	st, err := store.Open(store.Options{Dir: t.TempDir(), MinFreeDisk: -1,
		Clock: func() (int64, int64) { return wall.Load(), 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.CloseNow() })
	c := dial(t, st, &Server{})
	c.say("SET k 1 EX 100")
	wall.Add(-time.Hour.Milliseconds())
	c.play([]step{
		{"TTL k", ":100"}, {"SET l 1 EX 50", "+OK"}, {"TTL l", ":50"}, {"EXPIRE k 10", ":1"},
		{"TTL k", ":10"},
		{"TIME", fmt.Sprintf(`["%d" "%d"]`, ahead/1000, ahead%1000*1000)},
	})
}

func TestScanAndKeys(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{{"KEYS *", "[]"}, {"SCAN 0", `["0" []]`}, {"RANDOMKEY", "nil"}})
	var want []string
	for i := range 300 {
		key := fmt.Sprintf("key:%03d", i)
		want = append(want, key)
		c.say("SET " + key + " 1")
	}
	c.say("FBF.ADD filter x")
	scan := func(options string) (keys []string, calls int) {
		cursor := "0"
		for {
			calls++
			reply := c.say("SCAN " + cursor + options)
			words := regexp.MustCompile(`"[^"]*"`).FindAllString(reply, -1)
			for _, w := range words[1:] {
				keys = append(keys, strings.Trim(w, `"`))
			}
			if cursor = strings.Trim(words[0], `"`); cursor == "0" {
				slices.Sort(keys)
				return keys, calls
			}
		}
	}
	if keys, calls := scan(""); !slices.Equal(slices.Compact(keys), append([]string{"filter"}, want...)) || calls < 5 {
		t.Errorf("SCAN: %d keys in %d calls", len(keys), calls)
	}
	if keys, _ := scan(" MATCH key:0?5 COUNT 7 TYPE STRING"); !slices.Equal(keys, []string{"key:005", "key:015", "key:025",
		"key:035", "key:045", "key:055", "key:065", "key:075", "key:085", "key:095"}) {
		t.Errorf("SCAN MATCH: %v", keys)
	}
	if keys, calls := scan(" COUNT 9223372036854775807 TYPE fbf"); !slices.Equal(keys, []string{"filter"}) || calls != 1 {
		t.Errorf("SCAN TYPE: %v in %d calls", keys, calls)
	}
	c.play([]step{
		{"SCAN 0 TYPE hash COUNT 1000", `["0" []]`},
		{"SCAN 9007199254740991", `["0" []]`}, // 1<<53 - 1
		{"SCAN 9007199254740992", "-ERR invalid cursor"},
		{"SCAN 18446744073709551615", "-ERR invalid cursor"},
		{"SCAN 0 COUNT 1 COUNT 1000 MATCH none", `["0" []]`},
		{"SCAN 0 MATCH " + strings.Repeat("a", maxPattern+1), "-ERR pattern is longer than 1024 bytes"},
		{"KEYS " + strings.Repeat("a", maxPattern+1), "-ERR pattern is longer than 1024 bytes"},
		{"KEYS key:00[0-2]", `["key:000" "key:001" "key:002"]`},
		{"DBSIZE", ":301"},
		{"DEL key:000", ":1"},
		{"KEYS key:00[0-2]", `["key:001" "key:002"]`},
		{"FLUSHALL", "+OK"},
		{"DBSIZE", ":0"},
		{`GET ""`, "-ERR key must be 1 to 65536 bytes"},
		{`DEL a ""`, "-ERR key must be 1 to 65536 bytes"},
		{"SET k notanumber", "-ERR value is not an integer or out of range: a counter holds a signed 64-bit integer only"},
		{"SET k 1 NX NX", "+OK"},
	})
}

func TestServerCommands(t *testing.T) {
	c := dial(t, newStore(t), &Server{Version: "1.2.3"})
	c.play([]step{
		{"INCR k", ":1"},
		{"WAIT 0 0", ":0"},
		{"WAIT 0 -1", "-ERR timeout is negative"},
		{"WAIT 0 1.5", "-ERR timeout is not an integer or out of range"},
		{"WAIT 0 9223372036854775808", "-ERR timeout is not an integer or out of range"},
		{"WAIT 0 9223372036854775807", "-ERR timeout is out of range"},
		{"WAITAOF 1 0 9223372036854775807", "-ERR timeout is out of range"},
		{"WAITAOF 1 0 0", "[:1 :0]"},
		{"WAITAOF 0 1 0", "[:1 :0]"},
		{"WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"},
		{"WAITAOF 1 0 -1", "-ERR timeout is negative"},
		{"LASTSAVE", ":0"},
		{"SAVE", "+OK"},
	})
	if c.say("LASTSAVE") == ":0" {
		t.Error("LASTSAVE does not tell of SAVE")
	}
}

func TestInfo(t *testing.T) {
	c := dial(t, newStore(t), &Server{Version: "1.2.3"})
	c.send("INCR k", "INCR k", "INCR k x", "GET k", "CINCR k a", "CINCR k a", "INCRBY k x", "EXPIRE k 100")
	for section, wants := range map[string][]string{
		"":             {"# Server", "redis_version:" + CompatVersion, "fbfkv_version:1.2.3", "# Memory", "used_memory:", "# FBF", "recovery_milliseconds:"},
		"everything":   {"# Commandstats", "# Latencystats", "# Modules", "# Keyspace"},
		"commandstats": {"cmdstat_incr:calls=2,", "rejected_calls=1,failed_calls=0", "cmdstat_incrby:calls=1,", "rejected_calls=0,failed_calls=1"},
		"keyspace":     {"db0:keys=1,expires=1"},
		"stats":        {"total_commands_processed:", "total_error_replies:2", "operations_applied:1", "operations_duplicate:1"},
		"fbf":          {"table_default:mode=exact,window_ms=120000,", "target_fpp=0.001,", "looked_up=1,confirmed=1,", "ids=1,", "applied=1,duplicates=1,"},
		"KEYSPACE cpu": {"# Keyspace", "# CPU", "used_cpu_user:"},
	} {
		got := c.say("INFO " + section)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("INFO %s lacks %q: %s", section, want, got)
			}
		}
	}
	if got := c.say("INFO"); strings.Contains(got, "# Commandstats") {
		t.Error("commandstats are in the default set")
	}
	c.say("CONFIG RESETSTAT")
	if got := c.say("INFO commandstats"); strings.Contains(got, "cmdstat_incr:") {
		t.Errorf("after RESETSTAT: %s", got)
	}
}
