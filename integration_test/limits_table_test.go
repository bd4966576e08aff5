package integration

import (
	"fmt"
	"strings"
	"testing"
)

// TestLimits sends for each limit of a request what is just within it and what
// is just beyond. After a protocol error the connection is closed, after any
// other it goes on, and nothing was applied.
func TestLimits(t *testing.T) {
	t.Parallel()
	const protocol = "-ERR Protocol error: "
	x := func(n int) string { return strings.Repeat("x", n) }
	keys := func(n int) string {
		args := []string{"MSET"}
		for i := range n {
			args = append(args, fmt.Sprint("k", i), "1")
		}
		return frame(args...)
	}
	request := func(n int) string { // of n bytes in all, in arguments of a quarter of a megabyte
		const part = 256 << 10
		head := fmt.Sprintf("*%d\r\n$4\r\nPING\r\n", n/part+1)
		return head + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", part, x(part)), n/part)
	}
	s := startServer(t, "--client-query-buffer-limit", "4mb", "--filter-maxmemory", "24mb", "--appendfsync",
		"everysec")
	s.dial().want("+OK", "CTABLE", "CREATE", "small", "PREFIX", "small:", "MAXMEMORY", "1048576", "MODE",
		"APPROX")
	for _, l := range []struct {
		name, within, beyond string
		answer               string // to within, or its beginning
		refusal              string // to beyond, or its beginning
	}{
		{"arguments", "*1048576\r\n", "*1048577\r\n", "", protocol + "invalid multibulk length"},
		{"argument", frame("ECHO", x(1<<20)), "*2\r\n$4\r\nECHO\r\n$1048577\r\n", `"xxx`, protocol + "invalid bulk length"},
		{"command", request(3 << 20), request(5 << 20), "-ERR wrong number", protocol + "too big request"},
		{"inline", "ECHO " + x(65536-7) + "\r\n", "ECHO " + x(65536) + "\r\n", `"xxx`, protocol + "too big inline request"},
		{"key", frame("CINCRBY", x(65536), "op", "1"), frame("CINCRBY", x(65537), "op", "1"), ":1",
			"-ERR key must be 1 to 65536 bytes"},
		{"opid", frame("CINCRBY", "k", x(512), "1"), frame("CINCRBY", "k", x(513), "1"), ":1",
			"-ERR opid must be 1 to 512 bytes"},
		{"keys", keys(65536), keys(65537), "+OK", "-ERR too many keys in one command"},
		{"table name", frame("CTABLE", "CREATE", x(128), "PREFIX", "n:"),
			frame("CTABLE", "CREATE", x(129), "PREFIX", "m:"), "+OK",
			"-ERR invalid option: a table's name must be 1 to 128 bytes"},
		{"filter memory, filter", frame("FBF.RESERVE", "f", "CAPACITY", "1000"),
			frame("FBF.RESERVE", "g", "CAPACITY", "100000000"),
			"+OK", "-OOM sketches and filter keys have their half of filter-maxmemory"},
	} {
		c := s.dial()
		before := s.dial().do("DBSIZE")
		c.send(l.beyond)
		if got := c.reply(); !strings.HasPrefix(got, l.refusal) {
			t.Errorf("%s, beyond: %.100s, want %s", l.name, got, l.refusal)
		}
		if strings.HasPrefix(l.refusal, protocol) {
			c.wantClosed()
			c = s.dial()
		}
		c.want(before, "DBSIZE")
		c.send(l.within)
		if l.answer == "" {
			c.Close() // the limit is on what is announced
			continue
		}
		if got := c.reply(); !strings.HasPrefix(got, l.answer) {
			t.Errorf("%s, within: %.100s, want %s", l.name, got, l.answer)
		}
		c.want("+PONG", "PING")
	}
}

// TestLimitOfFilterMemory makes and changes tables when the filters have all they may.
func TestLimitOfFilterMemory(t *testing.T) {
	t.Parallel()
	c := startServer(t, "--appendfsync", "everysec", "--filter-maxmemory", "1gb").dial()
	create := []string{"CTABLE", "CREATE", "t", "PREFIX", "t:"}
	alter := []string{"CTABLE", "ALTER", "default", "MODE", "APPROX"}
	c.want("+OK", "CONFIG", "SET", "filter-maxmemory", "1")
	const refused = "-OOM filter memory limit reached (filter-maxmemory): try again later, or raise it"
	c.want(refused, create...)
	c.want(refused, alter...)
	c.want(`["default" ""]`, "CTABLE", "LIST")
	c.want("+OK", "CONFIG", "SET", "filter-maxmemory", "1gb")
	c.want("+OK", create...)
	c.want("+OK", alter...)
}

// TestLimitOfTables creates tables until there are too many.
func TestLimitOfTables(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "everysec", "--partitions", "1")
	c := s.dial()
	for i := range 255 { // and default
		c.want("+OK", "CTABLE", "CREATE", fmt.Sprint("t", i), "PREFIX", fmt.Sprint("p", i, ":"))
	}
	c.want("-ERR too many tables", "CTABLE", "CREATE", "last", "PREFIX", "last:")
	c.want("+OK", "CTABLE", "DROP", "t7")
	c.want("+PONG", "PING")
}

// TestLimitOfTableMemory fills a table up to its own MAXMEMORY: new operations
// are refused with OOM and change nothing, duplicates are still recognised, and
// other tables go on.
func TestLimitOfTableMemory(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "everysec", "--partitions", "1")
	c := s.dial()
	c.want("+OK", "CTABLE", "CREATE", "small", "PREFIX", "small:", "MAXMEMORY", "1048576", "MODE", "APPROX")
	applied, refused := 0, 0
	for i := 0; refused == 0 && i < 2_000_000; i += 1000 {
		var pipeline strings.Builder
		for j := range 1000 {
			pipeline.WriteString(frame("CINCRBY", "small:k", fmt.Sprint("op-", i+j), "1", "WITHSTATUS"))
		}
		c.send(pipeline.String())
		for range 1000 {
			switch got := c.reply(); {
			case strings.HasPrefix(got, "-OOM "):
				refused++
			case strings.HasSuffix(got, ":1]"):
				applied++
			}
		}
	}
	if refused == 0 {
		t.Fatalf("%d operations fit into a megabyte", applied)
	}
	c.want(fmt.Sprintf(`"%d"`, applied), "GET", "small:k")
	c.want(fmt.Sprintf("[:%d :0]", applied), "CINCRBY", "small:k", "op-0", "1", "WITHSTATUS")
	c.want(":1", "CINCRBY", "other", "op", "1")
}
