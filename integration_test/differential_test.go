package integration

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDifferential plays the scripts of testdata/differential, and those made from the command
// table, to a real Redis and to fbfkv, in each version of the protocol, and in one of them to the
// leader of a shard, and compares every reply. The syntax of a script is in
// differential_script_test.go. A reply that must differ is listed with its reason in
// testdata/differential/skip.txt; a line there that hides no difference fails the test.
func TestDifferential(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-server", "install Debian's package redis-server")
	scripts := generatedScripts(t)
	files, err := filepath.Glob("testdata/differential/*.script")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		scripts = append(scripts, readScript(t, file))
	}
	skips := readSkips(t, "testdata/differential/skip.txt")
	played := map[string]bool{}
	t.Run("script", func(t *testing.T) {
		for i, s := range scripts {
			shard := shardOfOne
			if s.name == "random" { // of all commands, and the longest
				shard = shardLeader
			}
			proto := []string{"2", "3"}[i%2]
			t.Run(s.name+"/shard", func(t *testing.T) {
				played[s.name] = true
				t.Parallel()
				compare(t, s.tagged(), proto, skips, shard, "always")
			})
			for _, proto := range []string{"2", "3"} {
				name := s.name + "/RESP" + proto
				t.Run(name, func(t *testing.T) {
					played[name] = true
					t.Parallel()
					compare(t, s, proto, skips, startServer, "everysec")
				})
			}
		}
	})
	if len(played) == 3*len(scripts) { // not with -run for some of them
		skips.checkUsed(t)
	}
}

// compare plays a script to both servers; start starts ours.
func compare(t *testing.T, s *script, proto string, skips *skipList,
	start func(testing.TB, ...string) *server, fsync string) {
	args := []string{"--save", "3600 1", "--appendfsync", fsync}
	theirs := newSide(t, "Redis", startRedis(t, args...), proto)
	ours := newSide(t, "fbfkv", start(t, args...).address(), proto)
	differences := 0
	for _, e := range s.steps {
		if e.pause > 0 {
			time.Sleep(e.pause)
			continue
		}
		want, got := theirs.play(e), ours.play(e)
		if e.kind == fields {
			compareFields(t, s, e, proto, skips, want.text, got.text)
			continue
		}
		for _, name := range e.normalisers {
			normalisers[name](&want, &got)
		}
		if got.String() == want.String() || skips.covers(s.name, proto, e.command()) {
			continue
		}
		t.Errorf("%s: %.200s\n got   %.600s\n Redis %.600s", e.where, e.command(), got, want)
		if differences++; differences == 200 {
			t.Fatal("and so on")
		}
	}
}

// compareFields expects every section and field of Redis' INFO in ours. Ours may
// have more, and they may be in another order.
func compareFields(t *testing.T, s *script, e *exchange, proto string, skips *skipList, redis, ours string) {
	names := func(info string) (names []string) {
		section := ""
		for _, line := range strings.Split(strings.TrimPrefix(info, "txt:"), "\r\n") {
			name, _, isField := strings.Cut(line, ":")
			if title, ok := strings.CutPrefix(line, "# "); ok {
				section = strings.ToLower(title)
				names = append(names, section)
			} else if isField {
				names = append(names, section+" "+name)
			}
		}
		return names
	}
	want, got := names(redis), names(ours)
	if len(want) < 2 {
		t.Errorf("%s: Redis' answer is %.200q", e.where, redis)
	}
	for _, name := range want {
		if !slices.Contains(got, name) && !skips.covers(s.name, proto, name) {
			t.Errorf("%s: %s: there is no %s", e.where, e.text, name)
		}
	}
}

// side is one of the two servers that a script is played to.
type side struct {
	t     testing.TB
	name  string
	addr  string
	proto string
	conns map[string]*scriptConn
}

// scriptConn is a connection that a script names.
type scriptConn struct {
	net.Conn
	r *bufio.Reader
}

func newSide(t testing.TB, name, addr, proto string) *side {
	s := &side{t: t, name: name, addr: addr, proto: proto, conns: map[string]*scriptConn{}}
	t.Cleanup(func() {
		for _, c := range s.conns {
			c.Close()
		}
	})
	return s
}

// conn returns the connection of this name, a new one if there is none. It
// speaks the side's version of the protocol.
func (s *side) conn(name string) *scriptConn {
	if c := s.conns[name]; c != nil {
		return c
	}
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
	c := &scriptConn{Conn: conn, r: bufio.NewReader(conn)}
	s.conns[name] = c
	s.ask(name, frame("HELLO", s.proto)) // refused if there is a password; both do alike
	return c
}

// closed and silence stand for the reply that does not come.
var (
	closed  = reply{kind: '(', text: "the connection is closed)"}
	silence = reply{kind: '(', text: "no reply)"}
)

// ask sends bytes on a connection and returns the reply.
func (s *side) ask(name, bytes string) reply {
	c := s.conn(name)
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(bytes)); err != nil {
		return s.lost(name)
	}
	return s.read(name)
}

// read returns the next reply on a connection.
func (s *side) read(name string) reply {
	c := s.conn(name)
	r, err := readTree(c.r)
	switch {
	case isTimeout(err):
		s.t.Fatalf("%s does not answer", s.name)
	case err != nil:
		return s.lost(name)
	}
	return r
}

// lost forgets a connection, so that its name may be used for another.
func (s *side) lost(name string) reply {
	s.conns[name].Close()
	delete(s.conns, name)
	return closed
}

// play does one step and returns the reply.
func (s *side) play(e *exchange) reply {
	switch e.kind {
	case scanAll:
		return s.scan(e)
	case next:
		return s.read(e.conn)
	case mute:
		c := s.conn(e.conn)
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte(e.bytes)); err != nil {
			return s.lost(e.conn)
		}
		return silence
	}
	return s.ask(e.conn, e.bytes)
}

// scan calls SCAN with the step's options until the cursor is 0 again and
// returns all keys, or the first error.
func (s *side) scan(e *exchange) reply {
	var all reply
	for cursor := "0"; ; {
		r := s.ask(e.conn, frame(append([]string{"SCAN", cursor}, e.args...)...))
		if r.kind != '*' || len(r.elements) != 2 {
			return r
		}
		all.kind = r.elements[1].kind
		all.elements = append(all.elements, r.elements[1].elements...)
		if cursor = r.elements[0].text; cursor == "0" {
			return all
		}
	}
}

// startRedis starts a real Redis on a free port and an empty directory and
// returns its address.
func startRedis(t testing.TB, args ...string) string {
	t.Helper()
	requireProgram(t, "redis-server", "install Debian's package redis-server")
	for range 5 { // another process may take the port first
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := listener.Addr().String()
		listener.Close()
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command("redis-server", append([]string{"--port", port, "--bind", "127.0.0.1",
			"--dir", t.TempDir()}, args...)...)
		log := newLogBuffer()
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		done := make(chan struct{})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { cmd.Wait(); close(done) }()
		if log.await(redisReady, done) {
			t.Cleanup(func() { cmd.Process.Kill(); <-done })
			return addr
		}
		cmd.Process.Kill()
		<-done
		if !strings.Contains(log.String(), "Address already in use") {
			t.Fatalf("redis-server does not start:\n%s", tail(log.String(), 2000))
		}
	}
	t.Fatal("no free port for redis-server")
	return ""
}
