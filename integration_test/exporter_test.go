package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestExporter scrapes the server with prometheus-redis-exporter, as a
// dashboard for Redis would: no error, and the figures it shows are ours.
func TestExporter(t *testing.T) {
	t.Parallel()
	requireProgram(t, "prometheus-redis-exporter", "install Debian's package prometheus-redis-exporter")
	s := startServer(t)
	c := s.dial()
	for i := range 7 {
		c.want(fmt.Sprintf(":%d", i+1), "CINCRBY", "page:home", fmt.Sprint("op-", i), "1")
	}
	c.want(":7", "CINCRBY", "page:home", "op-6", "1")
	c.want("+OK", "SET", "page:about", "5", "EX", "1000")
	c.do("NOSUCH")

	page := scrape(t, s, "-check-keys", "page:*", "-export-client-list", "-redis-only-metrics")
	for _, want := range []string{
		`redis_up 1`,
		`redis_exporter_last_scrape_error{err=""} 0`,
		`redis_db_keys{db="db0"} 2`,
		`redis_db_keys_expiring{db="db0"} 1`,
		`redis_key_value{db="db0",key="page:home"} 7`,
		`redis_commands_total{cmd="cincrby"} 8`,
		`redis_commands_failed_calls_total{cmd="cincrby"} 0`,
		`redis_connected_clients [12]`,
		`redis_config_maxclients 10000`,
		`redis_aof_enabled 1`,
		`redis_memory_used_bytes [1-9].*`,
		`redis_memory_used_rss_bytes [1-9].*`,
		`redis_uptime_in_seconds \d+`,
		`redis_commands_processed_total [1-9]\d*`,
		`redis_commands_duration_seconds_total{cmd="cincrby"} .*[1-9].*`,
		`redis_connections_received_total [1-9]\d*`,
		`redis_net_input_bytes_total [1-9]\d*`,
		`redis_rdb_last_bgsave_status 1`,
		`redis_slowlog_length \d+`,
		`redis_instance_info{.*redis_version="7\..*} 1`,
	} {
		if !regexp.MustCompile(`(?m)^` + strings.ReplaceAll(want, "{", `\{`) + `$`).MatchString(page) {
			t.Errorf("the exporter does not show %s", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// scrape starts the exporter, reads its metrics once, and expects that it has
// nothing to complain of.
func scrape(t *testing.T, s *server, args ...string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	cmd := exec.Command("prometheus-redis-exporter", append([]string{"-redis.addr", "redis://" + s.address(),
		"-web.listen-address", addr}, args...)...)
	log := newLogBuffer()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var page string
	eventually(t, patience, "the exporter serves", func() bool {
		response, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		page = string(body)
		return err == nil && response.StatusCode == http.StatusOK
	})
	for _, line := range strings.Split(log.String(), "\n") {
		if strings.Contains(line, "level=error") || strings.Contains(line, "level=warn") {
			t.Errorf("the exporter says %s", line)
		}
	}
	return page
}
