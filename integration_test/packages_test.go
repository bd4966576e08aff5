package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// packageDrivers are programs that use the packages in ../clients: one for each library that a
// package works with. Each is called with the server's address (or those of a cluster's nodes, with
// commas), the time limit of a try, and that of all tries (in ms), reads requests as JSON, one a
// line, and answers them as they are ready.
var packageDrivers = []struct {
	name    string
	command func(t *testing.T) []string
}{
	{"go-redis", buildGoClient("../clients/go", "internal/driver")},
	{"node-redis", withArgs(nodeScript("driver.js"), "node-redis")},
	{"ioredis", withArgs(nodeScript("driver.js"), "ioredis")},
	{"redis-py", withArgs(pythonScript("clients/python/driver.py"), "sync")},
	{"redis-py-asyncio", withArgs(pythonScript("clients/python/driver.py"), "asyncio")},
}

// driverAnswer is what a driver answers: a value, an operation, or an error.
type driverAnswer struct {
	ID                              int
	Value, Op, Error, Code, Outcome string
	Results                         []driverAnswer
	fields                          map[string]any // all that it answered
}

// driver is a running program.
type driver struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	next    int
	waiting map[int]chan driverAnswer
}

// startDriver starts a driver that connects to an address.
func startDriver(t *testing.T, command []string, address string, timeout, retryFor time.Duration) *driver {
	t.Helper()
	args := append(append([]string(nil), command[1:]...), address,
		strconv.FormatInt(timeout.Milliseconds(), 10), strconv.FormatInt(retryFor.Milliseconds(), 10))
	d := &driver{t: t, cmd: exec.Command(command[0], args...), waiting: map[int]chan driverAnswer{}}
	var printed bytes.Buffer
	d.cmd.Stderr = &printed
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var a driverAnswer
			if err := errors.Join(json.Unmarshal(line, &a), json.Unmarshal(line, &a.fields)); err != nil {
				a.Error = string(line)
			}
			d.mu.Lock()
			if c := d.waiting[a.ID]; c != nil {
				c <- a
			}
			delete(d.waiting, a.ID)
			d.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-read
		d.cmd.Wait()
		if t.Failed() {
			t.Logf("the driver printed:\n%s", tail(printed.String(), 3000))
		}
	})
	return d
}

// begin sends a request and returns where its answer comes.
func (d *driver) begin(what, key string, delta int64, ops ...string) <-chan driverAnswer {
	return d.ask(map[string]any{"do": what, "key": key, "delta": strconv.FormatInt(delta, 10), "ops": ops})
}

// ask sends a request, which gets an id, and returns where its answer comes.
func (d *driver) ask(request map[string]any) <-chan driverAnswer {
	c := make(chan driverAnswer, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	d.waiting[d.next] = c
	request["id"] = d.next
	line, _ := json.Marshal(request)
	d.in.Write(append(line, '\n'))
	return c
}

// do sends a request and waits for its answer.
func (d *driver) do(what, key string, delta int64, ops ...string) driverAnswer {
	d.t.Helper()
	return d.await(d.begin(what, key, delta, ops...))
}

// await waits for an answer.
func (d *driver) await(c <-chan driverAnswer) driverAnswer {
	d.t.Helper()
	select {
	case a := <-c:
		return a
	case <-time.After(3 * patience): // its own is a third of it
		d.t.Fatal("the driver does not answer")
		return driverAnswer{}
	}
}

// want expects a request's answer to be a value. A request with an opid is sent again if there was no
// answer: a busy machine may take longer than the driver tries.
func (d *driver) want(value, what, key string, delta int64, ops ...string) {
	d.t.Helper()
	a, end := d.do(what, key, delta, ops...), time.Now().Add(patience)
	for what == "do" && a.Value == "" && a.Code == "" && time.Now().Before(end) {
		a = d.do(what, key, delta, ops...)
	}
	if a.Value != value {
		d.t.Errorf("%s %s %d %q: %+v, want %s", what, key, delta, ops, a, value)
	}
}

// counts adds 1 under one opid, and expects the counter's value.
func (d *driver) counts(value, key string) {
	d.t.Helper()
	op := ""
	eventually(d.t, patience, "an operation is made", func() bool {
		op = d.do("newop", key, 1).Op
		return op != ""
	})
	d.want(value, "do", "", 0, op)
}

// refused expects a request to fail with a code and an outcome, and returns the operation.
func (d *driver) refused(code, outcome, what, key string, delta int64, ops ...string) string {
	d.t.Helper()
	a := d.do(what, key, delta, ops...)
	if a.Code != code || a.Outcome != outcome || a.Error == "" {
		d.t.Errorf("%s %s %d %q: %+v, want %s, %s", what, key, delta, ops, a, code, outcome)
	}
	return a.Op
}

// TestPackages: what the packages for applications count is exact, whatever happens to the
// server and to the connections, and their errors say what is known.
func TestPackages(t *testing.T) {
	t.Parallel()
	for _, p := range packageDrivers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			command := p.command(t)
			for name, test := range map[string]func(*testing.T, []string){"Faults": packageFaults,
				"Pipelines": packagePipelines,
				"Errors":    packageErrors, "Outcomes": packageOutcomes, "Window": packageWindow,
				"Clock":   packageClock,
				"Cluster": packageCluster, "Stale": packageStale, "Passing": packagePassing,
				"Conformance": packageConformance} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, command)
				})
			}
		})
	}
}

// packageFaults adds all the time while answers are cut off, the server is killed and
// falls silent. Each addition is applied once and has the answer of its own: of n
// additions of 1 the answers are 1 to n.
func packageFaults(t *testing.T, command []string) {
	const keys, clients = 3, 6
	s := startServer(t)
	port := s.port()
	p := startRelay(t, s)
	d := startDriver(t, command, p.Addr().String(), 2*time.Second, patience)
	var mu sync.Mutex
	answers := map[string]int{} // how often a key was answered a value
	counts := [keys]int{}       // how often a key was added to
	count := func() (sum int) {
		mu.Lock()
		defer mu.Unlock()
		return counts[0] + counts[1] + counts[2]
	}
	var enough atomic.Bool
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for k := i % keys; !enough.Load(); {
				key := fmt.Sprint("count:", k)
				a := <-d.begin("add", key, 1)
				if a.Value == "" {
					t.Errorf("add: %+v", a)
				}
				mu.Lock()
				answers[key+" "+a.Value]++
				counts[k]++
				mu.Unlock()
				time.Sleep(5 * time.Millisecond) // others need the processor
			}
		})
	}
	progress := func() {
		t.Helper()
		begun := count()
		eventually(t, 3*patience, "additions go on", func() bool { return count() > begun+40 })
	}
	for range 2 {
		progress()
		p.set(func(p *relay) { p.cuts = 10 })
		progress()
		s.kill()
		s.start("--port", port)
	}
	progress()
	s.pauseUntilGivenUp(t)
	progress()
	enough.Store(true)
	group.Wait()
	c := s.dial()
	for k, n := range counts {
		key := fmt.Sprint("count:", k)
		c.want(strconv.Quote(strconv.Itoa(n)), "GET", key)
		for i := 1; i <= n; i++ {
			if got := answers[fmt.Sprintf("%s %d", key, i)]; got != 1 {
				t.Errorf("%d additions to %s were answered %d", got, key, i)
			}
		}
	}
}

// packagePipelines sends many operations at once and cuts their answers off in the middle.
func packagePipelines(t *testing.T, command []string) {
	const n = 500
	s := startServer(t)
	p := startRelay(t, s)
	d := startDriver(t, command, p.Addr().String(), 2*time.Second, patience)
	var ops []string
	for range n {
		ops = append(ops, d.do("newop", "pipe", 1).Op)
	}
	ops = append(ops, strings.Replace(ops[0], " 1 ", " 2 ", 1)) // an opid that is taken
	p.set(func(p *relay) { p.cuts = 3 })
	results := d.do("doall", "", 0, ops...).Results
	if len(results) != n+1 {
		t.Fatalf("%d results", len(results))
	}
	if last := results[n]; last.Code != "MISMATCH" || last.Outcome != "not applied" {
		t.Errorf("an opid that was used with another delta: %+v", last)
	}
	values := map[string]bool{}
	for i, r := range results[:n] {
		if v, _ := strconv.Atoi(r.Value); v < 1 || v > n || values[r.Value] {
			t.Errorf("operation %d: %+v", i, r)
		}
		values[r.Value] = true
	}
	s.dial().want(strconv.Quote(strconv.Itoa(n)), "GET", "pipe")
}

// packageErrors: answers that trying again cannot change come back at once, typed.
func packageErrors(t *testing.T, command []string) {
	s := startServer(t)
	c := s.dial()
	d := startDriver(t, command, s.address(), time.Minute, patience)
	c.want("+OK", "SET", "full", "9223372036854775807")
	c.want(":1", "FBF.ADD", "filter", "x")
	d.refused("OVERFLOW", "not applied", "add", "full", 1)
	d.refused("WRONGTYPE", "not applied", "add", "filter", 1)
	d.refused("OVERFLOW", "outcome unknown", "do", "", 0, "full 1 op-1 0")
	d.refused("WRONGTYPE", "outcome unknown", "do", "", 0, "filter 1 op-1 0")
	d.refused("STALE", "outcome unknown", "do", "", 0, "page:old 1 op-1 1600000000000")
	d.refused("FUTURE", "outcome unknown", "do", "", 0, "page:new 1 op-1 9600000000000")
	d.refused("ARGUMENT", "not applied", "do", "", 0, "page:new 1 "+strings.Repeat("x", 513)+" 0")
	d.refused("ARGUMENT", "not applied", "do", "", 0, "page:new 1 op-1 1600000000")
	d.want("1", "do", "", 0, "page%3Ahome%20%25%C3%BC 1 op%2D1 0")
	d.refused("MISMATCH", "not applied", "do", "", 0, "page:home%20%25%C3%BC 2 op-1 0")
	d.want("-9223372036854775808", "add", "empty", -1<<63)
	c.want(`"1"`, "GET", "page:home %ü")
	c.want("$-1", "GET", "page:old")
	// The permissions that the READMEs ask of an ACL.
	c.want("+OK", "ACL", "SETUSER", "default", "-@all", "+cincrby", "+time", "+ctable", "+acl")
	startDriver(t, command, s.address(), time.Minute, patience).want("3", "add", "permitted", 3)
	// Without the permission to ask for tables: the default window is assumed.
	c.want("+OK", "ACL", "SETUSER", "default", "-ctable")
	startDriver(t, command, s.address(), time.Minute, patience).want("8", "add", "permitted", 5)
	// A server that does not let us in, and a client that was closed: no time for retries passes.
	locked := startServer(t, "--requirepass", "secret")
	d = startDriver(t, command, locked.address(), 10*patience, 10*patience)
	if a := d.do("add", "page:home", 1); a.Outcome != "not applied" ||
		!strings.Contains(strings.ToLower(a.Error), "auth") {
		t.Errorf("without the password: %+v", a)
	}
	if mode := command[len(command)-1]; len(command) > 1 && mode != "asyncio" { // of Go the compiler does it
		d.want("0", "careless", "page:home", 0)
	}
	if command[0] == "node" {
		if a := d.do("text", "", 0, "page:home 1 op-1 0"); !strings.Contains(a.Error, "Op.parse") {
			t.Errorf("the text of an operation in its place: %+v", a)
		}
		idle := startServer(t)
		other := startDriver(t, command, idle.address(), time.Minute, patience)
		other.do("text", "", 0, "page:home 1 op-1 0")
		if list := idle.dial().do("CLIENT", "LIST"); strings.Count(list, " fd=") != 1 {
			t.Errorf("it connects before its first operation:\n%s", list)
		}
		other.want("number 1152921504606847000", "numbers", "big", 1<<60)
		d.do("close", "", 0) // the others have nothing to close, or open it again
		d.refused("", "not applied", "add", "page:home", 1)
	}
}

// packagePassing: errors that pass are tried again until there is no time for it, typed, and
// known to be without effect where the server says so.
func packagePassing(t *testing.T, command []string) {
	s := startServer(t)
	p := startRelay(t, s)
	refuse := true
	p.set(func(p *relay) {
		p.answer = func(args []string) string {
			if args[0] == "CINCRBY" && strings.Contains(args[1], " ") && refuse {
				return "-" + args[1] + "\r\n"
			}
			return ""
		}
	})
	d := startDriver(t, command, p.Addr().String(), 10*time.Second, 3*time.Second)
	d.counts("1", "page:home")
	unknown := map[string]bool{"MISCONF commit failed: outcome unknown, retry with the same opid": true,
		"TRYAGAIN no leader": true,
		"MISCONF writes are refused, nothing was applied: disk full": false, "LOADING it starts": false,
		"OOM too much":        false,
		"MOVED 1 127.0.0.1:1": false}
	asWanted := func(text string, a driverAnswer) bool {
		code, _, _ := strings.Cut(text, " ")
		return a.Code == code && a.Outcome != "" && (a.Outcome == "outcome unknown") == unknown[text]
	}
	// A library may also lose a connection in a try, and then nobody knows: once more.
	wanting := slices.Collect(maps.Keys(unknown))
	for range 4 {
		answers := map[string]<-chan driverAnswer{}
		for _, text := range wanting {
			answers[text] = d.begin("add", text, 1)
		}
		wanting = wanting[:0]
		for text, answer := range answers {
			if a := d.await(answer); !asWanted(text, a) {
				t.Logf("%s: %+v", text, a)
				wanting = append(wanting, text)
			}
		}
	}
	if len(wanting) > 0 {
		t.Errorf("the errors are not as the server means them: %q", wanting)
	}
	p.set(func(*relay) { refuse = false })
	for text := range unknown {
		d.counts("1", text)
	}
}

// packageOutcomes: what is not answered in time is unknown if it may have been applied, and
// known not to be if nothing was sent. The operation can be sent again, also by another
// process.
func packageOutcomes(t *testing.T, command []string) {
	s := startServer(t)
	port := s.port()
	p := startRelay(t, s)
	d := startDriver(t, command, p.Addr().String(), 2*time.Second, 3*time.Second)
	direct := startDriver(t, command, s.address(), 2*time.Second, 3*time.Second)
	direct.counts("1", "page:home")
	d.counts("2", "page:home")
	p.set(func(p *relay) { p.deaf = true })
	adding := d.begin("add", "page:home", 1)
	s.awaitCount("page:home", "3")
	p.close() // whatever is tried from now on is certainly not applied
	lost := d.await(adding)
	if lost.Outcome != "outcome unknown" || lost.Code != "" {
		t.Errorf("it was applied, and is told as %+v", lost)
	}
	direct.want("3", "do", "", 0, lost.Op) // not again
	s.kill()
	first := direct.do("add", "page:home", 1) // perhaps into a connection that is not known to be gone
	if first.Error == "" || first.Code != "" {
		t.Errorf("without a server: %+v", first)
	}
	for _, part := range []string{" tries in ", s.address()} {
		if !strings.Contains(first.Error, part) {
			t.Errorf("an error without %q: %s", part, first.Error)
		}
	}
	op := direct.refused("", "not applied", "add", "page:home", 1)
	direct.refused("", "outcome unknown", "do", "", 0, op) // for all that it knows
	s.start("--port", port)
	restarted := startDriver(t, command, s.address(), 2*time.Second, patience)
	restarted.want("4", "do", "", 0, op)
	restarted.want("5", "do", "", 0, first.Op)
	restarted.want("4", "do", "", 0, op)
	s.dial().want(`"5"`, "GET", "page:home")
}

// packageStale: an operation that may have been applied before the server forgot it is not
// made anew.
func packageStale(t *testing.T, command []string) {
	s := startServer(t)
	p := startRelay(t, s)
	d := startDriver(t, command, p.Addr().String(), 2*time.Second, patience)
	d.want("1", "add", "page:home", 1)
	p.set(func(p *relay) { p.deaf = true })
	adding := d.begin("add", "page:home", 1)
	s.awaitCount("page:home", "2")
	c := s.dial()
	c.want("+OK", "FLUSHALL")
	p.set(func(p *relay) { p.deaf = false })
	if a := d.await(adding); a.Code != "STALE" || a.Outcome != "outcome unknown" {
		t.Errorf("%+v", a)
	}
	c.want("$-1", "GET", "page:home")
	d.want("1", "add", "page:home", 1)
}

// awaitCount waits until a counter has a value.
func (s *server) awaitCount(key, value string) {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	eventually(s.t, patience, key+" is "+value, func() bool {
		return c.do("GET", key) == strconv.Quote(value)
	})
}

// packageWindow: retries end before the window of the key's table does.
func packageWindow(t *testing.T, command []string) {
	s := startServer(t)
	s.dial().want("+OK", "CTABLE", "CREATE", "short", "PREFIX", "short:", "WINDOW", "20000")
	p := startRelay(t, s)
	d := startDriver(t, command, p.Addr().String(), time.Second, 10*patience)
	d.want("1", "add", "page:home", 1)
	d.want("1", "add", "short:page", 1)
	p.set(func(p *relay) { p.deaf = true })
	d.refused("", "outcome unknown", "add", "short:page", 1) // long before 10*patience, or await gives up
	p.set(func(p *relay) { p.deaf = false })
	d.want("2", "add", "page:home", 1)
	s.dial().want(`"2"`, "GET", "short:page")
}

// packageClock: operations carry the server's time, and one that is refused since the
// package believed in a wrong time is made anew.
func packageClock(t *testing.T, command []string) {
	s := startServer(t)
	p := startRelay(t, s)
	wrong := false
	p.rewrite = func(reply []byte) []byte { // the first answer to TIME is some months early
		if !wrong && bytes.HasPrefix(reply, []byte("*2\r\n$10\r\n1")) {
			wrong = true
			reply[11]--
		}
		return reply
	}
	d := startDriver(t, command, p.Addr().String(), time.Minute, patience)
	d.want("1", "add", "page:home", 1)
	p.set(func(*relay) {
		if !wrong {
			t.Error("TIME was not asked for")
		}
	})
	d.want("2", "add", "page:home", 1)
	words := strings.Fields(d.do("newop", "page:home", 1).Op)
	at, _ := strconv.ParseInt(words[3], 10, 64)
	id := strings.ReplaceAll(words[2], "-", "")
	if inID, _ := strconv.ParseInt(id[:12], 16, 64); inID != at || len(id) != 32 || id[12] != '7' {
		t.Errorf("the opid %s is not a UUIDv7 of %d", words[2], at)
	}
	if age := time.Since(time.UnixMilli(at)); age < -time.Second || age > patience {
		t.Errorf("the operation is %v old", age)
	}
}

// packageCluster: when the leader of a key's slot is gone, the map of the cluster is read
// again at once, and not when the library would. Two relays before one server stand for
// two nodes that lead in turn.
func packageCluster(t *testing.T, command []string) {
	s := startServer(t)
	first, second := startRelay(t, s), startRelay(t, s)
	var leader atomic.Pointer[relay]
	leader.Store(first)
	node := func(p *relay) string {
		_, port, _ := net.SplitHostPort(p.Addr().String())
		return "*3\r\n$9\r\n127.0.0.1\r\n:" + port + "\r\n$40\r\n" + fmt.Sprintf("%040s", port) + "\r\n"
	}
	answer := func(args []string) string {
		lead, replica := first, second
		if leader.Load() == second {
			lead, replica = second, first
		}
		switch strings.ToUpper(strings.Join(args, " ")) {
		case "CLUSTER SLOTS":
			return "*1\r\n*4\r\n:0\r\n:16383\r\n" + node(lead) + node(replica)
		case "CLUSTER INFO":
			return "$16\r\ncluster_state:ok\r\n"
		}
		return ""
	}
	enabled := func(reply []byte) []byte {
		return bytes.Replace(reply, []byte("\ncluster_enabled:0"), []byte("\ncluster_enabled:1"), 1)
	}
	for _, p := range []*relay{first, second} {
		p.set(func(p *relay) { p.answer, p.rewrite = answer, enabled })
	}
	addresses := first.Addr().String() + "," + second.Addr().String()
	d := startDriver(t, command, addresses, 2*time.Second, patience)
	d.want("1", "add", "page:home", 1)
	var ops []string
	for range 10 {
		ops = append(ops, d.do("newop", "page:home", 1).Op)
	}
	if results := d.do("doall", "", 0, ops...).Results; len(results) != 10 || results[9].Value != "11" {
		t.Errorf("%+v", results)
	}
	many := map[string]any{"do": "addmany", "items": []string{"{page}:a", "1", "{page}:b", "2"}}
	for _, request := range []map[string]any{many, {"do": "limit", "key": "page:rate", "delta": "1"}} {
		if got := d.await(d.ask(request)).fields; got["error"] != nil && got["error"] != "" {
			t.Errorf("%v: %v", request, got)
		}
	}
	leader.Store(second)
	first.close()
	d.want("12", "add", "page:home", 1)
	s.dial().want(`"12"`, "GET", "page:home")
}

// buildGoClient builds a program of a module of the Go package.
func buildGoClient(module, program string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		binary := filepath.Join(t.TempDir(), "program")
		args := []string{"build", "-C", module, "-o", binary}
		if raced.On {
			args = append(args, "-race")
		}
		if out, err := exec.Command("go", append(args, "./"+program)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return []string{binary}
	}
}

// withArgs adds arguments to a command.
func withArgs(command func(t *testing.T) []string, more ...string) func(t *testing.T) []string {
	return func(t *testing.T) []string { return append(command(t), more...) }
}
