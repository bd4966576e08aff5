package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// transfer runs an import or an export and returns what it prints and its exit status.
func transfer(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// redisClient connects to a database of a real Redis.
func redisClient(t *testing.T, addr string, db int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, DB: db, ReadTimeout: patience, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// counters returns all counters of a server, and which of them expire, by SCAN.
func counters(t *testing.T, c *redis.Client) (values map[string]int64, expires map[string]time.Time) {
	t.Helper()
	ctx := context.Background()
	values, expires = map[string]int64{}, map[string]time.Time{}
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "*", 5000).Result()
		if err != nil {
			t.Fatal(err)
		}
		got, ends := make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
		pipe := c.Pipeline()
		for i, k := range keys {
			got[i], ends[i] = pipe.Get(ctx, k), pipe.PExpireTime(ctx, k)
		}
		pipe.Exec(ctx)
		for i, k := range keys {
			n, err := got[i].Int64()
			if err != nil {
				continue // no counter, or gone
			}
			values[k] = n
			if end := ends[i].Val(); end > 0 {
				expires[k] = time.UnixMilli(end.Milliseconds())
			}
		}
		if cursor = next; cursor == 0 {
			return values, expires
		}
	}
}

// stalling passes what clients and a server say to each other on, until the server has
// said so many bytes; then it lets nothing through any more. It returns its address.
func stalling(t *testing.T, addr string, bytes int64) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				return
			}
			t.Cleanup(func() { near.Close(); far.Close() })
			go io.Copy(far, near)
			go io.CopyN(near, far, bytes)
		}
	}()
	return l.Addr().String()
}

// fillOdd writes counters with odd keys into a Redis, a third of them with a TTL.
func fillOdd(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	ctx := context.Background()
	for from := 0; from < n; from += 5000 {
		pipe := c.Pipeline()
		for i := from; i < min(n, from+5000); i++ {
			key := []string{"page:%d", "with space %d", "\x00\xff\r\n%d", "{tag}:%d", "\"quoted\",%d"}[i%5]
			pipe.Set(ctx, fmt.Sprintf(key, i), int64(i)*1_000_003-5, []time.Duration{0, 0, time.Hour}[i%3])
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImport copies 100,000 counters out of a real Redis's database 3, kills the import
// and then the server half way, and runs it again and again.
func TestImport(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	ctx := context.Background()
	addr := startRedis(t, "--save", "")
	source := redisClient(t, addr, 3)
	fillOdd(t, source, keys)
	s := startServer(t)
	target := s.client()
	// A client has counted here already, and another key is a filter.
	target.Do(ctx, "CINCRBY", "page:0", "op-1", 7)
	target.Do(ctx, "FBF.ADD", "page:5", "item")

	for i, kill := range []func(cmd *exec.Cmd){
		func(cmd *exec.Cmd) { cmd.Process.Kill() },
		func(cmd *exec.Cmd) { s.crash(); cmd.Process.Signal(os.Interrupt) },
	} {
		url := "redis://" + stalling(t, addr, int64(i+1)<<20) + "/3"
		cmd := exec.Command(program, "import", s.address(), url)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		before := target.DBSize(ctx).Val()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "some keys are there", func() bool {
			return target.DBSize(ctx).Val() > before
		})
		kill(cmd)
		cmd.Wait()
		if n := target.DBSize(ctx).Val(); n < 2 || n >= keys {
			t.Fatalf("%d keys are there: not the middle\n%s", n, out.String())
		}
	}
	want, ends := counters(t, source)
	want["page:0"] = 7
	delete(want, "page:5")
	for i := range 3 {
		out, stderr, status := transfer(t, "import", s.address(), "redis://"+addr+"/3")
		if status != 0 || !strings.Contains(out, "existed already and were left alone") ||
			strings.Contains(out, "skipped") ||
			i > 0 && !strings.HasPrefix(out, "imported 0 of 100000 keys ") {
			t.Fatalf("run %d: %s%s, exit status %d", i, out, stderr, status)
		}
		t.Log(out)
	}
	got, gotEnds := counters(t, target)
	if !maps.Equal(got, want) {
		t.Errorf("%d counters arrived of %d, or others", len(got), len(want))
	}
	delete(ends, "page:0")
	delete(ends, "page:5")
	sameEnds(t, gotEnds, ends)

	// --replace takes the source's values, and leaves the filter.
	source.IncrBy(ctx, "with space 1", 10)
	source.Del(ctx, "with space 6")
	out, stderr, status := transfer(t, "import", s.address(), "redis://"+addr+"/3", "--replace")
	if status != 2 || !strings.Contains(out, "skipped \"page:5\": fbfkv says: WRONGTYPE") ||
		!strings.Contains(out, "; 2 existed already and were replaced; 99996 existed already with the "+
			"same value; 1 were skipped") {
		t.Errorf("%s%s, exit status %d", out, stderr, status)
	}
	if got, want := target.MGet(ctx, "page:0", "with space 1").Val(),
		"[-5 1000008]"; fmt.Sprint(got) != want {
		t.Errorf("--replace: %v, want %s", got, want)
	}
	if kind := target.Type(ctx, "page:5").Val(); kind != "fbf" {
		t.Errorf("the filter is now %s", kind)
	}
}

// sameEnds expects the same expiries, up to what the transfer took.
func sameEnds(t *testing.T, got, want map[string]time.Time) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d counters expire, want %d", len(got), len(want))
	}
	for k, end := range want {
		if off := got[k].Sub(end).Abs(); off > patience {
			t.Fatalf("%q expires at %v, want %v", k, got[k], end)
		}
	}
}

// TestImportSkips: what is no counter is listed, and what expires in the source while
// the import runs never outlives it for long.
func TestImportSkips(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := startRedis(t, "--save", "")
	source := redisClient(t, addr, 0)
	for key, value := range map[string]any{
		"page:good": "-9223372036854775808", "page:zero": 0, "page:float": "1.5",
		"page:eur:a": "12.34", "page:eur:b": 5, "page:eur:fine": "0.001", "page:eur:debt": "-0.01",
		"page:large": "9223372036854775808",
		"page:plus":  "+1", "page:padded": "007", "page:empty": "", "page:text": strings.Repeat("x", 1<<20),
		"other": "also not",
		"":      5, "page:" + strings.Repeat("k", 65536): 5,
	} {
		source.Set(ctx, key, value, 0)
	}
	source.LPush(ctx, "page:list", "1")
	s := startServer(t)
	s.client().Do(ctx, "CTABLE", "CREATE", "eur", "PREFIX", "page:eur:", "SCALE", 2, "MIN", 0, "WINDOW", "1h")
	out, stderr, status := transfer(t, "import", s.address(), "redis://"+addr, "--match", "page:*")
	for _, want := range []string{
		`skipped "page:float": fbfkv says: ERR value is not an integer or out of range: decimals need`,
		`skipped "page:plus": "+1" is no signed 64-bit integer`,
		`skipped "page:eur:fine": fbfkv says: ERR at most 2 decimals`,
		`skipped "page:eur:debt": fbfkv says: BOUND `,
		`skipped "page:padded": `,
		`skipped "page:large": `, `skipped "page:empty": `, `skipped "page:list": not a string`,
		`skipped "page:text": "xxxxxxxxxxxxxxxxxxxxxx" is`,
		": fbfkv says: ERR key must be 1 to 65536 bytes", "imported 4 of 14 keys ", "; 10 were skipped\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
	if status != 2 || stderr != "fbfkv: skipped keys: 10\n" || strings.Contains(out, "also not") {
		t.Errorf("%s%s, exit status %d", out, stderr, status)
	}
	if out, _, _ := transfer(t, "import", s.address(), "redis://"+addr); !strings.Contains(out,
		`skipped "": fbfkv says: ERR key`) {
		t.Error(out)
	}

	for key, want := range map[string]string{"page:eur:a": "12.34", "page:eur:b": "5"} {
		if got := s.client().Get(ctx, key).Val(); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
		out, stderr, status := transfer(t, "export", s.address(), "--match", key, "--format", "csv")
		if text := "key,value,expires_unix_ms\n" + key + "," + want + ",\n"; out != text || status != 0 {
			t.Errorf("%s%s, exit status %d", out, stderr, status)
		}
	}

	pipe := source.Pipeline()
	for i := range 5000 {
		pipe.Set(ctx, fmt.Sprintf("short:%d", i), i, time.Duration(1+i%400)*time.Millisecond)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if out, stderr, status := transfer(t, "import", s.address(), "redis://"+addr, "--match",
		"short:*"); status != 0 {
		t.Errorf("%s%s, exit status %d", out, stderr, status)
	}
	eventually(t, patience, "all have expired", func() bool { return s.client().DBSize(ctx).Val() == 4 })
}

// TestImportInterrupted: Ctrl-C ends an import whose source says nothing any more, and
// it says how far it got.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := startRedis(t, "--save", "")
	source := redisClient(t, addr, 0)
	fillOdd(t, source, 20_000)
	s := startServer(t)
	cmd := exec.Command(program, "import", s.address(), "redis://"+stalling(t, addr, 400_000))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "some keys are there", func() bool { return s.client().DBSize(ctx).Val() > 0 })
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	n := s.client().DBSize(ctx).Val()
	if status := cmd.ProcessState.ExitCode(); status != 130 ||
		!strings.HasPrefix(out.String(), fmt.Sprintf("imported %d of ", n)) ||
		!strings.HasPrefix(errs.String(), fmt.Sprintf("fbfkv: interrupted after %d of about 20000 keys; "+
			"run it again", n)) {
		t.Errorf("%d keys are there: %s%s, exit status %d", n, out.String(), errs.String(), status)
	}
}

// TestImportSources has sources with a password, a user, TLS, and those that are refused
// with the reason.
func TestImportSources(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := startServer(t)
	addr := startRedis(t, "--save", "", "--requirepass", "geheim")
	guarded := redis.NewClient(&redis.Options{Addr: addr, Password: "geheim", DB: 2})
	defer guarded.Close()
	guarded.Do(ctx, "ACL", "SETUSER", "reader", "on", ">l%esen", "~*", "+@read", "+scan", "+dbsize",
		"+select")
	if err := guarded.Set(ctx, "guarded", 5, 0).Err(); err != nil {
		t.Fatal(err)
	}
	secure, ca := tlsServer(t)
	cert, key := ca.Issue("client", time.Now().Add(time.Hour))
	certificates := []string{"--cacert", ca.File, "--cert", cert, "--key", key}
	secure.cli(append([]string{"--tls"}, append(certificates, "SET", "encrypted", "6")...)...)
	cluster := startRedis(t, "--save", "", "--cluster-enabled", "yes")
	node := redisClient(t, cluster, 0)
	node.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	eventually(t, patience, "the cluster serves", func() bool {
		return node.Set(ctx, "sharded", 7, 0).Err() == nil
	})

	for _, c := range []struct {
		args   []string
		want   string // a part of the output
		status int
	}{
		{[]string{"redis://:geheim@" + addr + "/2"}, "imported 1 of 1 keys", 0},
		{[]string{"redis://reader:l%25esen@" + addr + "/2"}, "imported 0 of 1 keys", 0},
		{[]string{"redis://:falsch@" + addr}, "WRONGPASS", 1},
		{[]string{"redis://:gehe%im@" + addr}, "fbfkv: the source is no URL such as " +
			"redis://user:password@host:6379/0\n", 1},
		{[]string{addr}, "the source is no URL", 1},
		{append(certificates, "rediss://"+secure.address()), "imported 1 of 1 keys", 0},
		{[]string{"rediss://" + secure.address()}, "certificate", 1},
		{[]string{"redis://" + cluster}, "is a node of a cluster and holds only a part of the keys: run " +
			"import once for each", 1},
		{[]string{"redis://" + cluster, "--cluster-node"}, "imported 1 of 1 keys", 0},
		{[]string{"redis://" + s.address()}, "source and target are the same server", 1},
		{[]string{cluster, "redis://" + cluster}, "is not an fbfkv server: name yours before the source, " +
			"as HOST:PORT", 1},
		{[]string{"nowhere", "redis://" + cluster, "--cluster-node"}, `"nowhere" is not HOST:PORT`, 1},
		{[]string{"a", "b"}, "usage: fbfkv import [HOST:PORT] SOURCE", 1},
	} {
		args := append([]string{"import"}, c.args...)
		if own := c.args[0] == cluster || c.args[0] == "nowhere"; !own {
			args = slices.Insert(args, 1, s.address())
		}
		out, stderr, status := transfer(t, args...)
		if status != c.status || !strings.Contains(out+stderr, c.want) ||
			strings.Contains(out+stderr, "gehe") {
			t.Errorf("import %q: %s%s, exit status %d, want %q and %d", c.args, out, stderr, status, c.want,
				c.status)
		}
	}
	if got := fmt.Sprint(s.client().MGet(ctx, "guarded", "encrypted", "sharded").Val()); got != "[5 6 7]" {
		t.Error(got)
	}
}

// TestExport pipes an export into a real Redis, and reads the other formats: each holds
// the same counters.
func TestExport(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	ctx := context.Background()
	s := startServer(t, "--appendfsync", "everysec")
	fillOdd(t, s.client(), 20_000)
	want, ends := counters(t, s.client())
	s.client().Do(ctx, "FBF.ADD", "filter", "item")
	addr := startRedis(t, "--save", "")
	host, port, _ := net.SplitHostPort(addr)
	files := map[string]string{}
	for _, format := range []string{"resp", "csv", "ndjson"} {
		out, stderr, status := transfer(t, "export", s.address(), "--format", format)
		if status != 2 || stderr != "skipped \"filter\": not a string\nfbfkv: skipped keys: 1\n" {
			t.Errorf("%s: %s, exit status %d", format, stderr, status)
		}
		files[format] = out
	}
	pipe := exec.Command("redis-cli", "-h", host, "-p", port, "--pipe")
	pipe.Stdin = strings.NewReader(files["resp"])
	if out, err := pipe.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "errors: 0, replies: 20000") {
		t.Errorf("redis-cli --pipe: %v\n%s", err, out)
	}
	got, gotEnds := counters(t, redisClient(t, addr, 0))
	if !maps.Equal(got, want) || !maps.EqualFunc(gotEnds, ends, time.Time.Equal) {
		t.Errorf("resp: %d counters, %d with an expiry; want %d and %d", len(got), len(gotEnds), len(want),
			len(ends))
	}
	for format, read := range map[string]func(*testing.T, string) (map[string]int64,
		map[string]time.Time){"csv": fromCSV, "ndjson": fromNDJSON} {
		if got, gotEnds := read(t, files[format]); !maps.Equal(got, want) ||
			!maps.EqualFunc(gotEnds, ends, time.Time.Equal) {
			t.Errorf("%s: %d counters, %d with an expiry; want %d and %d", format, len(got), len(gotEnds),
				len(want), len(ends))
		}
	}
	out, stderr, status := transfer(t, "export", s.address(), "--match", "with space 1", "--format", "csv")
	if want := "key,value,expires_unix_ms\nwith space 1,999998,\n"; out != want || status != 0 {
		t.Errorf("%s%s, exit status %d", out, stderr, status)
	}
	if _, stderr, status := transfer(t, "export", "--format", "xml"); status != 1 ||
		!strings.Contains(stderr, "resp, csv or ndjson") {
		t.Errorf("%s, exit status %d", stderr, status)
	}
}

// fromCSV reads an export. encoding/csv takes \r\n in a field for \n, hence it is hidden
// from it.
func fromCSV(t *testing.T, text string) (values map[string]int64, ends map[string]time.Time) {
	values, ends = map[string]int64{}, map[string]time.Time{}
	rows, err := csv.NewReader(strings.NewReader(strings.ReplaceAll(text, "\r\n", "<CRLF>"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		key := strings.ReplaceAll(row[0], "<CRLF>", "\r\n")
		values[key], _ = strconv.ParseInt(row[1], 10, 64)
		if row[2] != "" {
			ms, _ := strconv.ParseInt(row[2], 10, 64)
			ends[key] = time.UnixMilli(ms)
		}
	}
	return values, ends
}

// fromNDJSON reads an export.
func fromNDJSON(t *testing.T, text string) (values map[string]int64, ends map[string]time.Time) {
	values, ends = map[string]int64{}, map[string]time.Time{}
	for line := range strings.Lines(text) {
		var row struct {
			Key     string `json:"key"`
			Base64  string `json:"key_base64"`
			Value   int64  `json:"value"`
			Expires int64  `json:"expires_unix_ms"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Base64 != "" {
			key, _ := base64.StdEncoding.DecodeString(row.Base64)
			row.Key = string(key)
		}
		values[row.Key] = row.Value
		if row.Expires != 0 {
			ends[row.Key] = time.UnixMilli(row.Expires)
		}
	}
	return values, ends
}

// TestImportFilters copies Bloom filters from one server to another; a copy that broke off is
// begun again.
func TestImportFilters(t *testing.T) {
	t.Parallel()
	from, to := startServer(t), startServer(t)
	source, target := from.dial(), to.dial()
	source.want("+OK", "BF.RESERVE", "large", "0.001", "3000000")
	source.do("BF.MADD", "large", "a", "b")
	source.do("BF.INSERT", "small", "CAPACITY", "1", "ITEMS", "a", "b", "c")
	source.want(":1", "PEXPIRE", "small", "3600000")
	source.want("+OK", "CMS.INITBYDIM", "sketch", "10", "2")
	source.want("+OK", "SET", "counter", "5")
	target.want("+OK", "SET", "small", "1")
	// An earlier run has got as far as the header and the first chunk.
	target.want("+OK", "SET", "import:large", "6015183217823421747")
	target.want("+OK", "BF.RESERVE", "large", "0.5", "10")
	url := "redis://" + from.address()
	out, stderr, status := transfer(t, "import", to.address(), url)
	if status != 2 || !strings.Contains(out, `skipped "sketch": not a string`) ||
		!strings.Contains(out, `skipped "small": fbfkv has a key of type string`) ||
		!strings.Contains(out, "imported 2 of 4 keys") {
		t.Fatalf("%s%s, exit status %d", out, stderr, status)
	}
	target.want(":1", "DEL", "small")
	for range 2 {
		out, stderr, status = transfer(t, "import", to.address(), url)
	}
	if status != 2 || !strings.Contains(out, "3 existed already and were left alone") {
		t.Fatalf("%s%s, exit status %d", out, stderr, status)
	}
	for _, key := range []string{"large", "small"} {
		if a, b := source.do("BF.DEBUG", key), target.do("BF.DEBUG", key); a != b {
			t.Errorf("%s became %s", a, b)
		}
	}
	target.want("[:1 :1 :0]", "BF.MEXISTS", "large", "a", "b", "c")
	if left := number(target.do("PTTL", "small")); left < 3_000_000 || left > 3_600_000 {
		t.Errorf("it expires in %d ms", left)
	}
	target.want(":3", "DBSIZE")
	source.do("BF.ADD", "small", "d")
	if out, stderr, status = transfer(t, "import", to.address(), url, "--match", "small",
		"--replace"); status != 0 || !strings.Contains(out, "1 existed already and were replaced") {
		t.Errorf("%s%s, exit status %d", out, stderr, status)
	}
	target.want(":4", "BF.CARD", "small")
	// A counter with the name of a mark is not one.
	target.want("+OK", "SET", "import:small", "7")
	source.do("BF.ADD", "small", "e")
	if out, stderr, status = transfer(t, "import", to.address(), url, "--match", "small",
		"--replace"); status != 2 || !strings.Contains(out, "delete or rename it first") {
		t.Errorf("%s%s, exit status %d", out, stderr, status)
	}
	target.want(`"7"`, "GET", "import:small")
	target.want(":4", "BF.CARD", "small")
}
