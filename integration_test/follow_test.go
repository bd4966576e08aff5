package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// database is one that takes what `fbfkv follow --format sql` writes.
type database interface {
	ask(query string) (string, error)
	counters() string // a query of the keys, in hexadecimal digits, and values
	taker() *exec.Cmd // reads statements from its standard input until one fails
}

// sqlite is a database in a file.
type sqlite string

func (db sqlite) ask(query string) (string, error) {
	out, err := exec.Command("sqlite3", "-cmd", ".timeout 10000", string(db), query).Output()
	return strings.TrimSpace(string(out)), err
}

func (db sqlite) counters() string { return "SELECT hex(key) || ' ' || value FROM counters" }

func (db sqlite) taker() *exec.Cmd {
	return exec.Command("sqlite3", "-bail", "-cmd", ".timeout 10000", string(db))
}

// sink is `fbfkv follow` and the database that it is piped into.
type sink struct {
	follow, db *exec.Cmd
}

// followInto starts a follower whose output a database takes.
func followInto(t *testing.T, s *server, db database, from string) *sink {
	t.Helper()
	p := &sink{follow: exec.Command(program, "follow", s.address(), "--format", "sql", "--from", from),
		db: db.taker()}
	p.db.Stderr, p.follow.Stderr = os.Stderr, os.Stderr
	pipe, err := p.follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.db.Stdin = pipe
	for _, cmd := range []*exec.Cmd{p.follow, p.db} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() }) // else a test that failed would wait for its output
	}
	return p
}

// end ends both, which may have been killed.
func (p *sink) end() {
	p.follow.Process.Kill()
	p.follow.Wait() // and its output, which ends the other one's input
	p.db.Wait()
}

// position is where a follower goes on that writes to a database.
func position(db database) string {
	cursor, _ := db.ask("SELECT cursor FROM fbfkv_follow") // which may not have the table yet
	return cmp.Or(cursor, "snapshot")
}

// countersOf returns the counters that a database has.
func countersOf(db database) map[string]int64 {
	out, _ := db.ask(db.counters())
	all := map[string]int64{}
	for line := range strings.Lines(out) {
		digits, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, _ := hex.DecodeString(digits)
		all[string(key)], _ = strconv.ParseInt(value, 10, 64)
	}
	return all
}

// awaitEqual waits until a database has what the server has.
func awaitEqual(t *testing.T, s *server, db database) {
	t.Helper()
	want, _ := counters(t, s.client())
	awaitCounters(t, want, db)
}

// awaitCounters waits until a database has some counters.
func awaitCounters(t *testing.T, want map[string]int64, db database) {
	t.Helper()
	var got map[string]int64
	end := time.Now().Add(patience)
	for !maps.Equal(got, want) && time.Now().Before(end) {
		time.Sleep(50 * time.Millisecond)
		got = countersOf(db)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the database has %v, want %v", got, want)
	}
}

// TestFollowIntoSQLite: whatever is killed in between, the database is as far as its cursor, and then as
// far as the server.
func TestFollowIntoSQLite(t *testing.T) {
	t.Parallel()
	requireProgram(t, "sqlite3", "install Debian's package sqlite3")
	ctx := context.Background()
	s := startServer(t)
	db := sqlite(filepath.Join(t.TempDir(), "sink.db"))
	c := s.client()
	odd := []string{"it's", "a\n.quit\n", "\\q", "ä;--", "\"k\""}
	opid := 0
	count := func(n int) {
		t.Helper()
		pipe := c.Pipeline()
		for range n {
			opid++
			pipe.Do(ctx, "CINCRBY", fmt.Sprint("k", opid%97), opid, 1)
		}
		pipe.Do(ctx, "CINCRBY", odd[opid%len(odd)], opid, 1)
		pipe.Do(ctx, "CINCRBY", fmt.Sprint("short", opid%7), opid, 1, "PX", 20)
		pipe.Del(ctx, fmt.Sprint("k", opid%89))
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	count(5000)
	for round := range 9 {
		from := position(db)
		p := followInto(t, s, db, from)
		for end := time.Now().Add(patience); position(db) == from && time.Now().Before(end); {
			count(100)
		}
		switch round % 3 {
		case 0:
			p.follow.Process.Kill()
		case 1:
			p.db.Process.Kill()
		default:
			s.crash()
		}
		count(100)
		if p.end(); round == 4 {
			c.FlushAll(ctx)
		}
	}
	p := followInto(t, s, db, position(db))
	defer p.end()
	awaitEqual(t, s, db)
}

// TestFollowRegions: of each of two regions the database has every counter exactly as that shows it, with
// operations that both have applied, whatever is killed in between.
func TestFollowRegions(t *testing.T) {
	t.Parallel()
	requireProgram(t, "sqlite3", "install Debian's package sqlite3")
	ctx := context.Background()
	var all []*server
	var dbs []sqlite
	for i, name := range []string{"eu", "us"} {
		s := startServer(t, "--port", fmt.Sprint(freePorts(t, 1)), "--region-retention", "3600")
		if all, dbs = append(all, s), append(dbs, sqlite(filepath.Join(t.TempDir(), "sink.db"))); i == 0 {
			region(t, 0, "is the region", "create", s.address(), name)
		} else {
			region(t, 0, "has caught up", "join", s.address(), name, all[0].address())
		}
	}
	var sinks []*sink
	follow := func() {
		for i, s := range all {
			sinks = append(sinks, followInto(t, s, dbs[i], position(dbs[i])))
		}
	}
	end := func() {
		for _, p := range sinks {
			p.end()
		}
		sinks = nil
	}
	defer func() { end() }()
	opid := 0
	count := func() {
		t.Helper()
		pipes := []redis.Pipeliner{all[0].client().Pipeline(), all[1].client().Pipeline()}
		for range 300 {
			opid++
			for i, pipe := range pipes {
				pipe.Do(ctx, "CINCRBY", fmt.Sprint("twin", opid%17), opid, 2)
				pipe.Do(ctx, "CINCRBY", fmt.Sprint("k", opid%41), fmt.Sprint(i, opid), 1)
				pipe.Do(ctx, "INCRBY", fmt.Sprint("k", opid%43), opid)
			}
			pipe := pipes[opid%2]
			switch opid % 50 {
			case 0:
				pipe.Do(ctx, "DEL", fmt.Sprint("k", opid%11), fmt.Sprint("twin", opid%3))
			case 1:
				pipe.Do(ctx, "SET", fmt.Sprint("k", opid%13), opid)
			case 2:
				pipe.Do(ctx, "PEXPIRE", fmt.Sprint("k", opid%7), 100)
			}
		}
		for i, pipe := range pipes {
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatalf("region %d: %v", i, err)
			}
		}
	}
	for round := range 4 {
		before := position(dbs[1])
		follow()
		if round == 0 { // so that both apply operations before they hear of one another
			for _, verb := range []string{"PAUSE", "RESUME"} {
				if _, err := redisAsk(all[1], "REGION", verb, "eu"); err != nil {
					t.Fatal(err)
				}
				count()
			}
		} else {
			count()
		}
		eventually(t, patience, "the follower goes on", func() bool { return position(dbs[1]) != before })
		switch round {
		case 0:
			sinks[0].follow.Process.Kill()
		case 1:
			sinks[1].db.Process.Kill()
		case 2:
			all[1].crash()
		}
		count()
		end()
	}
	follow()
	eventually(t, patience, "both regions and databases have the same", func() bool {
		want, _ := counters(t, all[0].client())
		other, _ := counters(t, all[1].client())
		return maps.Equal(want, other)
	})
	for i, s := range all {
		awaitEqual(t, s, dbs[i])
	}
	cmd := exec.Command(program, "follow", all[1].address(), "--from", "start")
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	defer cmd.Process.Kill()
	missing := []string{`"change":"add","key":"k1","opid":"0`, `"change":"takeback","key":"twin`, `"region":"eu"`,
		`"change":"merged"`}
	for lines := bufio.NewScanner(pipe); len(missing) > 0 && lines.Scan(); {
		missing = slices.DeleteFunc(missing, func(part string) bool {
			return strings.Contains(lines.Text(), part)
		})
	}
	if len(missing) > 0 {
		t.Errorf("no line has %q", missing)
	}
}

// TestFollowLost: a follower that was away for too long is told what it has lost, and how to go on: with a
// snapshot the database is as far as the server again.
func TestFollowLost(t *testing.T) {
	t.Parallel()
	requireProgram(t, "sqlite3", "install Debian's package sqlite3")
	ctx := context.Background()
	s := startServer(t, "--follow-backlog", "1mb")
	db := sqlite(filepath.Join(t.TempDir(), "sink.db"))
	c := s.client()
	for i := range 100 {
		c.Do(ctx, "CINCRBY", fmt.Sprint("k", i), i, i)
	}
	p := followInto(t, s, db, "snapshot")
	awaitEqual(t, s, db)
	p.end()
	from := position(db)
	c.Del(ctx, "k1", "k2")
	c.IncrBy(ctx, "k3", 5)
	var err error
	for round := 0; err == nil && round < 5; round++ {
		pipe := c.Pipeline() // more than a file of the log
		for i := range 700 {
			key := fmt.Sprint(i, strings.Repeat("x", 60_000))
			pipe.Set(ctx, key, i, 0)
			pipe.Del(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		c.Save(ctx)
		err = c.Do(ctx, "CFOLLOW", "follow", from).Err()
	}
	out, stderr, status := transfer(t, "follow", s.address(), "--from", from)
	if status != 1 || out != "" || !strings.Contains(stderr, "LOST ") || !strings.Contains(stderr, "SNAPSHOT") {
		t.Fatalf("%s%s, exit status %d (%v)", out, stderr, status, err)
	}
	p = followInto(t, s, db, "snapshot")
	defer p.end()
	awaitEqual(t, s, db)
}

// TestFollowLines: lines that come again after a kill can be told by partition and sequence, and none is
// missing. A cursor file wins over --from.
func TestFollowLines(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := startServer(t)
	c := s.client()
	file := filepath.Join(t.TempDir(), "cursor")
	sums, seen := map[string]int64{}, map[string]bool{}
	const ops, rounds = 5000, 4
	for round := range rounds {
		cmd := exec.Command(program, "follow", s.address(), "--from", "start", "--cursor-file", file, "--prefix", "k")
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		batch := c.Pipeline()
		for i := range ops {
			batch.Do(ctx, "CINCRBY", fmt.Sprint("k", i%50), fmt.Sprint(round, i), i)
		}
		batch.Do(ctx, "CINCRBY", "other", round, 1)
		if _, err := batch.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(pipe)
		for enough := ops*round + ops/2 + ops/2*(round/(rounds-1)); len(seen) < enough; {
			if err := readLine(t, d, sums, seen); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Process.Kill()
		for readLine(t, d, sums, seen) == nil { // what the cursor may be behind
		}
		cmd.Wait()
		if round == 1 {
			s.crash()
		}
	}
	want, _ := counters(t, c)
	if delete(want, "other"); !maps.Equal(sums, want) {
		t.Errorf("the lines' sums are %v, want %v", sums, want)
	}
	for _, bad := range [][]string{{"--format", "xml"}, {"--from", ""}, {"--format", "sql", "--cursor-file", file},
		{"--from", "bad"}} {
		if out, stderr, status := transfer(t, append([]string{"follow", s.address()}, bad...)...); status != 1 ||
			out != "" || stderr == "" {
			t.Errorf("%q: %s%s, exit status %d", bad, out, stderr, status)
		}
	}
}

// readLine adds up the delta of a line, unless it was there before.
func readLine(t *testing.T, d *json.Decoder, sums map[string]int64, seen map[string]bool) error {
	t.Helper()
	var line struct {
		Partition, Sequence, Delta, Value int64
		Key, Opid, Change                 string
	}
	if err := d.Decode(&line); err != nil {
		return err
	}
	if place := fmt.Sprint(line.Partition, line.Sequence); !seen[place] {
		seen[place] = true
		if sums[line.Key] += line.Delta; sums[line.Key] != line.Value {
			t.Fatalf("%+v is out of order: the sum is %d", line, sums[line.Key])
		}
	}
	return nil
}

// TestFollowCSV: the first line names the columns, and a counter that ends has no value.
func TestFollowCSV(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := startServer(t)
	c := s.client()
	c.Do(ctx, "CINCRBY", "a,b", "x", 5)
	c.Del(ctx, "a,b")
	cmd := exec.Command(program, "follow", s.address(), "--from", "start", "--format", "csv")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for b := make([]byte, 4096); bytes.Count(got.Bytes(), []byte("\n")) < 3; {
		n, err := pipe.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(b[:n])
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	lines := strings.Split(got.String(), "\n")
	if lines[0] != "partition,sequence,index,change,key,opid,delta,value,time,region" ||
		!strings.Contains(lines[1], `,0,add,"a,b",x,5,5,`) || !strings.Contains(lines[2], `,0,deleted,"a,b",,,,`) {
		t.Errorf("the lines are %q", lines)
	}
}

// TestFollowCluster: of a cluster the database has every counter exactly, although leaders are killed,
// partitions move to a new shard and back, a shard is flushed, and the follower is killed meanwhile.
func TestFollowCluster(t *testing.T) {
	t.Parallel()
	requireProgram(t, "sqlite3", "install Debian's package sqlite3")
	all := startNodes(t, 6)
	one, two := all[:3], all[3:]
	any := one[0].address()
	operate(t, 0, "is complete", append([]string{"create", "--partitions", "8"}, addresses(one...)...)...)
	changeTables(t, one[0], "ALTER", "default", "WINDOW", 3600000)
	db := sqlite(filepath.Join(t.TempDir(), "sink.db"))
	c := clusterClient(t, all...)
	l := startMoveLoad(t, c, 4)
	var p *sink
	defer func() { p.end() }()
	begin := func(at *server) {
		t.Helper()
		from := position(db)
		p = followInto(t, at, db, from)
		eventually(t, patience, "the follower goes on", func() bool { return position(db) != from })
	}
	again := func(at *server) {
		t.Helper()
		from := position(db)
		eventually(t, patience, "the follower goes on", func() bool { return position(db) != from })
		p.end()
		begin(at)
	}
	begin(one[0])
	kill := func(shard []*server) {
		victim := leaderOf(t, shard...)
		victim.kill()
		again(without(shard, victim)[0])
		victim.start()
	}
	kill(one)
	operate(t, 0, "form a new shard", "add-node", "--new-shard", strings.Join(addresses(two...), ","), any)
	id := shardsOf(t, one[0])[1]
	operate(t, 0, "in place", "rebalance", any)
	again(two[0])
	kill(two)
	operate(t, 0, "in place", "move", "--partitions", "0-1", "--to", id, any)
	p.end() // what it has not read moves on, and back
	operate(t, 0, "in place", "rebalance", any)
	operate(t, 0, "", "rebalance", "--empty", id, any)
	begin(one[1])
	operate(t, 0, "in place", "rebalance", any)
	kill(one)
	want := l.finish()
	awaitCounters(t, want, db)
	holder := holderOf(t, "key1", all...)
	if _, err := redisAsk(holder, "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	for key := range want {
		if n, err := c.Exists(t.Context(), key).Result(); err == nil && n == 0 {
			delete(want, key)
		}
	}
	awaitCounters(t, want, db)
}
