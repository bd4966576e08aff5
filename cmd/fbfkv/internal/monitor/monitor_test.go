package monitor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

var quiet = slog.New(slog.DiscardHandler)

// metricName matches the figures that a file in packaging refers to.
var metricName = regexp.MustCompile(`\bfbfkv_[a-z_]+`)

// watched is a monitor with the server that it watches.
type watched struct {
	*Monitor
	t      *testing.T
	client *redis.Client
}

// start runs a server and its monitor, which is not told of it yet.
func start(t *testing.T, o Options) (w *watched, ready func()) {
	t.Helper()
	return startNode(t, o, nil)
}

// startNode starts a server that is a node of a cluster, unless that is nil.
func startNode(t *testing.T, o Options, cluster *commands.Cluster,
	change ...func(*server.Options)) (w *watched, ready func()) {
	t.Helper()
	o.Addr, o.Logger = cmp.Or(o.Addr, "127.0.0.1:0"), quiet
	m, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	st, err := store.Open(store.Options{Dir: t.TempDir(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	config := server.DefaultConfig()
	config.Port, config.BackupDir, config.Cluster.NodeTimeout = 0, t.TempDir(), 10*time.Minute
	listeners, err := server.Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	options := server.Options{Store: st, Config: config, Cluster: cluster, Logger: quiet}
	for _, c := range change {
		c(&options)
	}
	s := server.New(options)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listeners...) }()
	c := redis.NewClient(&redis.Options{Addr: listeners[0].Addr().String(), DisableIdentity: true,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, MaxRetries: -1}) // each command is sent once
	t.Cleanup(func() {
		c.Close()
		s.Stop(true)
		<-served
		m.Stopping()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &watched{m, t, c}, func() { m.Ready(s, st, nil) }
}

// get returns a page's status and text.
func (w *watched) get(path string) (int, string) {
	w.t.Helper()
	r, err := http.Get("http://" + w.Addr() + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// value returns what /metrics shows under a name with its labels.
func (w *watched) value(name string) float64 {
	w.t.Helper()
	_, text := w.get("/metrics")
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				w.t.Fatal(err)
			}
			return f
		}
	}
	w.t.Errorf("/metrics does not show %s", name)
	return -1
}

// do sends commands whose replies may be errors.
func (w *watched) do(commands ...string) {
	for _, c := range commands {
		var args []any
		for _, word := range strings.Fields(c) {
			args = append(args, word)
		}
		w.client.Do(w.t.Context(), args...)
	}
}

func TestFigures(t *testing.T) {
	w, ready := start(t, Options{Version: "1.2.3", Revision: "abc"})
	ready()
	if got := w.value("fbfkv_backup_last_success_timestamp_seconds"); got != 0 {
		t.Errorf("there was a backup: %v", got)
	}
	w.do("BACKUP monday", "CTABLE CREATE clicks PREFIX click: MODE APPROX WINDOW 60000 ERROR 0.0001",
		"CINCRBY click:a one 1", "CINCRBY click:a one 1", "CINCRBY click:a two 1",
		"CINCRBY page one 1", "CINCRBY page one 1", "CINCRBY page one 2", "CINCRBY page two 1 AT 1", "GET",
		"NOSUCH")
	for name, want := range map[string]float64{
		`fbfkv_build_info{goversion="` + runtime.Version() + `",revision="abc",version="1.2.3"}`: 1,
		`fbfkv_connected_clients`:                                           1,
		`fbfkv_connections_total`:                                           1,
		`fbfkv_connections_rejected_total`:                                  0,
		`fbfkv_commands_total{command="cincrby"}`:                           7,
		`fbfkv_commands_failed_total{command="cincrby"}`:                    2,
		`fbfkv_commands_rejected_total{command="get"}`:                      1,
		`fbfkv_command_latency_seconds_count{command="cincrby"}`:            7,
		`fbfkv_command_latency_seconds_bucket{command="cincrby",le="+Inf"}`: 7,
		`fbfkv_error_replies_total{prefix="STALE"}`:                         1,
		`fbfkv_error_replies_total{prefix="MISMATCH"}`:                      1,
		`fbfkv_keys`:                2,
		`fbfkv_frozen`:              0,
		`fbfkv_disk_full`:           0,
		`fbfkv_disk_min_free_bytes`: 64 << 20,
		`fbfkv_table_window_seconds{table="clicks"}`:   60,
		`fbfkv_table_skew_seconds{table="clicks"}`:     5,
		`fbfkv_table_exact{table="clicks"}`:            0,
		`fbfkv_table_exact{table="default"}`:           1,
		`fbfkv_table_fpp_target_ratio{table="clicks"}`: 0.0001,
		`fbfkv_table_applied_total{table="clicks"}`:    2,
		`fbfkv_table_duplicates_total{table="clicks"}`: 1,
		`fbfkv_table_ids_remembered{table="clicks"}`:   2,
		`fbfkv_table_applied_total{table="default"}`:   1,
		`fbfkv_table_confirmed_total{table="default"}`: 1,
		`fbfkv_table_stale_total{table="default"}`:     1,
	} {
		if got := w.value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"fbfkv_network_receive_bytes_total", "fbfkv_network_transmit_bytes_total",
		"fbfkv_filter_memory_bytes",
		"fbfkv_oplog_written_bytes_total", "fbfkv_disk_bytes", `fbfkv_table_generations{table="clicks"}`,
		`fbfkv_table_refresh_period_seconds{table="clicks"}`, `fbfkv_table_fpp_ratio{table="clicks"}`,
		"fbfkv_start_timestamp_seconds", "process_resident_memory_bytes", "go_goroutines",
		`fbfkv_command_latency_seconds_sum{command="cincrby"}`,
		"fbfkv_disk_free_bytes", "fbfkv_backup_last_success_timestamp_seconds",
		"fbfkv_fsync_latency_seconds_sum",
		"fbfkv_fsync_latency_seconds_count", `fbfkv_fsync_latency_seconds_bucket{le="+Inf"}`} {
		if got := w.value(name); got <= 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got := w.value(`fbfkv_table_fpp_ratio{table="clicks"}`); got > 0.0001 {
		t.Errorf("the effective error %v is above the target", got)
	}
}

// TestLint holds the names and texts to Prometheus' conventions.
func TestLint(t *testing.T) {
	w, ready := start(t, Options{})
	ready()
	w.do("CINCRBY k op 1", "NOSUCH")
	problems, err := testutil.CollectAndLint((*collector)(w.Monitor))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestSeriesAreBounded calls with many keys, opids, unknown commands and clients:
// no name that a client makes up becomes a label.
func TestSeriesAreBounded(t *testing.T) {
	w, ready := start(t, Options{})
	ready()
	call := func(from, to int) {
		for i := from; i < to; i++ {
			w.do(fmt.Sprintf("CINCRBY key-%d op-%d 1", i, i), fmt.Sprintf("NOSUCH-%d x", i),
				fmt.Sprintf("CLIENT SETNAME name-%d", i),
				fmt.Sprintf("FBF.ADD filter-%d x", i), fmt.Sprintf("CTABLE INFO nosuch-%d", i))
		}
	}
	call(0, 10)
	before := testutil.CollectAndCount((*collector)(w.Monitor))
	call(10, 60)
	if after := testutil.CollectAndCount((*collector)(w.Monitor)); after != before {
		t.Errorf("%d series, after more of the same %d", before, after)
	}
}

func TestReadiness(t *testing.T) {
	w, ready := start(t, Options{})
	expect := func(when string, status int, text string) {
		t.Helper()
		if got, body := w.get("/healthz"); got != 200 {
			t.Errorf("%s: /healthz: %d %s", when, got, body)
		}
		got, body := w.get("/readyz")
		if got != status || !strings.Contains(body, text) {
			t.Errorf("%s: /readyz: %d %s, want %d %s", when, got, body, status, text)
		}
		_, body = w.get("/metrics")
		if shown := strings.Contains(body, "fbfkv_keys "); shown != (status == 200) ||
			!strings.Contains(body, "go_goroutines") {
			t.Errorf("%s: figures are shown: %v", when, shown)
		}
	}
	expect("during recovery", 503, "the data directory is being opened")
	ready()
	expect("when ready", 200, "ready")
	w.Stopping()
	expect("while it stops", 503, "the server stops")
}

func TestProfiles(t *testing.T) {
	for _, on := range []bool{false, true} {
		w, _ := start(t, Options{Pprof: on})
		status, text := w.get("/debug/pprof/goroutine?debug=1")
		if on != (status == 200 && strings.Contains(text, "goroutine profile:")) {
			t.Errorf("pprof %v: %d", on, status)
		}
		if status, _ := w.get("/debug/pprof/cmdline"); status != 404 {
			t.Errorf("pprof %v shows the command line: %d", on, status)
		}
	}
}

func TestStartErrors(t *testing.T) {
	w, _ := start(t, Options{})
	for addr, want := range map[string]string{
		w.Addr():      "the port is in use by another process",
		"192.0.2.1:0": "this machine has no such address",
	} {
		_, err := Start(Options{Addr: addr, Logger: quiet})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "metrics-addr "+addr) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

// TestDashboardNamesFigures expects every figure to exist that the dashboard and the
// alerts in packaging and the guide to monitoring name.
func TestDashboardNamesFigures(t *testing.T) {
	w, ready := start(t, Options{})
	ready()
	w.do("CINCRBY k op 1", "CINCRBY k op 1", "NOSUCH")
	_, text := w.get("/metrics")
	described := make(chan *prometheus.Desc, 1000)
	(*collector)(w.Monitor).Describe(described)
	close(described)
	for d := range described { // some are not shown yet
		text += strings.ReplaceAll(d.String(), `fqName: "`, "\n") + "\n"
	}
	text = strings.ReplaceAll(text, `", help:`, " help:")
	files, err := filepath.Glob("../../../../packaging/*/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in packaging: %v", err)
	}
	found := 0
	for _, f := range append(files, "../../../../docs/guide/monitoring.md") {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(b), -1) {
			found++
			if !strings.Contains(text, "\n"+name+" ") && !strings.Contains(text, "\n"+name+"{") &&
				name != "fbfkv_pebble_" {
				t.Errorf("%s refers to %s, which is not shown", f, name)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d figures are referred to: were the files found?", found)
	}
}

// TestAlerts: each alert says how urgent it is and is in the guide, and promtool finds
// that each fires when it should, and only then.
func TestAlerts(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("../../../..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	alerts, rules := read("packaging/prometheus/alerts.yml"), read("packaging/prometheus/alerts_test.yml")
	guide := read("docs/guide/monitoring.md")
	found := strings.Split(alerts, "- alert: ")[1:]
	for _, alert := range found {
		name, _, _ := strings.Cut(alert, "\n")
		severity := regexp.MustCompile(`severity: (critical|warning)\n`).FindStringSubmatch(alert)
		if severity == nil {
			t.Errorf("%s has no severity", name)
			continue
		}
		if !strings.Contains(guide, "| `"+name+"` ("+severity[1]+") |") {
			t.Errorf("the guide does not list %s as %s", name, severity[1])
		}
		if !strings.Contains(rules, `alertname="`+name+`", severity="`+severity[1]+`"`) {
			t.Errorf("no test expects %s", name)
		}
	}
	if n := strings.Count(guide, "| `Fbfkv"); n != len(found) || n == 0 {
		t.Errorf("the guide lists %d alerts, and there are %d", n, len(found))
	}
	if _, err := exec.LookPath("promtool"); err != nil && os.Getenv("FBFKV_CI") == "" {
		t.Skip("promtool is not installed: install Debian's package prometheus")
	}
	c := exec.Command("promtool", "test", "rules", "alerts_test.yml")
	c.Dir = "../../../../packaging/prometheus"
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestDashboard: every panel says what it shows, the first ones are whether all is well,
// and rates of errors, of which few matter beside many, have a logarithmic axis.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../../../packaging/grafana/fbfkv.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Description, Type string
			FieldConfig              struct {
				Defaults struct {
					Custom struct{ ScaleDistribution struct{ Type string } }
				}
			}
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	for i, title := range []string{"Up", "Ready", "Frozen", "Disk full"} {
		if p := board.Panels[i]; p.Title != title || p.Type != "stat" {
			t.Errorf("panel %d is %s %q, want %q", i, p.Type, p.Title, title)
		}
	}
	for _, p := range board.Panels {
		if p.Description == "" {
			t.Errorf("%q has no description", p.Title)
		}
		errors := strings.Contains(p.Title, "Error") || strings.Contains(p.Title, "Refused")
		if axis := p.FieldConfig.Defaults.Custom.ScaleDistribution.Type; (axis == "log") != errors {
			t.Errorf("%q has the axis %q", p.Title, axis)
		}
	}
}
