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

// TestExpiredOnTheWay: a key whose time is up when its page is to be written is not, and
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
		"": false, "-0": false, "+1": false, "01": false, " 1": false, "1.0": false, "9223372036854775808": false, "0x1": false, "1_0": false,
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
		"the same cursor":         func(int) string { return "*2\r\n$1\r\n7\r\n*1\r\n$1\r\nk\r\n" },
		"other cursors, no keys":  func(i int) string { return fmt.Sprintf("*2\r\n$7\r\n%07d\r\n*0\r\n", i+1) },
		"other cursors, too many": func(i int) string { return fmt.Sprintf("*2\r\n$7\r\n%07d\r\n*%d\r\n%s", i+1, 1<<17, keys) },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serveScan(c, answer)
			}
		}()
		var w walk
		w.match, w.total = "*", 1
		var flags connect.Flags
		if w.client, err = flags.Client(l.Addr().String(), time.Minute); err != nil {
			t.Fatal(err)
		}
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
		w.client.Close()
	}
}

// serveScan answers SCAN, and DBSIZE with 1.
func serveScan(c net.Conn, answer func(i int) string) {
	defer c.Close()
	in, scans := bufio.NewReader(c), 0
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
		reply := ":1\r\n"
		switch command {
		case "SCAN":
			reply = answer(scans)
			scans++
		}
		if _, err := c.Write([]byte(reply)); err != nil {
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
