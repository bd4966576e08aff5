package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/redis/go-redis/v9"
)

// TestUsersOfClients logs in with go-redis and redis-cli, in RESP2 and RESP3, as
// a user who may count pages and no more; a changed rule acts at once, and a
// restart changes nothing.
func TestUsersOfClients(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	acls := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(acls, []byte("user default on >root ~* &* +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--aclfile", acls)
	connect := func(user, password string, protocol int) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: s.address(), Username: user, Password: password,
			Protocol: protocol, MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		return c
	}
	admin := connect("", "root", 3)
	if err := admin.ACLSetUser(ctx, "web", "on", ">horse", "~page:*", "+cincrby", "+cget", "+hello",
		"+client|setinfo").Err(); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []int{2, 3} {
		web := connect("web", "horse", protocol)
		if v, err := web.Do(ctx, "CINCRBY", "page:home", "req-1", 1).Int(); v != 1 || err != nil {
			t.Errorf("RESP%d: CINCRBY of the own page: %d, %v", protocol, v, err)
		}
		if err := web.Do(ctx, "CINCRBY", "other", "req-1", 1).Err(); err == nil ||
			!strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("RESP%d: CINCRBY of another key: %v", protocol, err)
		}
		if err := web.FlushAll(ctx).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("RESP%d: FLUSHALL: %v", protocol, err)
		}
		if err := connect("web", "donkey", protocol).Do(ctx, "CGET", "page:home").Err(); err == nil ||
			!strings.HasPrefix(err.Error(), "WRONGPASS") {
			t.Errorf("RESP%d: a wrong password: %v", protocol, err)
		}
	}
	log, err := admin.ACLLog(ctx, 10).Result()
	if err != nil || len(log) < 3 || log[0].Username != "web" {
		t.Errorf("ACL LOG: %+v, %v", log, err)
	}
	if got, err := admin.ACLDryRun(ctx, "web", "cget", "secret").Result(); err != nil ||
		!strings.Contains(got, "'secret' key") {
		t.Errorf("ACL DRYRUN: %q, %v", got, err)
	}
	if err := admin.Do(ctx, "ACL", "SAVE").Err(); err != nil {
		t.Error(err)
	}
	s.stop()
	s.start()
	if v, err := connect("web", "horse", 3).Do(ctx, "CGET", "page:home").Int(); v != 1 || err != nil {
		t.Errorf("after a restart: %d, %v", v, err)
	}
	if err := connect("", "", 3).Ping(ctx).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}

	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	for _, tt := range []struct{ args, want string }{
		{"--user web --pass horse CGET page:home", "1"},
		{"-3 --user web --pass horse CGET page:home", "1"},
		{"--user web --pass horse CGET other", "NOPERM this user has no permissions to access one of the " +
			"keys used as arguments"},
		{"--user web --pass donkey CGET page:home", "NOAUTH Authentication required."},
		{"-a root ACL WHOAMI", "default"},
	} {
		out, _ := exec.Command("redis-cli", append([]string{"-p", s.port(), "--no-auth-warning"},
			strings.Fields(tt.args)...)...).CombinedOutput()
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("redis-cli %s prints %q, want %q", tt.args, out, tt.want)
		}
	}
}

// TestCommandsOfRedis asks a real Redis for its commands, with their categories.
// Rules and rename-command may name every one of them here, and a category has
// the commands here that it has there.
func TestCommandsOfRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	theirs := redis.NewClient(&redis.Options{Addr: startRedis(t)})
	s := startServer(t)
	ours := redis.NewClient(&redis.Options{Addr: s.address()})
	defer theirs.Close()
	defer ours.Close()
	members := func(c *redis.Client, category string) map[string]bool {
		names, err := c.Do(ctx, "ACL", "CAT", category).StringSlice()
		if err != nil {
			t.Fatalf("ACL CAT %s: %v", category, err)
		}
		set := map[string]bool{}
		for _, name := range names {
			set[name] = true
		}
		return set
	}
	categories, err := theirs.Do(ctx, "ACL", "CAT").StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, category := range categories {
		here := members(ours, category)
		for name := range members(theirs, category) {
			known[name] = true
			if !here[name] {
				t.Errorf("@%s lacks %s", category, name)
			}
		}
	}
	for _, category := range categories {
		there := members(theirs, category)
		for name := range members(ours, category) {
			if known[name] && !there[name] {
				t.Errorf("@%s has %s, and not in Redis", category, name)
			}
		}
	}
	if len(known) < 350 {
		t.Fatalf("Redis has %d commands only", len(known))
	}
	for name := range known {
		if err := ours.Do(ctx, "ACL", "SETUSER", "x", "-"+name).Err(); err != nil {
			t.Error(err)
		}
		if strings.Contains(name, "|") {
			continue
		}
		if _, err := commands.Commands.Rename(name, "another-name"); err != nil {
			t.Errorf("rename-command %s: %v", name, err)
		}
	}
}
