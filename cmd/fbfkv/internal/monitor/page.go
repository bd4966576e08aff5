package monitor

import (
	"embed"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

//go:embed page
var pageFiles embed.FS

// pageRoutes are the files of the status page, by where they are served. uPlot is
// github.com/leeoniya/uPlot 1.6.32, as npm has it.
var pageRoutes = map[string]struct{ file, kind string }{
	"/{$}":       {"index.html", "text/html; charset=utf-8"},
	"/page.css":  {"page.css", "text/css; charset=utf-8"},
	"/page.js":   {"page.js", "text/javascript; charset=utf-8"},
	"/uplot.css": {"uplot/uPlot.min.css", "text/css; charset=utf-8"},
	"/uplot.js":  {"uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8"},
}

// pagePolicy lets the page use what this server sends, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " +
	"'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// pageSections are the sections of INFO for the page. INFO server is left out: it has paths.
const pageSections = "clients memory persistence stats replication cluster keyspace fbf"

const (
	statusAge  = 400 * time.Millisecond // how old a status may be before it is made anew
	maxSlow    = 12                     // slow batches shown
	maxShown   = 300                    // bytes of a slow batch's command
	needsLocal = "this page answers only to localhost: the name in the address is another"
)

// status is what the page asks for again and again.
type status struct {
	Version string `json:"version"`
	State   string `json:"state"`   // why clients are not served; "" if they are
	Started int64  `json:"started"` // Unix milliseconds
	Now     int64  `json:"now"`
	Info    string `json:"info"` // as INFO answers; "" without a server
	Slow    []slow `json:"slow"` // newest first
	// Arguments says that Slow has them: the monitor listens on the loopback alone.
	Arguments bool `json:"arguments"`
}

// slow is a slow batch. Text and Client are for the loopback alone: the first has keys,
// and what a client calls itself may be anything.
type slow struct {
	At      int64  `json:"at"` // Unix milliseconds
	Usec    int64  `json:"usec"`
	Command string `json:"command"`
	Text    string `json:"text,omitempty"`
	Client  string `json:"client,omitempty"`
}

// lastStatus is the status that all who look share.
type lastStatus struct {
	mu   sync.Mutex
	at   time.Time
	text [2][]byte // without arguments, and with them
}

// addPage adds the status page. Nothing on it changes anything.
func (m *Monitor) addPage(mux *http.ServeMux, version string) {
	for path, f := range pageRoutes {
		text, err := pageFiles.ReadFile("page/" + f.file)
		if err != nil {
			panic(err) // the program was built without it
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			w.Write(text)
		})
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(m.status(version, m.loopback() && !forwarded(r)))
	})
}

// guard refuses all requests whose Host is another than localhost if the monitor listens on
// the loopback alone: a name of an attacker's, made to mean this machine, would let a page
// of theirs read ours (DNS rebinding).
func (m *Monitor) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if m.loopback() && !isLocal(r.Host) {
			http.Error(w, needsLocal, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether only this machine can reach the monitor.
func (m *Monitor) loopback() bool {
	addr, ok := m.listener.Addr().(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// isLocal reports whether a Host header, with or without a port, names the loopback.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// forwarded reports whether a request says that a proxy sends it, for somebody elsewhere.
func forwarded(r *http.Request) bool {
	return r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" ||
		r.Header.Get("Via") != ""
}

// status returns the present status as JSON, or one that is statusAge old at most, so
// that many pages cost no more than one.
func (m *Monitor) status(version string, arguments bool) []byte {
	l := &m.last
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.at.IsZero() || now.Sub(l.at) >= statusAge {
		l.at = now
		s := m.look(version, now)
		l.text[1] = s.encode()
		for i := range s.Slow {
			s.Slow[i].Text, s.Slow[i].Client = "", ""
		}
		s.Arguments = false
		l.text[0] = s.encode()
	}
	if arguments {
		return l.text[1]
	}
	return l.text[0]
}

func (s *status) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // of numbers and strings there is none
	}
	return b
}

// look gathers a status.
func (m *Monitor) look(version string, now time.Time) *status {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := &status{Version: version, State: m.notReady(), Now: now.UnixMilli(), Arguments: true, Slow: []slow{}}
	if m.server == nil {
		return s
	}
	s.Started = m.server.Figures().Started.UnixMilli()
	s.Info = m.server.Info(pageSections)
	for _, b := range m.server.SlowBatches(maxSlow) {
		text := strings.ToValidUTF8(strings.Join(b.Args, " "), "?")
		client := b.Addr
		if b.Name != "" {
			client += " " + b.Name
		}
		s.Slow = append(s.Slow, slow{At: b.At.UnixMilli(), Usec: b.Took.Microseconds(), Command: b.Command,
			Text: text[:min(len(text), maxShown)], Client: client})
	}
	return s
}
