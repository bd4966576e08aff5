package integration

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestLimiter: a limiter of the library throttled, with fbfkv behind it, lets a request that is sent again
// in without counting it, though the server's answer to the first one is lost, and limits the others.
func TestLimiter(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startRelay(t, s)
	example := buildGoClient("../clients/go/limiter", "example")(t)[0]
	// Three at once, and the next one after 100 s.
	cmd := exec.Command(example, "-addr", p.Addr().String(), "-listen", "127.0.0.1:0", "-burst", "2", "-period",
		"6000s")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		user, id  string
		cuts      int // answers of the server that are lost
		status    int
		remaining string
	}{
		{"ann", "1", 0, 200, "2"},
		{"ann", "1", 0, 200, "2"}, // again
		{"ann", "2", 2, 200, "1"},
		{"ann", "2", 1, 200, "1"},
		{"ann", "3", 0, 200, "0"},
		{"ann", "4", 1, 429, "0"},
		{"ann", "3", 0, 200, "0"}, // it was let in, and is now
		{"ann", "1", 0, 200, "2"},
		{"ann", "4", 0, 429, "0"}, // a refusal is not remembered, but nothing is left
		{"ann", "", 0, 429, "0"},
		{"ann", strings.Repeat("x", 513), 0, 429, "0"},
		{"bob", "1", 0, 200, "2"},
		{"bob", "", 0, 200, "1"}, // without an id each one counts
		{"bob", "", 0, 200, "0"},
		{"bob", "", 0, 429, "0"},
	} {
		p.set(func(p *relay) { p.cuts = step.cuts })
		request, err := http.NewRequest("GET", "http://"+strings.TrimSpace(address), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-User", step.user)
		if step.id != "" {
			request.Header.Set("X-Request-Id", step.id)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		h := response.Header
		if response.StatusCode != step.status || h.Get("X-Ratelimit-Remaining") != step.remaining ||
			h.Get("X-Ratelimit-Limit") != "3" {
			t.Errorf("request %d, %+v: %s, %v, %s", i, step, response.Status, h, body)
		}
		after, _ := strconv.Atoi(h.Get("Retry-After"))
		if step.status == 429 && (after < 1 || after > 100) {
			t.Errorf("request %d is to be sent again after %q", i, h.Get("Retry-After"))
		}
	}
}
