package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// stockFile is the configuration of Debian's package redis-server.
const stockFile = "/etc/redis/redis.conf"

// TestStockRedisConf starts with Debian's redis.conf as it is but for its paths,
// lists once what has no effect, and keeps the file as it is when it is rewritten.
func TestStockRedisConf(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-server", "install Debian's package redis-server")
	stock, err := os.ReadFile(stockFile)
	if err != nil {
		if os.Getenv("FBFKV_CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "redis.conf")
	if err := os.WriteFile(file, stock, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, file, "--logfile", "")
	if notices := strings.Count(s.log.String(), "have no effect"); notices != 1 {
		t.Errorf("%d notices:\n%s", notices, s.log)
	}
	for _, want := range []string{"tcp-backlog, daemonize, ", "databases 16, ", "appendonly no, ",
		"client-output-buffer-limit pubsub"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, s.log)
		}
	}
	c := s.dial()
	c.want(":5", "CINCRBY", "k", "first", "5")
	c.want(":5", "CINCRBY", "k", "first", "5")
	c.want("-ERR DB index is out of range", "SELECT", "1")
	c.want(`["databases" "1" "appendfsync" "everysec" "appendonly" "yes" "client-output-buffer-limit" "normal 0 0 0"]`,
		"CONFIG", "GET", "databases", "appendfsync", "appendonly", "client-output-buffer-limit")
	c.want("+OK", "CONFIG", "SET", "timeout", "5m")
	c.want("+OK", "CONFIG", "REWRITE")
	rewritten, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(stock), "\n")
	for i, line := range strings.Split(string(rewritten), "\n") {
		was := ""
		if i < len(lines) {
			was = lines[i]
		} else if strings.HasPrefix(line, "backup-dir ") {
			continue // of startServer
		}
		if strings.HasPrefix(line, "#") || line == was || line == "timeout 300" ||
			strings.HasPrefix(was, "dir ") || strings.HasPrefix(was, "port ") ||
			strings.HasPrefix(was, "logfile ") {
			continue
		}
		t.Errorf("line %d is %q, was %q", i+1, line, was)
	}
}

// TestEveryRedisDirective checks a file with all that a real Redis shows of its
// settings: none is unknown, and with its default none is refused.
func TestEveryRedisDirective(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: startRedis(t)})
	defer c.Close()
	settings, err := c.ConfigGet(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for name, value := range settings {
		if value == "" {
			value = `""`
		}
		fmt.Fprintf(&text, "%s %s\n", name, value)
	}
	file := filepath.Join(t.TempDir(), "redis.conf")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "--check-config", file).CombinedOutput()
	if err != nil || len(settings) < 150 {
		t.Errorf("%d settings: %v:\n%s", len(settings), err, out)
	}
}
