package cpuprofile

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestFetch takes profiles from a server of the test's, by address and by URL.
func TestFetch(t *testing.T) {
	recorded, err := os.ReadFile("testdata/always-16.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		switch r.URL.Path {
		case "/debug/pprof/profile":
			w.Write(recorded)
		case "/debug/pprof/broken":
			w.Write([]byte("no profile"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	for _, tt := range []struct {
		address, want string
		seconds       int
	}{
		{address, "/debug/pprof/profile?seconds=3", 3},
		{s.URL + "/", "/debug/pprof/profile?seconds=1", 0},
		{s.URL + "/debug/pprof/profile?a=b", "/debug/pprof/profile?a=b&seconds=2", 2},
	} {
		raw, p, err := Fetch(t.Context(), tt.address, tt.seconds)
		if err != nil || len(raw) != len(recorded) || len(p.Sample) == 0 || asked != tt.want {
			t.Errorf("%s: %v; asked for %s, want %s", tt.address, err, asked, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Fetch(ctx, address, 1); err == nil {
		t.Error("a profile came after the work was over")
	}
	for path, want := range map[string]string{"/debug/pprof/broken": "taking a profile", "/debug/pprof/none": "metrics-addr", "/x\x7f": "taking a profile"} {
		if _, _, err := Fetch(t.Context(), s.URL+path, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
