package integration

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// postgres is a PostgreSQL server of a test's own.
type postgres struct {
	t         *testing.T
	dir, bin  string
	as        *syscall.SysProcAttr
	processes *exec.Cmd
	log       *logBuffer
}

// startPostgres starts a server in a new directory. It runs as its own user where the test is root, which
// PostgreSQL refuses.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		requireProgram(t, "postgres", "install Debian's package postgresql")
		found = []string{"postgres"}
	}
	db := &postgres{t: t, bin: filepath.Dir(found[len(found)-1]), log: newLogBuffer()}
	dir, err := os.MkdirTemp("", "postgres") // under t.TempDir the other user sees nothing
	if err != nil {
		t.Fatal(err)
	}
	db.dir = dir
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		db.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if out, err := db.command("initdb", "-D", dir+"/data", "-A", "trust", "-U", "fbfkv", "-E", "UTF8", "--no-locale",
		"--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	db.start()
	t.Cleanup(db.kill)
	return db
}

func (db *postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(db.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = db.as, db.dir
	return cmd
}

func (db *postgres) start() {
	db.t.Helper()
	db.processes = db.command("postgres", "-D", db.dir+"/data", "-k", db.dir, "-c", "listen_addresses=", "-F")
	db.processes.Stdout, db.processes.Stderr = db.log, db.log
	if err := db.processes.Start(); err != nil {
		db.t.Fatal(err)
	}
	eventually(db.t, patience, "PostgreSQL answers", func() bool {
		_, err := db.ask("SELECT 1")
		return err == nil
	})
}

// kill ends all its processes at once, which must recover when they start again.
func (db *postgres) kill() {
	db.processes.Process.Signal(syscall.SIGQUIT)
	db.processes.Wait()
}

func (db *postgres) psql(args ...string) *exec.Cmd {
	return db.command("psql", append([]string{"-h", db.dir, "-U", "fbfkv", "-d", "postgres", "-qX"}, args...)...)
}

func (db *postgres) ask(query string) (string, error) {
	out, err := db.psql("-tAc", query).Output()
	return strings.TrimSpace(string(out)), err
}

func (db *postgres) counters() string {
	return "SELECT encode(convert_to(key, 'UTF8'), 'hex') || ' ' || value FROM counters"
}

func (db *postgres) taker() *exec.Cmd { return db.psql("-v", "ON_ERROR_STOP=1") }

// order is what one event says.
type order struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var pipeKills = flag.Int("pipes.kills", 10, "how often TestPipes kills something of each pipe")

// served is what a pipe counts in: a server, or the nodes of a cluster.
type served struct {
	*server   // by which the tools reach it
	crash     func()
	client    redis.Cmdable
	clustered bool
}

func newServed(t *testing.T) *served {
	s := startServer(t)
	return &served{s, s.crash, s.client(), false}
}

// newServedCluster makes a cluster of two shards, whose leaders crash, and whose partitions move.
func newServedCluster(t *testing.T) *served {
	all := startNodes(t, 4)
	any := all[0].address()
	operate(t, 0, "is complete", append([]string{"create"}, addresses(all[:3]...)...)...)
	operate(t, 0, "form a new shard", "add-node", "--new-shard", all[3].address(), any)
	operate(t, 0, "in place", "rebalance", any)
	shards := shardsOf(t, all[0])
	disturbed := 0
	return &served{all[0], func() {
		switch disturbed++; disturbed % 3 {
		case 0:
			all[3].crash()
		case 1:
			leaderOf(t, all[:3]...).crash()
		default:
			for _, to := range shards {
				operate(t, 0, "", "move", "--partitions", "4-11", "--to", to, any)
			}
			operate(t, 0, "", "rebalance", any)
		}
	}, clusterClient(t, all...), true}
}

// TestPipes counts events per customer and follows the counters into a database. All that is in between is
// killed, again and again. Then the database has what the events say, as the server has.
func TestPipes(t *testing.T) {
	t.Parallel()
	intoSQLite := func(t *testing.T) (database, func()) {
		requireProgram(t, "sqlite3", "install Debian's package sqlite3")
		return sqlite(filepath.Join(t.TempDir(), "sink.db")), func() {}
	}
	for _, pipe := range []struct {
		name     string
		events   func(t *testing.T) events
		served   func(t *testing.T) *served
		database func(t *testing.T) (db database, kill func())
	}{
		{"JSON queue to SQLite", newQueue, newServed, intoSQLite},
		{"JSON queue through a cluster", newQueue, newServedCluster, intoSQLite},
		{"Redis Stream to PostgreSQL", newRedisStream, newServed, func(t *testing.T) (database, func()) {
			db := startPostgres(t)
			return db, func() { db.kill(); db.start() }
		}},
	} {
		t.Run(pipe.name, func(t *testing.T) {
			t.Parallel()
			s := pipe.served(t)
			in := pipe.events(t)
			db, crash := pipe.database(t)
			want := map[string]int64{}
			made := 0
			produce := func() {
				t.Helper()
				var batch []order
				for range 400 {
					o := order{fmt.Sprint("c", made%23), made % 100}
					batch, made = append(batch, o), made+1
					want["spent:"+o.Customer] += int64(o.Cents)
				}
				in.add(t, batch)
			}
			for round := range *pipeKills {
				from := position(db)
				count := in.count(s.server)
				if err := count.Start(); err != nil {
					t.Fatal(err)
				}
				p := followInto(t, s.server, db, from)
				produce()
				goesOn := func() bool {
					if position(db) != from {
						return true
					}
					if in.ends() { // it has counted what there was when it began
						count.Wait()
						if count = in.count(s.server); count.Start() != nil {
							t.Fatal("it does not start again")
						}
					}
					produce()
					return false
				}
				eventually(t, patience, "the database goes on", goesOn)
				switch round % 5 {
				case 0:
					count.Process.Kill()
				case 1:
					p.follow.Process.Kill()
				case 2:
					p.db.Process.Kill()
				case 3:
					crash()
				default:
					if s.crash(); s.clustered {
						produce()
						from = position(db)
						eventually(t, patience, "the database goes on behind another leader", goesOn)
					}
				}
				produce()
				count.Process.Kill()
				count.Wait()
				p.end()
			}
			in.finish(t, s.server)
			p := followInto(t, s.server, db, position(db))
			defer p.end()
			awaitSpent(t, made, want, s, db)
		})
	}
}

// awaitSpent waits until a database has what was spent, and expects the server to have it.
func awaitSpent(t *testing.T, events int, want map[string]int64, s *served, db database) {
	t.Helper()
	spent := func(all map[string]int64) map[string]int64 {
		maps.DeleteFunc(all, func(key string, _ int64) bool {
			return !strings.HasPrefix(key, "spent:") // how far the queue was read
		})
		return all
	}
	var got map[string]int64
	eventually(t, patience, "the database has what the events say", func() bool {
		got = spent(countersOf(db))
		return maps.Equal(got, want)
	})
	for key, sum := range want {
		if n, err := s.client.Get(t.Context(), key).Int64(); n != sum {
			t.Errorf("%s is %d (%v), and %d were spent in %d events", key, n, err, sum, events)
		}
	}
}

// events are where `fbfkv stream count` takes its records from.
type events interface {
	add(t *testing.T, batch []order)
	count(s *server) *exec.Cmd
	ends() bool                     // count ends when it has counted what there was
	finish(t *testing.T, s *server) // counts all that there is
}

// countOrders returns the command that counts.
func countOrders(s *server, args ...string) *exec.Cmd {
	cmd := exec.Command(program, append([]string{"stream", "count", "--counter", "spent:{customer}", "--by",
		"cents", s.address()}, args...)...)
	cmd.Stderr = s.log
	return cmd
}

// queue are lines of JSON, which are all fed again.
type queue struct{ text strings.Builder }

func newQueue(*testing.T) events { return new(queue) }

func (q *queue) add(t *testing.T, batch []order) {
	for _, o := range batch {
		line, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		q.text.Write(append(line, '\n'))
	}
}

func (q *queue) count(s *server) *exec.Cmd {
	cmd := countOrders(s, "--source", "orders")
	cmd.Stdin = strings.NewReader(q.text.String())
	return cmd
}

func (q *queue) ends() bool { return true }

func (q *queue) finish(t *testing.T, s *server) {
	t.Helper()
	if err := q.count(s).Run(); err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
}

// redisStream is a Redis Stream, read by a group.
type redisStream struct {
	address string
	client  *redis.Client
}

func newRedisStream(t *testing.T) events {
	address := startRedis(t, "--save", "")
	r := &redisStream{address, redisClient(t, address, 0)}
	if err := r.client.XGroupCreateMkStream(context.Background(), "orders", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *redisStream) add(t *testing.T, batch []order) {
	t.Helper()
	ctx := context.Background()
	pipe := r.client.Pipeline()
	for _, o := range batch {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []any{"customer", o.Customer, "cents", o.Cents}})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

func (r *redisStream) count(s *server) *exec.Cmd {
	return countOrders(s, "--redis", "redis://"+r.address, "--stream", "orders", "--group", "g")
}

func (r *redisStream) ends() bool { return false }

func (r *redisStream) finish(t *testing.T, s *server) {
	t.Helper()
	cmd := r.count(s)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	eventually(t, patience, "all entries are acknowledged", func() bool {
		info, err := r.client.XInfoGroups(ctx, "orders").Result()
		return err == nil && info[0].Lag == 0 && info[0].Pending == 0
	})
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
}
