package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// accessLog has lines of an access log.
const accessLog = `192.0.2.1 - - [27/Nov/2026:23:59:36 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl"
192.0.2.1 - ann [28/Nov/2026:00:30:36 +0100] "GET /a HTTP/1.1" 200 12
192.0.2.2 - - [28/Nov/2026:13:00:36 +0000] "POST /b HTTP/1.1" 304 -
`

// TestStreamCount counts records of several formats, and says of each that it cannot count why.
func TestStreamCount(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "SET", "list:no", "7")
	c.want("+OK", "CTABLE", "CREATE", "euro", "PREFIX", "euro:", "SCALE", "2", "MAX", "100")
	c.want("+OK", "CTABLE", "CREATE", "lead", "PREFIX", "lead:", "TOP", "2")
	dead := filepath.Join(t.TempDir(), "dead")
	const spent = `{"page":{"id":"/a"},"t":1700000000,"n":5,"id":"e1"}` + "\n" +
		`{"page":{"id":7},"t":"2023-11-14T22:13:20Z","n":"6","id":"e2"}` + "\n"
	for i, step := range []struct {
		input, args, want string // want: what standard error contains
		status            int
		counts            map[string]string
	}{
		{accessLog, "--counter views:{path}:{day} --combined --source acc --expire 90d", "counted: 3 lines", 0,
			map[string]string{"views:/a:2026-11-27": "2", "views:/b:2026-11-28": "1"}},
		{accessLog, "--counter views:{path}:{day} --combined --source acc", "counted: 0 lines", 0,
			map[string]string{"views:/a:2026-11-27": "2"}},
		{accessLog + "no\n", "--counter views:{path}:{day} --combined --source acc",
			"line 4: the line is not in the combined format", 2, map[string]string{"views:/a:2026-11-27": "2"}},
		{accessLog, "--counter views:{path}:{day} --combined --source acc", "it ends behind line 3", 1, nil},
		{accessLog, "--counter n:{status} --combined --source acc", "counted: 3 lines", 0,
			map[string]string{"n:200": "2"}},
		{accessLog, "--counter n:{status} --combined --time at", "no field {at}", 2, nil},
		{spent, "--counter p:{page.id}:{hour} --by n --time t --source j1", "counted: 2 lines", 0,
			map[string]string{"p:/a:2023-11-14T22": "5", "p:7:2023-11-14T22": "6"}},
		{spent, "--counter p:{page.id} --by n --id id", "counted: 2 lines", 0,
			map[string]string{"p:/a": "5", "p:7": "6"}},
		{spent, "--counter p:{page.id} --by n --id id", "counted before: 2", 0,
			map[string]string{"p:/a": "5", "p:7": "6"}},
		{spent, "--counter late:{page.id} --by n --id id --time t", "STALE: 2", 2, nil},
		{"name,n\nann,3\nbob,x\n\"c,d\",4\n", "--counter paid:{name} --by n --csv --header --source csv",
			"line 3: ERR value is not an integer", 2, map[string]string{"paid:ann": "3", "paid:c,d": "4"}},
		{"ann,3\nbob,2\n", "--counter sum:{1} --by 2 --csv", "counted: 2 lines", 0,
			map[string]string{"sum:ann": "3", "sum:bob": "2"}},
		{"t/0/1\t{\"c\":\"x\"}\nt/0/2\t{\"c\":\"x\"}\nt/0/2\t{\"c\":\"x\"}\n",
			"--counter k:{c} --id-first", "counted before: 1", 0, map[string]string{"k:x": "2"}},
		{"{\"c\":\"x\"}\n", "--counter k:{c} --id-first", "no operation id and tab in front", 2, nil},
		{"ann 60.25\nann 50\nbob 99.999\nbob 1.5\n", "--counter euro:{{{1}}} --by 2 --source euro",
			"BOUND: 1; ERR: 1", 2, map[string]string{"euro:{ann}": "60.25", "euro:{bob}": "1.5"}},
		{"a 1\nb 3\nc 2\nd 1\n", "--counter lead:{1} --by 2", "           3  lead:b\n           2  lead:c\n", 0, nil},
		{"a\nb\n", "--counter line:{line}", "counted: 2 lines", 0, map[string]string{"line:a": "1"}},
		{`{"a":1}` + "\n{}\n[]\nno\n" + `{"a":null}` + "\n", "--counter x:{a} --dead-letter " + dead,
			"bad records: 4", 2, map[string]string{"x:1": "1"}},
		{"{\"t\":\"soon\"}\n", "--counter x:{day} --time t", "\"soon\" is no time", 2, nil},
		{"", "--counter x:{", "no field's name and brace follow", 1, nil},
		{"", "--counter x:a}", "a brace is closed that was not opened", 1, nil},
		{"", "", "--counter 'views:{page}'", 1, nil},
		{"", "--counter x --id a --source b", "give one of them", 1, nil},
		{"", "--counter x --header", "--header goes with --csv", 1, nil},
		{"", "--counter x --csv --combined", "two formats", 1, nil},
		{"", "--counter x --expire 1", "is no time of a second or more", 1, nil},
		{"", "--counter x --redis redis://h", "--redis, --stream and --group go together", 1, nil},
	} {
		_, stderr, status := s.stream(step.input, append([]string{"count"}, strings.Fields(step.args)...)...)
		if status != step.status || !strings.Contains(stderr, step.want) {
			t.Errorf("step %d, %s: exit status %d\n%s", i, step.args, status, stderr)
		}
		for key, want := range step.counts {
			if got := s.client().Get(context.Background(), key).Val(); got != want {
				t.Errorf("step %d, %s: %s is %s, not %s", i, step.args, key, got, want)
			}
		}
	}
	if text, err := os.ReadFile(dead); string(text) != "{}\n[]\nno\n{\"a\":null}\n" {
		t.Errorf("dead letters: %q, %v", text, err)
	}
	left := s.client().TTL(context.Background(), "views:/b:2026-11-28").Val().Hours()
	if left < 89*24 || left > 90*24 {
		t.Errorf("the counter lives for %v hours", left)
	}
}

// TestStreamCountTooLate: lines that a killed run may have sent are refused if the server may have forgotten
// them, also by a run that follows an interrupted one, and those behind them count.
func TestStreamCountTooLate(t *testing.T) {
	t.Parallel()
	const lines, sent, first = 10_000, 3000, 1000
	var text strings.Builder
	for i := range lines {
		fmt.Fprintln(&text, "item", i)
	}
	all := text.String()
	s := startServer(t)
	c := s.client()
	ctx := context.Background()
	// A run of long ago was killed with 3000 lines on their way.
	c.MSet(ctx, "progress:{log}:(1):sent", 1_700_000_000_000, "progress:{log}:(1):sentto", sent)
	some := all[:strings.Index(all, fmt.Sprintln("item", first))]
	for _, step := range []struct {
		input       string
		late, count int
	}{
		{some, first, 0},
		{all, sent - first, lines - sent},
		{all + "item more\n", 0, lines - sent + 1},
	} {
		_, stderr, status := s.stream(step.input, "count", "--counter", "{1}", "--source", "log")
		n, _ := c.Get(ctx, "item").Int()
		if n != step.count || (status == 2) != (step.late > 0) || step.late > 0 &&
			!strings.Contains(stderr, fmt.Sprintf("STALE: %d\n", step.late)) {
			t.Errorf("exit status %d, %d are counted\n%s", status, n, stderr)
		}
	}
}

// TestStreamCountEnds: an error that concerns no record ends the run, and the position stays.
func TestStreamCountEnds(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startRelay(t, s)
	p.rewrite = func(reply []byte) []byte {
		return bytes.ReplaceAll(reply, []byte("-WRONGTYPE "), []byte("-MOVED 1 127.0.0.1:1 "))
	}
	s.dial().want("+OK", "FBF.RESERVE", "a")
	var out bytes.Buffer
	cmd := exec.Command(program, "stream", "count", "--counter", "{line}", "--source", "log", p.Addr().String())
	cmd.Stdin, cmd.Stderr = strings.NewReader("a\nb\n"), &out
	if cmd.Run(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "MOVED 1") {
		t.Errorf("exit status %d\n%s", cmd.ProcessState.ExitCode(), out.String())
	}
	if n, err := s.client().Get(context.Background(), "progress:{log}:(line)").Int(); err == nil {
		t.Errorf("the position is %d", n)
	}
	// The next run says that one line was counted before.
	_, stderr, status := s.stream("a\nb\n", "count", "--counter", "{line}", "--source", "log")
	if status != 2 || !strings.Contains(stderr, "counted before: 1; WRONGTYPE: 1") {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
}

// TestStreamCountOfEntries counts the entries of a Redis Stream, some of which were counted by a run that was
// killed before it acknowledged them.
func TestStreamCountOfEntries(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := startRedis(t, "--save", "")
	source := redisClient(t, addr, 0)
	if err := source.XGroupCreateMkStream(ctx, "clicks", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	const entries = 3000
	for i := range entries {
		if err := source.XAdd(ctx, &redis.XAddArgs{Stream: "clicks",
			Values: []any{"page", fmt.Sprint("p", i%10), "user", i}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := startServer(t)
	read, err := source.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "fbfkv",
		Streams: []string{"clicks", ">"}, Count: 700}).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range read[0].Messages[:300] {
		s.client().Do(ctx, "CINCRBY", m.Values["page"], "clicks:"+m.ID, 1)
	}
	cmd := exec.Command(program, "stream", "count", "--counter", "{page}", "--redis", "redis://"+addr,
		"--stream", "clicks", "--group", "g", s.address())
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "all entries are acknowledged", func() bool {
		info, err := source.XInfoGroups(ctx, "clicks").Result()
		return err == nil && info[0].EntriesRead == entries && info[0].Pending == 0
	})
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "counted before: 300") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for i := range 10 {
		if n, _ := s.client().Get(ctx, fmt.Sprint("p", i)).Int(); n != entries/10 {
			t.Errorf("p%d: %d are counted", i, n)
		}
	}
}
