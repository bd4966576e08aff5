package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/store"
)

// TestACLFile reads, saves and reads again the users of a file: all of it or
// nothing, and connections of users who are gone are closed.
func TestACLFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.acl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("user web on nopass +@all ~*\nuser stay on nopass +@all ~*\n")
	s := start(t, "aclfile", path, "requirepass", "pw")
	admin, web, stay := s.dial(t), s.dial(t), s.dial(t)
	// requirepass counts: the file has no default
	admin.expect("-NOAUTH Authentication required.", "GET", "k")
	admin.expect("+OK", "AUTH", "pw")
	web.expect("+OK", "AUTH", "web", "x")
	stay.expect("+OK", "AUTH", "stay", "x")

	write("user web on +nope\nuser other\n")
	if got := admin.do("ACL", "LOAD"); !strings.Contains(got,
		path+":1: Error in applying operation '+nope'") {
		t.Errorf("ACL LOAD of a wrong file: %s", got)
	}
	web.expect(":1", "INCR", "k")
	admin.expect("[default stay web]", "ACL", "USERS")

	write("user web on nopass +get ~*\nuser stay on nopass +@all ~*\n")
	admin.expect("+OK", "ACL", "LOAD")
	if got := web.do("INCR", "k"); !strings.HasPrefix(got, "EOF") && !strings.HasPrefix(got, "error") &&
		!strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("a changed user's connection goes on: %s", got)
	}
	stay.expect(":2", "INCR", "k")

	admin.expect("+OK", "ACL", "SETUSER", "new", "on", ">secret", "~x", "+get")
	admin.expect("+OK", "ACL", "SAVE")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "\nuser new on #") ||
		strings.Contains(string(text), "secret") {
		t.Errorf("the saved file: %v\n%s", err, text)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the saved file has mode %v", info.Mode())
	}
	before := admin.do("ACL", "LIST")
	admin.expect("+OK", "ACL", "LOAD")
	admin.expect(before, "ACL", "LIST")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := admin.do("ACL", "LOAD"); !strings.HasPrefix(got, "-ERR") {
		t.Errorf("ACL LOAD without a file: %s", got)
	}
	if got := admin.do("ACL", "SAVE"); !strings.HasPrefix(got, "-ERR There was an error trying to save "+
		"the ACLs") {
		t.Errorf("ACL SAVE without a file: %s", got)
	}
}

// TestRelativeACLFile: its path begins in dir, as in Redis, which works there.
func TestRelativeACLFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "users.acl")
	if err := os.WriteFile(path, []byte("user web on nopass +@all ~*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "aclfile", "users.acl", "dir", dir)
	c := s.dial(t)
	c.expect("[default web]", "ACL", "USERS")
	c.expect("[aclfile users.acl]", "CONFIG", "GET", "aclfile")
	c.expect("+OK", "ACL", "SETUSER", "new")
	c.expect("+OK", "ACL", "SAVE")
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "\nuser new off") {
		t.Errorf("saved: %v\n%s", err, text)
	}
	if err := os.WriteFile(path, []byte("user other off\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.expect("+OK", "ACL", "LOAD")
	c.expect("[default other]", "ACL", "USERS")
	if _, err := configWith(t, "aclfile", "users.acl", "dir", t.TempDir()).OpenUsers(); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("no file in dir: %v", err)
	}
}

// TestFilesBesideTheData: a new data directory may hold the files that the settings
// name, for a relative aclfile begins there, but no others.
func TestFilesBesideTheData(t *testing.T) {
	dir := writeFiles(t, map[string]string{"etc/users.acl": "", "fb.log": ""})
	for _, logFile := range []string{"elsewhere", "fb.log"} {
		c := configWith(t, "dir", dir, "aclfile", "etc/users.acl", "logfile", logFile)
		o, err := c.StoreOptions()
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(o)
		if (logFile == "fb.log") != (err == nil) {
			t.Fatalf("log file %s: %v", logFile, err)
		}
		if err == nil {
			st.Close()
		}
	}
}

// startFile starts a server with a configuration file.
func startFile(t *testing.T, path string) *running {
	t.Helper()
	c := DefaultConfig()
	if err := ReadConfigFile(path, c); err != nil {
		t.Fatal(err)
	}
	listeners, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, Options{Store: openStore(t), Config: c, ConfigFile: path, Logger: quiet}, listeners...)
}

// TestUserLines: users in the configuration file, and how it is rewritten.
func TestUserLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf")
	const old = "port 0\n# people\nuser alice on >secret ~a* +@read\nuser \"bob\" off\ntimeout 5\n"
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startFile(t, path)
	cl := s.dial(t)
	cl.expect("[alice bob default]", "ACL", "USERS")
	cl.expect("+OK", "ACL", "SETUSER", "carl", "on", "(+get %R~x)")
	cl.expect(":1", "ACL", "DELUSER", "bob")
	cl.expect("+OK", "CONFIG", "REWRITE")
	const hash = `"#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"`
	const want = "port 0\n# people\nuser alice on " + hash + " ~a* resetchannels -@all +@read\n" +
		"user carl on resetchannels -@all (%R~x resetchannels -@all +get)\ntimeout 5\n"
	text, err := os.ReadFile(path)
	if err != nil || string(text) != want {
		t.Errorf("rewritten: %v\n got %q\nwant %q", err, text, want)
	}
	again := DefaultConfig()
	if err := ReadConfigFile(path, again); err != nil {
		t.Fatal(err)
	}
	users, err := again.OpenUsers()
	if err != nil || users.File() != s.commands.Users.File() {
		t.Errorf("read back: %v\n%s", err, users.File())
	}
	cl.expect("[]", "CONFIG", "GET", "user")
	if got := cl.do("CONFIG", "SET", "user", "x on"); !strings.HasPrefix(got, "-ERR Unknown option") {
		t.Errorf("CONFIG SET user: %s", got)
	}
}

// TestUserLinesAndIncludes: CONFIG REWRITE leaves to an included file the users that
// it defines, and is refused if one of them is another by now.
func TestUserLinesAndIncludes(t *testing.T) {
	const part, main = "user zoe on nopass\nuser bob on >pw\n", "port 0\nuser carl on >secret\nuser " +
		"default on nopass ~* &* +@all\n"
	writeFiles(t, map[string]string{"part": part, "conf": main + "include part\nuser adam off\n"})
	cl := startFile(t, "conf").dial(t)
	rewrite := func(reply, want string) {
		t.Helper()
		if got := cl.do("CONFIG", "REWRITE"); !strings.HasPrefix(got, reply) {
			t.Errorf("CONFIG REWRITE: %s, want %s", got, reply)
		}
		text, err := os.ReadFile("conf")
		included, _ := os.ReadFile("part")
		if err != nil || string(text) != want || string(included) != part {
			t.Errorf("%v\n got %q\nwant %q\nincluded: %q", err, text, want, included)
		}
	}
	const rules = " resetchannels -@all\n"
	carl := "user carl on " + hashOf("secret") + rules
	want := "port 0\n" + carl + "user default on nopass ~* &* +@all\ninclude part\nuser adam off" + rules
	rewrite("+OK", want)
	cl.expect("+OK", "ACL", "SETUSER", "bob", "+get")
	rewrite("-ERR Rewriting config file: an included file sets user too, and its lines add up: change "+
		"it there", want)
	cl.expect("+OK", "ACL", "SETUSER", "bob", "-get", "-@all")
	cl.expect(":1", "ACL", "DELUSER", "adam")
	cl.expect("+OK", "ACL", "SETUSER", "new")
	want = "port 0\n" + carl + "user default on nopass ~* &* +@all\nuser new off" + rules + "include part\n"
	rewrite("+OK", want)
	cl.expect(":1", "ACL", "DELUSER", "zoe")
	rewrite("-ERR Rewriting config file: an included file sets user too, and its lines add up: change "+
		"it there", want)
}

// TestWrongSecuritySettings are told at the start, without passwords.
func TestWrongSecuritySettings(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"user alice on >p +foo", "rule +foo of \"alice\": Unknown command or category name in ACL"},
		{"user alice on -foo", "rule -foo of \"alice\": Unknown command or category name in ACL"},
		{"user alice on \"~a b\"", "rule \"~a b\" of \"alice\": Syntax error"},
		{"user alice on secret", "user: \"alice\": Syntax error"},
		{"user alice >secret #12", "\"alice\": The password hash must be"},
		{"user alice on\nuser alice off", "Duplicate user found"},
		{"user \"a b\" on", "Usernames can't contain spaces"},
		{"user a (+get", "Unmatched parenthesis"},
		{"rename-command nope x", "No such command"},
		{"rename-command get set", "already exists"},
		{"rename-command get", "wrong number of arguments"},
		{"user", "a value is missing"},
	} {
		err := readConfig(strings.NewReader(tt.text+"\n"), "conf", DefaultConfig())
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
	c := configWith(t, "aclfile", "/no/such/file")
	if _, err := c.OpenUsers(); err == nil || !strings.Contains(err.Error(), "aclfile") {
		t.Errorf("a missing aclfile: %v", err)
	}
	c = configWith(t, "aclfile", "x", "user", "a on")
	if _, err := c.OpenUsers(); err == nil || !strings.Contains(err.Error(), "user lines") {
		t.Errorf("user lines and an aclfile: %v", err)
	}
}

// TestDeletedUsersAreDisconnected, and those that CLIENT KILL USER names.
func TestDeletedUsersAreDisconnected(t *testing.T) {
	s := start(t)
	admin, gone, killed, own := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	for _, name := range []string{"gone", "killed", "own"} {
		admin.expect("+OK", "ACL", "SETUSER", name, "on", "nopass", "+@all", "~*")
	}
	gone.expect("+OK", "AUTH", "gone", "x")
	killed.expect("+OK", "AUTH", "killed", "x")
	own.expect("+OK", "AUTH", "own", "x")
	admin.expect(":1", "ACL", "DELUSER", "gone")
	eventually(t, "the deleted user's connection is closed", func() bool {
		return !strings.Contains(admin.do("CLIENT", "LIST"), "user=gone")
	})
	admin.expect(":1", "CLIENT", "KILL", "USER", "killed")
	killed.expectReply("EOF")
	own.expect(":1", "ACL", "DELUSER", "own")
	own.expectReply("EOF")
}

// TestProtectedModeKnowsUsers: what counts is that the user default has no
// password, however it came to that.
func TestProtectedModeKnowsUsers(t *testing.T) {
	var address string
	interfaces, _ := net.InterfaceAddrs()
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			address = n.IP.String()
		}
	}
	if address == "" {
		t.Skip("this machine has no address but its own")
	}
	s := start(t, "bind", "127.0.0.1 "+address)
	_, port, _ := net.SplitHostPort(s.address)
	local := s.dial(t)
	remote := &running{address: net.JoinHostPort(address, port)}
	if got := remote.dial(t).reply(); !strings.HasPrefix(got, "-DENIED") {
		t.Errorf("a stranger is told %q", got)
	}
	local.expect("+OK", "ACL", "SETUSER", "default", ">pw")
	remote.dial(t).expect("-NOAUTH Authentication required.", "PING")
	local.expect("+OK", "ACL", "SETUSER", "default", "nopass")
	if got := remote.dial(t).reply(); !strings.HasPrefix(got, "-DENIED") {
		t.Errorf("a stranger is told %q once there is no password any more", got)
	}
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestFailedLoginsAreLogged, not each of them, and never with a password.
func TestFailedLoginsAreLogged(t *testing.T) {
	var log lockedBuffer
	st, err := store.Open(store.Options{Dir: t.TempDir(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := startWith(t, Options{Store: st, Logger: slog.New(slog.NewTextHandler(&log, nil))}, "requirepass",
		"pw")
	begin := time.Now()
	for i := range 10 {
		c := s.dial(t)
		c.send(frame("AUTH", "mallory", "s3cret"))
		if i < 3 { // to the others the answers take long
			c.expectReply("-WRONGPASS invalid username-password pair or user is disabled.")
		}
	}
	admin := s.dial(t)
	admin.expect("+OK", "AUTH", "pw")
	eventually(t, "all have failed", func() bool {
		return strings.Contains(admin.do("INFO", "stats"), "acl_access_denied_auth:10\r")
	})
	got := log.String()
	if n, most := strings.Count(got, "failed to log in"), 1+int(time.Since(begin)/failureLogEvery); n < 1 ||
		n > most || !strings.Contains(got, "user=mallory") || strings.Contains(got, "s3cret") {
		t.Errorf("%d lines of ten failures:\n%s", n, got)
	}
}

// TestGuessersHoldUpNobody: while many connections guess passwords, another
// client is answered as ever, and the guessers get few answers.
func TestGuessersHoldUpNobody(t *testing.T) {
	s := start(t, "requirepass", "pw", "user", "bystander on nopass ~* +@all")
	bystander := s.dial(t)
	bystander.expect("+OK", "AUTH", "bystander", "any") // without a password, so the address is not trusted
	stop := make(chan struct{})
	var guesses atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range 40 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", s.address)
				if err != nil {
					return
				}
				c.SetDeadline(time.Now().Add(testwait.Limit))
				io.WriteString(c, frame("AUTH", "guess"))
				answer := make([]byte, 256)
				if n, _ := c.Read(answer); strings.HasPrefix(string(answer[:n]), "-WRONGPASS") {
					guesses.Add(1)
				}
				c.Close()
			}
		})
	}
	eventually(t, "all that are held back wait for two seconds", func() bool { return guesses.Load() >= 8 })
	for range 1000 { // if each waited for one of them, the last would come too late
		bystander.expect("x", "ECHO", "x")
	}
	n, took := guesses.Load(), time.Since(begin)
	close(stop)
	s.Stop(true) // ends the delays
	wg.Wait()
	if float64(n) > 40+10*took.Seconds() {
		t.Errorf("%d guesses in %v", n, took)
	}
}
