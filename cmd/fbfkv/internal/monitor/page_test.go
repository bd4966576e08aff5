package monitor

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// ask requests a path with headers, the Host among them, and returns the response, and
// its text.
func (w *watched) ask(method, path string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	_, port, _ := net.SplitHostPort(w.Addr())
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://127.0.0.1:"+port+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer, string(text)
}

// pagePaths are all that the page consists of.
var pagePaths = []string{"/", "/page.css", "/page.js", "/uplot.css", "/uplot.js", "/status"}

// TestPagePolicy: the browser is told to let the page use nothing from elsewhere, nor
// anything written into the page itself; and the page asks for nothing of either kind.
func TestPagePolicy(t *testing.T) {
	w, ready := start(t, Options{})
	ready()
	for _, path := range pagePaths {
		answer, text := w.ask("GET", path)
		policy := answer.Header.Get("Content-Security-Policy")
		if answer.StatusCode != 200 || text == "" || !strings.HasPrefix(policy, "default-src 'none';") ||
			regexp.MustCompile(`unsafe|\*|http`).MatchString(policy) {
			t.Errorf("%s: %s with the policy %q", path, answer.Status, policy)
		}
		if answer.Header.Get("X-Content-Type-Options") != "nosniff" ||
			answer.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: headers %v", path, answer.Header)
		}
		if path != "/status" && !strings.HasPrefix(path, "/uplot") && regexp.MustCompile(`https?:|['"(]//|<style|<script>|\son[a-z]+=|style=`).MatchString(text) {
			t.Errorf("%s asks for something from elsewhere, or has code in the page", path)
		}
		if answer, _ := w.ask("POST", path); answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s", path, answer.Status)
		}
	}
}

// TestPageHost: on the loopback the page answers only requests that mean the loopback, so
// that no page from elsewhere reads it through a name of its own (DNS rebinding).
func TestPageHost(t *testing.T) {
	w, ready := start(t, Options{Pprof: true})
	ready()
	for _, path := range append([]string{"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/symbol"}, pagePaths...) {
		for host, want := range map[string]int{
			"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1": 200, "127.8.9.1:80": 200, "[::1]:9379": 200, "[::1]": 200,
			"evil.example": 421, "evil.example:9379": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "10.0.0.1:9379": 421,
		} {
			answer, text := w.ask("GET", path, "Host", host)
			if answer.StatusCode != want || want == 421 && text != needsLocal+"\n" {
				t.Errorf("%s of %s: %s", path, host, answer.Status)
			}
		}
	}
}

// TestPageArguments: keys, arguments and what clients call themselves are for the
// loopback alone; the figures and the names of commands are for all.
func TestPageArguments(t *testing.T) {
	for addr, asked := range map[string][]string{"127.0.0.1:0": nil, "0.0.0.0:0": {"Host", "fbfkv.example"}} {
		w, ready := start(t, Options{Addr: addr})
		var s status
		look := func(headers ...string) string {
			t.Helper()
			w.last.mu.Lock()
			w.last.at = time.Time{} // not one that was made for somebody before
			w.last.mu.Unlock()
			answer, text := w.ask("GET", "/status", headers...)
			s = status{}
			if err := json.Unmarshal([]byte(text), &s); err != nil || answer.StatusCode != 200 {
				t.Fatal(answer.Status, err)
			}
			return text
		}
		if look(asked...); s.State != "the data directory is being opened" || s.Info != "" {
			t.Errorf("%s: %+v before the server is ready", addr, s)
		}
		ready()
		w.do("CONFIG SET slowlog-log-slower-than 0", "CLIENT SETNAME secret-name", "CINCRBY secret-key secret-op 1")
		local := asked == nil
		text := look(asked...)
		if s.State != "" || !strings.Contains(s.Info, "operations_applied:1\r\n") || s.Arguments != local {
			t.Errorf("%s: %s", addr, text)
		}
		for _, secret := range []string{"secret-key", "secret-op", "secret-name"} {
			if strings.Contains(text, secret) != local {
				t.Errorf("%s: %s is shown: %v", addr, secret, !local)
			}
		}
		if len(s.Slow) == 0 || s.Slow[0].Command != "cincrby" {
			t.Errorf("%s: slow are %+v", addr, s.Slow)
		}
		for _, header := range []string{"X-Forwarded-For", "Forwarded", "Via"} {
			if text := look(append(asked, header, "somebody")...); strings.Contains(text, "secret") || s.Arguments {
				t.Errorf("%s: %s is ignored", addr, header)
			}
		}
		for _, private := range []string{"config_file", "executable", "dir:"} {
			if strings.Contains(text, private) {
				t.Errorf("%s: a path is shown: %s", addr, private)
			}
		}
		w.Stopping()
		if look(asked...); s.State != "the server stops" {
			t.Errorf("%s: %+v while it stops", addr, s)
		}
	}
}
