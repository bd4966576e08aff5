package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// startRegion runs a server that is region 0 of two; nobody is region 1 but the test.
func startRegion(t *testing.T, loop string, settings ...string) (*running, *store.Store) {
	t.Helper()
	st := openStore(t)
	partitions, incarnation := st.Stats().Partitions, st.Meta().Incarnation
	set := store.RegionSet{Group: 77, Members: []store.RegionMember{
		{Region: 0, Name: "here", Partitions: partitions, Incarnation: incarnation},
		{Region: 1, Name: "there", Partitions: partitions, Incarnation: 5},
	}}
	if err := st.SetRegions(set); err != nil {
		t.Fatal(err)
	}
	node, err := regions.Open(regions.Options{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return startLoop(t, loop, Options{Store: st, Regions: node, Logger: quiet}, settings...), st
}

// pullOf is a request of region 1 for all partitions, behind the committed end of each.
func pullOf(st *store.Store, most int, block time.Duration) []string {
	words := []string{"REGION.PULL", "77", "1", strconv.FormatUint(st.Meta().Incarnation, 10), "MAX",
		strconv.Itoa(most),
		"BLOCK", strconv.FormatInt(block.Milliseconds(), 10)}
	ranges, n := st.Stats().Partitions, 16384
	for p := range ranges {
		after := strconv.FormatUint(st.CommittedOf(uint16(p)), 10)
		words = append(words, strconv.Itoa(p), strconv.Itoa(p*n/ranges), strconv.Itoa((p+1)*n/ranges-1),
			after, "0", after)
	}
	return words
}

// awaitPulls waits until a client sees so many in REGION.PULL.
func (c *client) awaitPulls(want int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprint(want, " in REGION.PULL"), func() bool {
		return strings.Count(c.do("CLIENT", "LIST"), " cmd=region.pull ") == want
	})
}

// TestRegionPull: a request that waits for something new is woken by it, keeps nobody else waiting,
// is not held back while clients are paused, and leaves no trace of slowness.
func TestRegionPull(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			s, st := startRegion(t, loop, "slowlog-log-slower-than", "0")
			peer, other := s.dial(t), s.dial(t)
			peer.send(frame(pullOf(st, 1<<20, time.Minute)...) + frame("PING"))
			other.awaitPulls(1)
			for range 3 {
				other.send(strings.Repeat(frame("CGET", "k")+frame("PING"), 100))
				for range 100 {
					other.expectReply("$-1")
					other.expectReply("+PONG")
				}
			}
			other.expect("+OK", "CLIENT", "PAUSE", "60000", "WRITE")
			other.expect("+OK", "CLIENT", "UNPAUSE")
			other.expect(":5", "INCRBY", "k", "5")
			if got := peer.reply(); !strings.HasPrefix(got, "[:") || strings.Count(got, ":") < 2 {
				t.Errorf("woken: %.100q", got)
			}
			peer.expectReply("+PONG")
			other.expect("+OK", "CLIENT", "PAUSE", "60000")
			if got := peer.do(pullOf(st, 1<<20, 0)...); !strings.HasPrefix(got, "[:") {
				t.Errorf("while clients are paused: %.100q", got)
			}
			other.expect("+OK", "CLIENT", "UNPAUSE")
			if log := other.do("SLOWLOG", "GET", "-1"); strings.Contains(strings.ToLower(log),
				"region.pull") || !strings.Contains(log, "CGET") {
				t.Errorf("the slow log: %.300q", log)
			}
			if info := other.do("INFO", "commandstats"); !strings.Contains(info,
				"cmdstat_region.pull:calls=2,usec=0,") {
				t.Errorf("its time is counted: %s", info)
			}
		})
	}
}

// TestRegionPullEnds: a request that waits ends with its connection, with CLIENT KILL, and with the server.
func TestRegionPullEnds(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			s, st := startRegion(t, loop)
			words := frame(pullOf(st, 1<<20, time.Minute)...)
			gone, killed, stays, other := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
			stays.send(words)
			other.awaitPulls(1)
			id := killed.do("CLIENT", "ID")[1:]
			killed.send(words)
			other.awaitPulls(2)
			other.expect(":1", "CLIENT", "KILL", "ID", id)
			other.awaitPulls(1)
			if loop != "goroutine" { // which notices when it writes
				gone.send(words)
				other.awaitPulls(2)
				gone.socket().Close()
				other.awaitPulls(1)
			}
			s.Stop(false)
			if got := stays.reply(); !strings.HasPrefix(got, "[:") {
				t.Errorf("at the end of the server: %.100q", got)
			}
			s.wait(t)
		})
	}
}

// TestRegionPullUser: the user of another region needs one permission, and others have not got it.
func TestRegionPullUser(t *testing.T) {
	s, st := startRegion(t, "event loop", "requirepass", "secret", "user", "region on >pw +region.pull",
		"user", "app on >pw ~* +@all -@dangerous")
	words := pullOf(st, 1<<20, 0)
	c := s.dial(t)
	if got := c.do(words[:10]...); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("without login: %q", got)
	}
	c.expect("+OK", "AUTH", "region", "pw")
	if got := c.do(words...); !strings.HasPrefix(got, "[:") {
		t.Errorf("as a region's user: %.100q", got)
	}
	for _, refused := range [][]string{{"CGET", "k"}, {"INFO"}, {"PING"}} {
		if got := c.do(refused...); !strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("%q as a region's user: %q", refused, got)
		}
	}
	c.expect("+OK", "AUTH", "app", "pw")
	if got := c.do(words...); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("as an application: %q", got)
	}
}

// TestRegionPullHostile: what no region asks is an error, whatever it is, and costs nobody anything.
func TestRegionPullHostile(t *testing.T) {
	s, st := startRegion(t, "event loop")
	c := s.dial(t)
	good := pullOf(st, 1<<20, 0)
	with := func(i int, word string) []string {
		words := slices.Clone(good)
		words[i] = word
		return words
	}
	for name, words := range map[string][]string{
		"alone": good[:1], "no ranges": good[:8], "half a range": good[:10], "text": with(1, "x"),
		"negative": with(4, "-1"), "huge": with(3, strings.Repeat("9", 30)),
		"another word": with(4, "MOST"), "too much": with(5, "67108865"), "for ever": with(7, "60001"),
		"a NUL": with(8, "\x00"), "empty": with(9, ""),
		"region 16": with(2, "16"), "twice": slices.Concat(good, good[8:14]),
		"acknowledged but not taken": with(13, "1000000"),
	} {
		if got := c.do(words...); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("%s: %.100q", name, got)
		}
	}
	for name, words := range map[string][]string{"another group": with(1, "78"), "itself": with(2, "0"),
		"no member": with(2, "3"), "incarnation": with(3, "1")} {
		if got := c.do(words...); !strings.HasPrefix(got, "-REFUSED ") {
			t.Errorf("%s: %.100q", name, got)
		}
	}
	words := slices.Clone(good[:8])
	for i := range 16385 {
		words = append(words, "0", strconv.Itoa(i), "16383", "0", "0", "0")
	}
	c.expect("-ERR wrong number of arguments for 'region.pull' command", words...)
	c.expect("+OK", "MULTI")
	c.expect("-ERR Command not allowed inside a transaction", good...)
	c.expect("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	if got := c.do(good...); !strings.HasPrefix(got, "[:") {
		t.Errorf("after all that: %.100q", got)
	}
	alone := start(t)
	if got := alone.dial(t).do(good...); !strings.HasPrefix(got, "-NOREGION ") {
		t.Errorf("of a server that is no region: %q", got)
	}
}

// TestRegionPullLarge: an answer may be longer than the limit for clients, and has the types of
// RESP2 whatever the connection speaks; the next command is a client's again.
func TestRegionPullLarge(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			s, st := startRegion(t, loop, "client-output-buffer-limit", "normal 1mb 0 0")
			before := pullOf(st, 16<<20, 0)
			c := s.dial(t)
			long := strings.Repeat("k", 60000)
			for i := range 40 {
				c.expect(":1", "INCR", "{tag}"+long+strconv.Itoa(i))
			}
			c.expect(":1", "INCR", "another partition")
			c.do("HELLO", "3")
			if got := c.do(before...); len(got) < 2<<20 {
				t.Errorf("%d bytes: %.100q", len(got), got)
			}
			before[5] = "1"
			if got := c.do(before...); !strings.HasSuffix(got, " $-1]") {
				t.Errorf("without room for the second partition: …%.100q", got[max(0, len(got)-100):])
			}
			c.expect("_", "CGET", "none")
		})
	}
}

// TestRegionReads: a region tells what each of them has counted, and which one applied an operation.
func TestRegionReads(t *testing.T) {
	s, st := startRegion(t, "event loop")
	exact := store.Exact
	if err := st.AlterTable(store.DefaultTable, store.TableChange{Mode: &exact}); err != nil {
		t.Fatal(err)
	}
	c := s.dial(t)
	c.expect(":5", "CINCRBY", "k", "op", "5")
	c.expect("[here :5]", "CGET", "k", "REGIONS")
	c.expect("$-1", "CGET", "none", "REGIONS")
	c.expect("-ERR syntax error", "CGET", "k", "REGION")
	if got := c.do("CSEEN", "k", "op"); !strings.HasPrefix(got, "[:5 :5 :") ||
		!strings.HasSuffix(got, " here]") {
		t.Errorf("CSEEN: %s", got)
	}
	c.expect("$-1", "CSEEN", "k", "other")
	c.do("HELLO", "3")
	c.send(frame("CGET", "k", "REGIONS"))
	if line, _ := c.in.ReadString('\n'); line != "%1\r\n" {
		t.Errorf("CGET REGIONS in RESP3: %q", line)
	}
	c.expectReply("here")
	c.expectReply(":5")
	c.expect("+OK", "CTABLE", "CREATE", "local", "PREFIX", "l:", "REGIONS", "NONE")
	if got := c.do("CTABLE", "INFO", "local"); !strings.Contains(got, "regions none") {
		t.Errorf("CTABLE INFO: %s", got)
	}
	c.expect("-ERR keys under REGIONS NONE cannot come under REGIONS ALL: other regions lack what was "+
		"counted before", "CTABLE", "DROP", "local")
	for _, words := range []string{"MODE APPROX REGIONS ALL", "REGIONS SOME", "REGIONS HOME", "BOUNDS LOCAL"} {
		if got := c.do(append([]string{"CTABLE", "CREATE", "t", "PREFIX", "t:"},
			strings.Fields(words)...)...); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("%s: %s", words, got)
		}
	}
	alone := start(t).dial(t)
	alone.expect("-ERR this server is not a region", "CGET", "k", "REGIONS")
}

// TestRegionPullNext: a request that continues one is asked before that is answered; it waits by itself.
func TestRegionPullNext(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			s, st := startRegion(t, loop)
			peer, other := s.dial(t), s.dial(t)
			next := frame("REGION.PULL", "NEXT", "BLOCK", "60000", "EVERY", "0")
			other.expect("-ERR nothing was asked before, or not all of it could be told", "REGION.PULL",
				"NEXT", "BLOCK", "0", "EVERY", "0")
			peer.send(frame(pullOf(st, 1<<20, time.Minute)...) + next + next)
			for i := range 3 { // each is answered before the next one can be
				other.awaitPulls(1)
				other.expect(fmt.Sprint(":", 5*(i+1)), "INCRBY", "k", "5")
				if got := peer.reply(); (i == 0) != strings.HasPrefix(got, "[:") ||
					strings.HasPrefix(got, "-") {
					t.Errorf("woken: %.100q", got)
				}
			}
		})
	}
}
