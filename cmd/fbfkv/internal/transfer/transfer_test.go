package transfer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
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
		"": false, "-0": false, "+1": false, "01": false, " 1": false, "1.0": false,
		"9223372036854775808": false, "0x1": false, "1_0": false,
	} {
		r := record{value: text}
		if _, why := r.counter(); (why == "") != valid {
			t.Errorf("%q: %s", text, why)
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
		case <-time.After(2 * time.Minute):
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
