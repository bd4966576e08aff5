package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// stream runs fbfkv stream with an input and returns what it prints and its exit status.
func (s *server) stream(input string, args ...string) (stdout, stderr string, status int) {
	s.t.Helper()
	cmd := exec.Command(program, append(append([]string{"stream"}, args...), s.address())...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestStream feeds lines to a filter and a sketch, and asks them.
func TestStream(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "CMS.INITBYDIM", "s", "2000", "5")
	c.want("+OK", "BF.RESERVE", "f", "0.001", "1000")
	c.want("+OK", "FBF.RESERVE", "recent")
	for _, step := range []struct {
		input, args, want string
		status            int
	}{
		{"a 1\nb 2\r\na 3", "train --cms s --field 1", "", 0},
		{"a\nb\nc\n", "query --cms s", "a\t2\nb\t1\nc\t0\n", 0},
		{"a\nb\na\n", "train --bloom f", "", 0},
		{"c\nb\na\n", "query --bloom f", "b\na\n", 0},
		{"c\nb\na\n", "query --bloom f --invert", "c\n", 0},
		{"b x\nd x\nd y\ne\n", "dedup --bloom f --field 1", "d x\ne\n", 0},
		{"b x\nd x\nd y\ne\n", "dedup --fbf recent --field 1", "b x\nd x\ne\n", 0},
		{"1,\"x,y\"\n2,z\n3\n", "dedup --bloom f --csv --field 2", "1,\"x,y\"\n2,z\n", 2},
		{"x,y\nz\n", "query --bloom f", "x,y\nz\n", 0},
		{`{"u":{"id":7}}` + "\n" + `{"u":{"id":"seven"}}` + "\n" + `{"u":[]}` + "\nno\n",
			"train --cms s --json u.id", "", 2},
		{"7\nseven\n", "query --cms s", "7\t1\nseven\t1\n", 0},
		{"a\nb\n", "train --cms s --source once", "", 0},
		{"a\nb\na\n", "train --cms s --source once", "", 0},
		{"a\nb\n", "query --cms s", "a\t4\nb\t2\n", 0},
		{"x\ny\n", "train --bloom f --source once", "", 0},
		{"", "query --cms s", "", 0},
		{"", "query --cms none", "", 1},
		{"", "query --cms f", "", 1},
		{"", "query", "", 1},
		{"", "train --cms s --bloom f", "", 1},
		{"", "query --cms s --csv --json x", "", 1},
		{"x\n" + strings.Repeat("x", 1<<20+1) + "\na\n", "query --cms s", "x\t0\na\t4\n", 2},
		{strings.Repeat("x", 3<<20), "query --cms s", "", 2},
		{"\ufeffa\nb\n", "query --cms s", "a\t4\nb\t2\n", 0},
		{"1,\"x\ny, \"\"z\"\"\"\n2,a\"b\n3,\"c\"\n", "dedup --bloom f --csv --field 2",
			"1,\"x\ny, \"\"z\"\"\"\n3,\"c\"\n", 2},
		{"1,new\n2,\"y\nz\n", "dedup --bloom f --csv --field 2", "1,new\n", 1},
	} {
		if out, stderr, status := s.stream(step.input, strings.Fields(step.args)...); out != step.want ||
			status != step.status {
			t.Errorf("%s: %q, exit status %d\n%s", step.args, out, status, stderr)
		}
	}
	c.want(`"3"`, "GET", "progress:once:{s}")
	c.want("+OK", "CTABLE", "CREATE", "approx", "PREFIX", "a:", "MODE", "APPROX")
	c.want("+OK", "BF.RESERVE", "a:f", "0.01", "10")
	if out, stderr, status := s.stream("x\n", "dedup", "--bloom", "a:f"); out != "" || status != 1 ||
		!strings.Contains(stderr, "MODE EXACT") {
		t.Errorf("%q, exit status %d\n%s", out, status, stderr)
	}
	c.want("+OK", "CMS.INITBYDIM", "small", "10", "1", "CELL_SIZE", "1")
	if _, stderr, status := s.stream(strings.Repeat("x\n", 300), "train", "--cms", "small", "--source",
		"n"); status != 1 || !strings.Contains(stderr, "CMS: INCRBY overflow") {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
	if n, _ := s.client().Get(context.Background(), "progress:n:{small}").Int(); n > 255 {
		t.Errorf("%d lines are counted, which no cell holds", n)
	}
}

// TestStreamOfAnotherFile: the position belongs to the input that was counted. Another one under
// its name is refused, and nothing of it counts.
func TestStreamOfAnotherFile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "CMS.INITBYDIM", "s", "2000", "5")
	c.want("+OK", "BF.RESERVE", "f", "0.001", "1000")
	for _, key := range []string{"--cms s", "--bloom f"} {
		for _, step := range []struct {
			input, want string
			status      int
		}{
			{"\ufeffa\nb\nc\n", "trained: 3 lines", 0},
			{"\ufeffa\nb\nc\n", "trained: 0 lines", 0},
			{"a\nb\nc\nd\n", "trained: 1 lines", 0},
			{"e\nf\ng\n", "its line 1 is another one", 1}, // rotated
			{"e\nf\ng\nh\ni\nj\n", "its line 1 is another one", 1},
			{"a\nb\nc\ne\nf\n", "its line 4 is another one", 1},
			{"a\nb\nc\ndd\n", "its line 4 is another one", 1}, // line 4 was counted before it was whole
			{"a\nb\n", "it ends behind line 2", 1},
			{"", "it ends behind line 0", 1},
			{"a\nb\nc\nd\ne\n" + strings.Repeat("x", 1<<20+1) + "\n", "line 6 is longer than 1048576 " +
				"bytes: it is passed over", 2},
			{"a\nb\nc\nd\ne\n" + strings.Repeat("x", 1<<20+1) + "\nf\n", "trained: 1 lines", 0},
			{"a\nb\nc\nd\ne\n" + strings.Repeat("x", 1<<20+1) + "\ng\n", "its line 7 is another one", 1},
		} {
			_, stderr, status := s.stream(step.input,
				append(strings.Fields("train --source log"), strings.Fields(key)...)...)
			if status != step.status || !strings.Contains(stderr, step.want) || status == 1 &&
				!strings.Contains(stderr, "DEL progress:log:{") {
				t.Errorf("%s, %.30q: exit status %d\n%s", key, step.input, status, stderr)
			}
		}
	}
	if out, _, _ := s.stream("a\nb\nc\nd\ne\nf\ng\n", "query", "--cms",
		"s"); out != "a\t1\nb\t1\nc\t1\nd\t1\ne\t1\nf\t1\ng\t0\n" {
		t.Errorf("counted: %q", out)
	}
	c.want(":1", "DEL", "progress:log:{s}") // as the refusal says
	if _, stderr, status := s.stream("g\n", "train", "--cms", "s", "--source", "log"); status != 0 {
		t.Errorf("from the beginning: exit status %d\n%s", status, stderr)
	}
	c.want(":1", "DEL", "progress:log:{s}")
	for range 2 { // from the beginning again, and once
		if _, stderr, status := s.stream("g\nk\n", "train", "--cms", "s", "--source", "log"); status != 0 {
			t.Errorf("the same first line: exit status %d\n%s", status, stderr)
		}
	}
	if out, _, _ := s.stream("g\nk\n", "query", "--cms", "s"); out != "g\t2\nk\t1\n" {
		t.Errorf("counted: %q", out)
	}
	if _, stderr, status := s.stream("1,\"g\ng\"\n2,h\n", "train", "--cms", "s", "--csv", "--field", "2",
		"--source", "csv"); status != 0 {
		t.Errorf("CSV: exit status %d\n%s", status, stderr)
	}
	c.want(`"3"`, "GET", "progress:csv:{s}")
	if out, _, _ := s.stream("g\nh\n", "query", "--cms", "s"); out != "g\t2\nh\t1\n" {
		t.Errorf("counted: %q", out)
	}
}

// TestStreamIsCutOff kills the feeder and the server in turn, and feeds the same file again:
// every line counts once, in a sketch and in counters.
func TestStreamIsCutOff(t *testing.T) {
	t.Parallel()
	t.Run("train", func(t *testing.T) {
		streamIsCutOff(t, "trained", "progress:log:{s}", "train", "--cms", "s", "--field", "1")
	})
	t.Run("count", func(t *testing.T) {
		streamIsCutOff(t, "counted", "progress:{log}:(1)", "count", "--counter", "{1}")
	})
}

func streamIsCutOff(t *testing.T, stage, progress string, args ...string) {
	t.Parallel()
	const lines, items = 150_000, 1000
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "item%d %d\n", i*i%items, i)
	}
	s := startServer(t)
	port := s.port()
	c := s.client()
	ctx := context.Background()
	if err := c.Do(ctx, "CMS.INITBYDIM", "s", 100_000, 3).Err(); err != nil {
		t.Fatal(err)
	}
	position := func() int64 { n, _ := c.Get(ctx, progress).Int64(); return n }
	// feed begins to feed the lines, of which the feeder gets those that goOn is told, in tenths.
	feed := func() (cmd *exec.Cmd, out *bytes.Buffer, goOn func(tenths int)) {
		cmd = exec.Command(program, slices.Concat([]string{"stream"}, args, []string{"--source", "log",
			s.address()})...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out = new(bytes.Buffer)
		cmd.Stderr = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		given := 0
		return cmd, out, func(tenths int) {
			to := text.Len() * tenths / 10
			io.WriteString(in, text.String()[given:to])
			if given = to; tenths == 10 {
				in.Close()
			}
		}
	}
	for tenths := 1; tenths < 4; tenths++ {
		before := position()
		cmd, _, goOn := feed()
		go goOn(tenths)
		eventually(t, patience, "lines are counted", func() bool { return position() > before })
		cmd.Process.Kill()
		cmd.Wait()
	}
	cmd, out, goOn := feed()
	for _, tenths := range []int{6, 8} { // the feeder waits for the server
		before := position()
		written := make(chan struct{})
		go func() { goOn(tenths); close(written) }()
		eventually(t, patience, "lines are counted", func() bool { return position() > before })
		s.kill()
		s.start("--port", port)
		<-written
	}
	goOn(10)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd, out, goOn = feed()
	goOn(10)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), stage+": 0 lines") {
		t.Errorf("fed again: %v\n%s", err, out)
	}
	sum := c.CMSInfo(ctx, "s").Val().Count
	for i := range items {
		n, _ := c.Get(ctx, fmt.Sprint("item", i)).Int64()
		sum += n
	}
	if sum != lines {
		t.Errorf("%d lines are counted instead of %d", sum, lines)
	}
}

// progress returns how many lines of source log are in the key.
func (s *server) progress(key string) int {
	s.t.Helper()
	n, err := s.client().Get(context.Background(), "progress:log:{"+key+"}").Int()
	if err != nil {
		s.t.Error(err)
	}
	return n
}

// TestStreamIsRefused kills the feeder when the server has refused a batch, before the feeder
// hears of it: the position is where the counts are, so that the batch is not passed over.
func TestStreamIsRefused(t *testing.T) {
	t.Parallel()
	const lines = 3 * 512
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "CMS.INITBYDIM", "s", "100000", "2", "CELL_SIZE", "2")
	c.want("[:65100]", "CMS.INCRBY", "s", "x", "65100")
	c.want("+OK", "BF.RESERVE", "f", "0.01", "600", "NONSCALING")
	// lines until each is full; a filter takes some for duplicates
	full := map[string]int{"s": 512 + 65535 - 65100, "f": 620}
	progress := map[string]int{}
	var text strings.Builder
	for i := range lines {
		if i < 512 {
			fmt.Fprintln(&text, i)
		} else {
			fmt.Fprintln(&text, "x", i)
		}
	}
	for key, step := range map[string]struct {
		args    string
		refusal []byte
	}{
		"s": {"--cms s --field 1", []byte("CMS: INCRBY overflow")},
		"f": {"--bloom f", []byte("non scaling filter is full")},
	} {
		cmd := exec.Command(program,
			append([]string{"stream", "train", "--source", "log"}, strings.Fields(step.args)...)...)
		killed := false
		p := startRelay(t, s)
		var before []byte // the refusal may come in two pieces
		p.rewrite = func(reply []byte) []byte {
			if before = append(before, reply...); !bytes.Contains(before, step.refusal) {
				return reply
			}
			killed = true
			cmd.Process.Kill()
			return nil
		}
		cmd.Args = append(cmd.Args, p.Addr().String())
		cmd.Stdin = strings.NewReader(text.String())
		cmd.Run()
		p.set(func(*relay) {
			if !killed {
				t.Errorf("%s: nothing was refused", key)
			}
		})
		// A busy machine cuts the lines into more batches than full ones: some of those to be
		// counted come before the refusal.
		if progress[key] = s.progress(key); progress[key] == 0 || progress[key] > full[key] {
			t.Errorf("%s: %d lines of at most %d are counted", key, progress[key], full[key])
		}
	}
	if _, stderr, status := s.stream(text.String(), "train", "--bloom", "f", "--source",
		"log"); status != 1 || !strings.Contains(stderr, "is full") {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
	if n := s.progress("f"); n < progress["f"] || n > full["f"] {
		t.Errorf("%d lines of at most %d are counted, %d before", n, full["f"], progress["f"])
	}
	c.want(fmt.Sprintf("[:%d]", max(0, progress["s"]-512)), "CMS.INCRBY", "s", "x", "-65100")
	if _, stderr, status := s.stream(text.String(), "train", "--cms", "s", "--field", "1", "--source",
		"log"); status != 0 {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
	if info := s.client().CMSInfo(context.Background(), "s").Val(); info.Count != lines {
		t.Errorf("%d of %d lines are counted", info.Count, lines)
	}
}

// TestStreamOfEntries counts the entries of a Redis Stream, of which some were delivered to a
// feeder that was killed before it acknowledged them.
func TestStreamOfEntries(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := startRedis(t, "--save", "")
	source := redisClient(t, addr, 0)
	if err := source.XGroupCreateMkStream(ctx, "clicks", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	const entries = 2000
	for i := range entries {
		values := []any{"page", fmt.Sprint("p", i%10)}
		if i%2 == 0 {
			values = append(values, "user", i)
		}
		if err := source.XAdd(ctx, &redis.XAddArgs{Stream: "clicks", Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := startServer(t)
	c := s.client()
	c.Do(ctx, "CMS.INITBYDIM", "s", 1000, 3)
	// Entries that a feeder has counted, but not acknowledged.
	read, err := source.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "fbfkv",
		Streams: []string{"clicks", ">"}, Count: 700}).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range read[0].Messages[:300] {
		if m.Values["user"] != nil {
			c.Do(ctx, "CMS.CINCRBY", "s", "clicks:"+m.ID, m.Values["page"], 1)
		}
	}
	cmd := exec.Command(program, "stream", "train", "--cms", "s", "--json", "page", "--redis",
		"redis://"+addr, "--stream", "clicks", "--group", "g", s.address())
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pending := func() int64 {
		p, err := source.XPending(ctx, "clicks", "g").Result()
		if err != nil {
			t.Fatal(err)
		}
		return p.Count
	}
	eventually(t, patience, "all entries are acknowledged", func() bool {
		info, err := source.XInfoGroups(ctx, "clicks").Result()
		return err == nil && info[0].EntriesRead == entries && pending() == 0
	})
	cmd.Process.Signal(os.Interrupt)
	// Entries of one value are no JSON, so that they have no page.
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 2 ||
		!strings.Contains(out.String(), "lines without the field: 1000") {
		t.Errorf("exit status %d\n%s", cmd.ProcessState.ExitCode(), out.String())
	}
	if info := c.CMSInfo(ctx, "s").Val(); info.Count != entries/2 {
		t.Errorf("%d entries are counted", info.Count)
	}
}
