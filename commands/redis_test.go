package commands

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// The files in testdata hold requests and the replies of a real Redis:
//
//	> set a 5
//	+OK
//
// The test plays them here and compares. To record them anew, start
// redis-server 7 on an empty database and run
//
//	go test ./commands -run TestAsRedis -redis 127.0.0.1:6399
var redisAddr = flag.String("redis", "", "address of a Redis `server` whose replies are recorded into "+
	"testdata")

var recordings = []string{"testdata/redis-resp2.txt", "testdata/redis-resp3.txt"}

// greetings are sent before a dialogue, and not compared.
var greetings = map[string][]string{"testdata/redis-resp3.txt": {"HELLO 3"}}

func TestAsRedis(t *testing.T) {
	for _, file := range recordings {
		t.Run(file, func(t *testing.T) {
			steps := readDialogue(t, file)
			if *redisAddr != "" {
				record(t, file, steps)
				return
			}
			srv := &Server{ConfigSet: func(p [][2]string) error {
				return &ConfigError{Name: p[0][0], Unknown: true}
			}}
			now := time.Now().UnixMilli() // all the time: TTL answers in whole seconds
			st, err := store.Open(store.Options{Dir: t.TempDir(), Fsync: store.No, MinFreeDisk: -1,
				Clock: func() (int64, int64) { return now, 0 }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.CloseNow() })
			c := dial(t, st, srv)
			c.send(greetings[file]...)
			c.play(steps)
		})
	}
}

// readDialogue reads a file of requests and replies.
func readDialogue(t *testing.T, file string) []step {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if say, ok := strings.CutPrefix(line, "> "); ok {
			steps = append(steps, step{say: say})
		} else if len(steps) > 0 {
			steps[len(steps)-1].want = line
		}
	}
	if len(steps) < 10 {
		t.Fatalf("%s: %d steps only", file, len(steps))
	}
	return steps
}

// record asks a real Redis and rewrites the file.
func record(t *testing.T, file string, steps []step) {
	conn, err := net.Dial("tcp", *redisAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask(t, conn, "FLUSHALL")
	for _, g := range greetings[file] {
		ask(t, conn, g)
	}
	var out bytes.Buffer
	for _, s := range steps {
		shown, _ := show(ask(t, conn, s.say))
		fmt.Fprintf(&out, "> %s\n%s\n", s.say, shown)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ask sends one request to a real server and returns its reply.
func ask(t *testing.T, conn net.Conn, line string) string {
	t.Helper()
	words, ok := resp.SplitWords([]byte(line))
	if !ok {
		t.Fatalf("bad line %q", line)
	}
	fmt.Fprintf(conn, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(w), w)
	}
	conn.SetReadDeadline(time.Now().Add(testwait.Limit))
	reply, chunk := "", make([]byte, 64<<10)
	for !complete(reply) {
		n, err := conn.Read(chunk)
		if err != nil {
			t.Fatalf("%s: %v after %q", line, err, reply)
		}
		reply += string(chunk[:n])
	}
	return reply
}

// complete reports whether b holds a whole reply.
func complete(b string) (whole bool) {
	defer func() {
		if recover() != nil { // show ran off the end
			whole = false
		}
	}()
	shown, rest := show(b)
	return rest == "" && !strings.Contains(shown, "BROKEN") && strings.HasSuffix(b, "\r\n")
}
