package bench

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestServerProfile takes a profile during a load, and tells when it cannot:
// before the load if that can be known, and else with the load's own result.
func TestServerProfile(t *testing.T) {
	recorded, err := os.ReadFile("../cpuprofile/testdata/always-16.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		w.Write(recorded)
	}))
	defer web.Close()
	s := newCounterServer(t)
	out, err := runCommand(t, s.Addr().String(), "--duration", "1600ms", "--profile", web.URL)
	if err != nil || asked != "seconds=1" {
		t.Fatalf("%v, asked for %s: %s", err, asked, out)
	}
	for _, want := range []string{"throughput", "processors, of which", "22 %  kernel: network"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, err = runCommand(t, s.Addr().String(), "--duration", "1600ms", "--profile", web.URL, "--json")
	var r Result
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || r.Profile == nil || r.Profile.Shares["network"] < 0.2 || r.Profile.Processors < 0.4 {
		t.Errorf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"--duration", "300ms", "--profile", web.URL}, {"--duration", "1600ms", "--profile", "127.0.0.1:1"}} {
		calls := s.count()
		out, err := runCommand(t, append(args, s.Addr().String())...)
		if err == nil || !strings.Contains(err.Error(), "--profile") || out != "" || s.count() != calls {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/pprof/" {
			http.NotFound(w, r)
		}
	}))
	defer broken.Close()
	out, err = runCommand(t, s.Addr().String(), "--duration", "1600ms", "--profile", broken.URL)
	if err == nil || !strings.Contains(err.Error(), "taking a profile") || !strings.Contains(out, "throughput") {
		t.Errorf("%v: %s", err, out)
	}
}
