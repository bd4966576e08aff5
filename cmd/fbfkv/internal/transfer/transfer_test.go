package transfer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/store"
)

// TestExpiredOnTheWay: a key that expires before its page is written is left out, and
// nothing else of the page needs the server here.
func TestExpiredOnTheWay(t *testing.T) {
	var out bytes.Buffer
	m := importer{out: &out, target: new(connect.Client)} // it connects when it must
	m.progress = bar.New(&out)
	p := page{asked: time.Now().Add(-time.Minute), records: []record{
		{key: "ran out meanwhile", value: "5", expiry: 60_000},
		{key: "was gone already", value: "", expiry: -2},
		{key: "is no counter", value: "x", expiry: -1},
	}}
	if err := m.write(p); err != nil || m.expired != 2 || m.skipped != 1 {
		t.Errorf("%v, %d have expired: %s", err, m.expired, out.String())
	}
}

func TestCounter(t *testing.T) {
	for text, valid := range map[string]bool{
		"0": true, "-1": true, "9223372036854775807": true, "-9223372036854775808": true,
		"": false, "-0": false, "+1": false, "01": false, " 1": false, "1.0": true,
		"9223372036854775808": false, "0x1": false, "1_0": false, "-0.5": true, "12.34": true,
		"-9223372036.854775808": true, "-9223372036.8547758081": false, ".5": false, "-.5": false,
		"1.": false, "01.5": false, "1.5.5": false, "1e2": false, "1.5e2": false, "1.-5": false,
	} {
		r := record{value: text}
		if why := r.counter(); (why == "") != valid {
			t.Errorf("%q: %s", text, why)
		}
	}
}

// TestExportDir: a directory's counters are written as GET answers them, each in the scale of its
// own table.
func TestExportDir(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(store.Options{Dir: dir, MinFreeDisk: -1})
	if err != nil {
		t.Fatal(err)
	}
	for prefix, scale := range map[string]uint8{"e:": 2, "e:x:": 0, "nano:": 9} {
		if err := s.CreateTable(store.TableOptions{Name: "t" + prefix, Prefix: prefix, Scale: scale,
			Window: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	var batch store.Batch
	for key, steps := range map[string]int64{"e:a": -1234, "e:whole": 500, "e:x:b": 1234, "plain": 1234,
		"nano:least": math.MinInt64} {
		op := batch.Add(store.Set)
		op.Key, op.Delta = []byte(key), steps
		if scale := map[byte]uint8{'a': 2, 'w': 2, 'l': 9}[key[strings.LastIndex(key, ":")+1]]; scale > 0 {
			op.Points[0] = store.Decimal | store.Points(scale)
		}
	}
	s.Execute(&batch)
	for _, op := range batch.Ops {
		if op.Err != nil {
			t.Fatalf("%s: %v", op.Key, op.Err)
		}
	}
	exportsDecimals(t, dir, s.CloseNow) // the log has all
	if s, err = store.Open(store.Options{Dir: dir, MinFreeDisk: -1}); err != nil {
		t.Fatal(err)
	}
	exportsDecimals(t, dir, s.Close) // a checkpoint has all
}

// exportsDecimals closes a directory and expects TestExportDir's counters in it.
func exportsDecimals(t *testing.T, dir string, closeStore func() error) {
	t.Helper()
	if err := closeStore(); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string][]string{
		"csv": {"e:a,-12.34,", "e:whole,5,", "e:x:b,1234,", "key,value,expires_unix_ms",
			"nano:least,-9223372036.854775808,", "plain,1234,"},
		"ndjson": {`{"key":"e:a","value":-12.34}`, `{"key":"e:whole","value":5}`,
			`{"key":"e:x:b","value":1234}`, `{"key":"nano:least","value":-9223372036.854775808}`,
			`{"key":"plain","value":1234}`},
		"resp": slices.Sorted(strings.SplitSeq(strings.Repeat("*3\r\n$3\r\nSET\r\n", 5)+
			"$3\r\ne:a\r\n$6\r\n-12.34\r\n"+
			"$7\r\ne:whole\r\n$1\r\n5\r\n$5\r\ne:x:b\r\n$4\r\n1234\r\n$5\r\nplain\r\n$4\r\n1234\r\n"+
			"$10\r\nnano:least\r\n$21\r\n-9223372036.854775808\r", "\n")),
	} {
		var out bytes.Buffer
		cmd := NewExport()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--dir", dir, "--format", format})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n"))
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRefusedKeys: a target's refusal of a key skips it. Any other ends the command, which says what
// it has done of the page.
func TestRefusedKeys(t *testing.T) {
	for refusal, want := range map[string][2]string{
		"BOUND 5 is above MAX":             {"; 1 were skipped\n", "skipped keys: 1"},
		"ERR at most 2 decimals":           {"; 1 were skipped\n", "skipped keys: 1"},
		"WRONGTYPE of another kind":        {"; 1 were skipped\n", "skipped keys: 1"},
		"MISCONF the disk is full, or so.": {"imported 2 of 2 keys ", "after 2 of about 3 keys"},
	} {
		source := serve(t, func(command string, _ int) string {
			return map[string]string{"DBSIZE": ":3\r\n", "INFO": "-NOPERM of INFO\r\n",
				"GETRANGE": "$3\r\n0.5\r\n", "PTTL": ":-1\r\n",
				"SCAN": "*2\r\n$1\r\n0\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"}[command]
		})
		target := serve(t, func(command string, i int) string {
			switch {
			case command == "INFO":
				return "-NOPERM of INFO\r\n"
			case command == "SET" && i == 1:
				return "-" + refusal + "\r\n"
			}
			return "+OK\r\n"
		})
		var out bytes.Buffer
		m := importer{walk: walk{match: "*"}, addr: target.Addr(), out: &out}
		err := m.run("redis://"+source.Addr(), io.Discard)
		said := out.String()
		if err == nil || !strings.Contains(err.Error(), want[1]) || !strings.Contains(said, want[0]) ||
			!strings.Contains(said, "imported 2 of ") {
			t.Errorf("%s: %v\n%s", refusal, err, said)
		}
	}
}

// TestEndlessScan: a source whose SCAN never ends, in whatever way, ends the command.
func TestEndlessScan(t *testing.T) {
	keys := strings.Repeat("$1\r\nk\r\n", 1<<17)
	for name, answer := range map[string]func(i int) string{
		"the same cursor": func(int) string { return "*2\r\n$1\r\n7\r\n*1\r\n$1\r\nk\r\n" },
		"other cursors, no keys": func(i int) string {
			return fmt.Sprintf("*2\r\n$7\r\n%07d\r\n*0\r\n", i+1)
		},
		"other cursors, too many": func(i int) string {
			return fmt.Sprintf("*2\r\n$7\r\n%07d\r\n*%d\r\n%s", i+1, 1<<17, keys)
		},
	} {
		w := walk{match: "*", total: 1}
		w.client = serve(t, func(command string, i int) string {
			if command == "SCAN" {
				return answer(i)
			}
			return ":1\r\n"
		})
		ended := make(chan error, 2)
		keys := make(chan []string)
		go func() {
			w.scan(context.Background(), func(err error) { ended <- err }, keys)
			ended <- nil
		}()
		go func() {
			for range keys {
			}
		}()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "does not come to an end") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(testwait.Limit):
			t.Fatalf("%s: it goes on", name)
		}
	}
}

// TestEndlessDump: a source whose dump of a filter never ends, though each chunk of it is taken,
// ends the command.
func TestEndlessDump(t *testing.T) {
	for name, iterators := range map[string][]int64{"the same": {1, 9, 9}, "an earlier one": {1, 100,
		50}, "below zero": {1, -5}} {
		m := importer{out: new(bytes.Buffer)}
		m.client = serve(t, func(command string, i int) string {
			if command != "BF.SCANDUMP" {
				return "+MBbloom--\r\n"
			}
			return fmt.Sprintf("*2\r\n:%d\r\n$1\r\nx\r\n", iterators[min(i, len(iterators)-1)])
		})
		m.target = serve(t, func(command string, i int) string {
			if command == "TYPE" {
				return "+none\r\n"
			} else if i > len(iterators) {
				return "" // it has taken all
			}
			return ":0\r\n"
		})
		if _, err := m.copyFilter(&record{key: "k", expiry: -1}, -1); err == nil ||
			!strings.Contains(err.Error(), "does not come to an end") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPagesAreBounded: an answer to SCAN with very many keys is read in pages.
func TestPagesAreBounded(t *testing.T) {
	const n = 5*pageKeys + 1
	w := walk{match: "*", total: n}
	w.client = serve(t, func(string, int) string {
		return fmt.Sprintf("*2\r\n$1\r\n0\r\n*%d\r\n%s", n, strings.Repeat("$1\r\nk\r\n", n))
	})
	pages, sum := make(chan []string, n), 0
	w.scan(context.Background(), func(err error) { t.Error(err) }, pages)
	close(pages)
	for p := range pages {
		if sum += len(p); len(p) > 2*pageKeys {
			t.Errorf("a page of %d keys", len(p))
		}
	}
	if sum != n {
		t.Errorf("%d keys of %d", sum, n)
	}
}

// serve returns a client of a server that answers the command that comes i-th of those with its
// name; with "" it hangs up.
func serve(t *testing.T, answer func(command string, i int) string) *connect.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveConn(c, answer)
		}
	}()
	var flags connect.Flags
	client, err := flags.Client(l.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func serveConn(c net.Conn, answer func(command string, i int) string) {
	defer c.Close()
	in, counts := bufio.NewReader(c), make(map[string]int)
	for {
		var n int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
			return
		}
		command := ""
		for i := range n {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			word, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if i == 0 {
				command = strings.TrimSpace(word)
			}
		}
		reply := answer(command, counts[command])
		counts[command]++
		if _, err := c.Write([]byte(reply)); err != nil || reply == "" {
			return
		}
	}
}

// TestSourcePassword: it comes from the file or the environment.
func TestSourcePassword(t *testing.T) {
	t.Setenv(connect.SourceVariable, "of the environment")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "of the environment", file: "of the file"} {
		if got, err := (&importer{secretFile: path}).sourcePassword(); err != nil || got != want {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	if err := os.WriteFile(file, make([]byte, maxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&importer{secretFile: file}).sourcePassword(); err == nil {
		t.Error("a file without end")
	}
}
