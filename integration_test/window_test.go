package integration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
)

// shortWindow is the shortest there is.
const shortWindow = time.Second

// shortTables creates an EXACT and an APPROX table with a short window.
func shortTables(t *testing.T, c *rawConn, window time.Duration) (prefixes []string) {
	t.Helper()
	for _, mode := range []string{"EXACT", "APPROX"} {
		prefix := "short-" + mode + ":"
		c.want("+OK", "CTABLE", "CREATE", "short-"+mode, "PREFIX", prefix, "MODE", mode,
			"WINDOW", strconv.FormatInt(window.Milliseconds(), 10), "SKEW", "0")
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

// TestWindow applies an operation every few milliseconds for several windows,
// so that refreshes happen all the time, and retries random ones all along:
// those younger than the window must be recognised (G1). Well after it, all are
// forgotten and may be applied anew.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "everysec", "--save", "1 1")
	c := s.dial()
	for _, prefix := range shortTables(t, c, shortWindow) {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			c := s.dial()
			c.t = t
			key := prefix + "counter"
			last := strconv.Itoa(checkRecognition(t, c, key))
			eventually(t, patience, "the last operation is forgotten", func() bool {
				return c.do("CSEEN", key, last) == "$-1"
			})
			before := c.do("CGET", key)
			if got := c.do("CINCRBY", key, last, "1", "WITHSTATUS"); got != fmt.Sprintf("[:%d :1]",
				number(before)+1) {
				t.Errorf("a forgotten opid is answered %s; the counter was %s", got, before)
			}
		})
	}
}

// number is the value of a rendered integer.
func number(reply string) int {
	n, _ := strconv.Atoi(reply[1:])
	return n
}

// checkRecognition applies operations for four windows and retries each of them
// again and again until it is nearly a window old. It returns the id of the last.
func checkRecognition(t *testing.T, c *rawConn, key string) (last int) {
	var sent []time.Time // before each was applied, so that its window ends later
	late, retried := 0, 0
	for begin := time.Now(); time.Since(begin) < 4*shortWindow ||
		retried < 100; time.Sleep(3 * time.Millisecond) {
		now := time.Now()
		if now.Sub(begin) > patience {
			t.Fatalf("only %d retries were made in time", retried)
		}
		if got := c.do("CINCRBY", key, strconv.Itoa(len(sent)), "1", "WITHSTATUS"); !strings.HasSuffix(got,
			" :1]") {
			t.Fatalf("new operation %d: %s", len(sent), got)
		}
		sent = append(sent, now)
		for back := 1; back <= len(sent); back *= 2 {
			i := len(sent) - back
			if time.Since(sent[i]) > shortWindow*9/10 {
				break
			}
			got := c.do("CINCRBY", key, strconv.Itoa(i), "1", "WITHSTATUS")
			age := time.Since(sent[i])
			switch duplicate := strings.HasSuffix(got, " :0]"); {
			case duplicate:
				retried++
			case age < shortWindow:
				t.Fatalf("a retry after %v was answered %s", age, got)
			default: // a busy machine: it was forgotten on the way, which is allowed
				late++
			}
		}
	}
	if value := number(c.do("CGET", key)); value != len(sent)+late {
		t.Errorf("the counter is %d after %d operations", value, len(sent)+late)
	}
	return len(sent) - 1
}

// TestDowntimeDoesNotAge stops and kills the server for longer than the window.
// Ids age by logged time, so what was remembered then still is, unless a busy machine has the server run
// for so long.
func TestDowntimeDoesNotAge(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	const window = 3 * time.Second
	prefixes := shortTables(t, c, window)
	for i, end := range []func(){s.stop, s.kill} {
		id, begin := strconv.Itoa(i), time.Now()
		for _, prefix := range prefixes {
			if got := c.do("CINCRBY", prefix+"k", id, "1", "WITHSTATUS"); !strings.HasSuffix(got, " :1]") {
				t.Fatalf("operation %s on %s: %s", id, prefix, got)
			}
		}
		end()
		ran := time.Since(begin)
		time.Sleep(window + window/2)
		begin = time.Now()
		s.start()
		c = s.dial()
		for _, prefix := range prefixes {
			if got := c.do("CINCRBY", prefix+"k", id, "1", "WITHSTATUS"); !strings.HasSuffix(got, " :0]") &&
				ran+time.Since(begin) < window {
				t.Errorf("a retry after %v of downtime on %s was answered %s", window*3/2, prefix, got)
			}
		}
	}
}

// TestPauseDoesNotAge stops the process (SIGSTOP) for twice the window and sends the
// retries meanwhile, which wait in its sockets: they are recognised when it goes on, unless a busy machine
// has it run for longer than the window.
func TestPauseDoesNotAge(t *testing.T) {
	t.Parallel()
	const window, rounds = 3 * time.Second, 2
	for n := range 3 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			c := s.dial()
			prefixes := shortTables(t, c, window)
			for round := range rounds {
				id, begin := "op-"+strconv.Itoa(round), time.Now()
				var retries []*rawConn
				for _, prefix := range prefixes {
					key := prefix + id // a counter of its own
					c.want("[:1 :1]", "CINCRBY", key, id, "1", "WITHSTATUS")
					retries = append(retries, s.dial())
				}
				s.cmd.Process.Signal(syscall.SIGSTOP)
				ran := time.Since(begin)
				for i, prefix := range prefixes {
					retries[i].send(frame("CINCRBY", prefix+id, id, "1", "WITHSTATUS"))
				}
				time.Sleep(2 * window)
				begin = time.Now()
				s.cmd.Process.Signal(syscall.SIGCONT)
				for _, retry := range retries {
					got := retry.reply()
					// A pause ages ids by a second.
					if ran+time.Since(begin) < window-time.Second && got != "[:1 :0]" {
						t.Errorf("after a pause of %v a retry is answered %s", 2*window, got)
					}
				}
			}
		})
	}
}

// TestStale sends operations whose time is known: one that may have been
// forgotten is refused (G7), whether the time comes from AT or from the opid,
// and the older of both counts.
func TestStale(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	const window, skew = 100_000, 500
	stale := "-STALE operation is older than what the table remembers (WINDOW 100 s), so it may have been " +
		"applied. Read the counter; to count it anyway, use a new opid"
	future := regexp.MustCompile(`^-ERR operation time is in the future: \d+(\.\d+)? s ahead of the server's clock, more than SKEW \(0.5 s\)$`)
	wantFuture := func(args ...string) {
		t.Helper()
		if got := c.do(args...); !future.MatchString(got) {
			t.Errorf("%q is answered %s", args, got)
		}
	}
	for _, idtime := range []string{"NONE", "MS", "UUIDV7"} {
		c.want("+OK", "CTABLE", "CREATE", idtime, "PREFIX", idtime+":", "IDTIME", idtime,
			"WINDOW", strconv.Itoa(window), "SKEW", strconv.Itoa(skew))
	}
	ms := func(ago int) string { return strconv.FormatInt(time.Now().UnixMilli()-int64(ago), 10) }
	c.want(":1", "CINCRBY", "NONE:k", "a", "1", "AT", ms(0))
	c.want(":2", "CINCRBY", "NONE:k", "b", "1", "AT", ms(window-60_000))
	c.want(stale, "CINCRBY", "NONE:k", "c", "1", "AT", ms(window+2000))
	wantFuture("CINCRBY", "NONE:k", "d", "1", "AT", ms(-skew-60_000))
	c.want(stale, "CMINCRBY", "e", "2", "NONE:k", "1", "NONE:l", "1", "AT", ms(window+2000))
	c.want(":2", "CGET", "NONE:k")
	// A duplicate is refused as well once its time is known to be old.
	c.want(stale, "CINCRBY", "NONE:k", "a", "1", "AT", ms(window+2000))

	c.want(":1", "CINCRBY", "MS:k", ms(0)+"-a", "1")
	c.want(stale, "CINCRBY", "MS:k", ms(window+2000)+"-b", "1")
	c.want(stale, "CINCRBY", "MS:k", ms(0)+"-c", "1", "AT", ms(window+2000))
	c.want(stale, "CINCRBY", "MS:k", ms(window+2000)+"-d", "1", "AT", ms(0))
	wantFuture("CINCRBY", "MS:k", ms(-skew-60_000)+"-e", "1")

	id := uuid.Must(uuid.NewV7())
	c.want(":1", "CINCRBY", "UUIDV7:k", id.String(), "1")
	c.want(":1", "CINCRBY", "UUIDV7:k", id.String(), "1")
	binary := uuid.Must(uuid.NewV7())
	c.want(":2", "CINCRBY", "UUIDV7:k", string(binary[:]), "1")

	// Without being told, the server reads the time of a UUIDv7: late retries are refused.
	c.want("+OK", "CTABLE", "CREATE", "told-nothing", "PREFIX", "told-nothing:", "WINDOW",
		strconv.Itoa(window))
	id = uuid.Must(uuid.NewV7())
	c.want(":1", "CINCRBY", "told-nothing:k", id.String(), "1")
	c.want(":1", "CINCRBY", "told-nothing:k", id.String(), "1")
	c.want(stale, "CINCRBY", "told-nothing:k", "018f3c2e-7b1a-7c3d-8000-000000000001", "1")

	// FLUSHALL forgets the ids, and with them whatever happened before it.
	before := ms(0)
	time.Sleep(5 * time.Millisecond)
	c.want("+OK", "FLUSHALL")
	c.want(stale, "CINCRBY", "NONE:k", "a", "1", "AT", before)
	s.crash()
	c = s.dial()
	c.want(stale, "CINCRBY", "NONE:k", "a", "1", "AT", before)
}
