package commands

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// TestACLCommands plays dialogues whose replies redis-server 7.0.15 gave.
func TestACLCommands(t *testing.T) {
	srv := new(Server)
	c := dial(t, newStore(t), srv)
	const setuser = "-ERR Error in ACL SETUSER modifier "
	c.play([]step{
		{"ACL WHOAMI", `"default"`},
		{"ACL LIST", `["user default on nopass ~* &* +@all"]`},
		{"ACL SETUSER a", "+OK"},
		{"ACL SETUSER a on >p +get ~foo* %R~ro* %W~ro* &ch", "+OK"},
		{"ACL USERS", `["a" "default"]`},
		{"ACL LIST",
			`["user a on #148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940 ~foo* ~ro* ` +
				`resetchannels &ch -@all +get" "user default on nopass ~* &* +@all"]`},
		{"ACL SETUSER a (+get ~b", "-ERR Unmatched parenthesis in acl selector starting at '(+get'."},
		{"ACL SETUSER a (+get ~b foo )", setuser + "'(+get ~b foo )': Syntax error"},
		{"ACL SETUSER a +foo", setuser + "'+foo': Unknown command or category name in ACL"},
		{"ACL SETUSER a +@foo", setuser + "'+@foo': Unknown command or category name in ACL"},
		{"ACL SETUSER a %X~foo", setuser + "'%X~foo': Syntax error"},
		{"ACL SETUSER a %~foo", setuser + "'%~foo': Syntax error"},
		{"ACL SETUSER a <nope", setuser + "'<nope': The password you are trying to remove from the user " +
			"does not exist"},
		{"ACL SETUSER a #12", setuser + "'#12': The password hash must be exactly 64 characters and " +
			"contain only lowercase hexadecimal characters"},
		{"ACL SETUSER a +config|get|x", setuser + "'+config|get|x': Allowing first-arg of a subcommand is " +
			"not supported"},
		{"ACL SETUSER a +config|", setuser + "'+config|': Syntax error"},
		{"ACL SETUSER a +config|foo", setuser + "'+config|foo': Unknown command or category name in ACL"},
		{"ACL SETUSER a blah", setuser + "'blah': Syntax error"},
		{`ACL SETUSER "a b" on`, "-ERR Usernames can't contain spaces or null characters"},
		{`ACL SETUSER a ""`, "+OK"},
		{"ACL GETUSER a",
			`["flags" ["on"] "passwords" ["148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940"] ` +
				`"commands" "-@all +get" "keys" "~foo* ~ro*" "channels" "&ch" "selectors" []]`},
		{"ACL GETUSER nobody", "nil"},
		{"ACL DELUSER default", "-ERR The 'default' user cannot be removed"},
		{"ACL CAT foo", "-ERR Unknown category 'foo'"},
		{"ACL CAT transaction", `["multi" "exec" "discard" "watch" "unwatch" "cmulti"]`},
		{"ACL GENPASS 0", "-ERR ACL GENPASS argument must be the number of bits for the output password, " +
			"a positive number up to 4096"},
		{"ACL GENPASS x", "-ERR value is not an integer or out of range"},
		{"ACL LOAD", "-" + errNoACLFile.Error()},
		{"ACL SAVE", "-" + errNoACLFile.Error()},
		{"ACL FOO", "-ERR unknown subcommand 'FOO'. Try ACL HELP."},
		{"ACL LOG x", "-ERR value is not an integer or out of range"},
		{"ACL LOG -1", "[]"},
		{"ACL LOG RESET", "+OK"},
		{"ACL DELUSER a nobody", ":1"},
		{"CLIENT KILL USER a", "-ERR No such user 'a'"},
	})
	if got := c.say("ACL GENPASS 5"); len(got) != len(`"0d"`) {
		t.Errorf("ACL GENPASS 5: %s", got)
	}
}

// TestPermissions lets a user with few rights try.
func TestPermissions(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin, c := dial(t, st, srv), dial(t, st, srv)
	const key = "-NOPERM this user has no permissions to access one of the keys used as arguments"
	run := func(name string) string {
		return "-NOPERM this user has no permissions to run the '" + name + "' command"
	}
	admin.play([]step{
		{"ACL SETUSER b on >p ~foo* %R~ro* %W~wo* +get +set +cincrby +cmincrby +multi +exec +exists " +
			"+select|0 +mget", "+OK"},
	})
	c.play([]step{
		{"AUTH b p", "+OK"}, {"GET foo1", "nil"}, {"GET x", key}, {"DEL foo1", run("del")}, {"GET wo1", key},
		{"GET ro1", "nil"},
		{"SET ro1 1", key}, {"SET wo1 1", "+OK"}, {"SET wo1 2 GET", key}, {"EXISTS ro1", ":0"},
		{"EXISTS wo1", ":1"}, {"EXISTS x", key},
		{"CINCRBY foo id 1", ":1"}, {"CINCRBY wo1 id 1", key}, {"CMINCRBY id 2 foo2 1 foo3 1", "[:1 :1]"},
		{"CMINCRBY id 2 foo2 1 x 1", key}, {"MGET foo1 ro1", "[nil nil]"}, {"MGET foo1 ro1 x", key},
		{"CMINCRBY id 9 foo2 1 x 1", key},
		{"CONFIG GET x", run("config|get")}, {"ACL WHOAMI", run("acl|whoami")}, {"SELECT 1", run("select")},
		{"SELECT 0", "+OK"},
		{"MULTI", "+OK"}, {"GET x", key}, {"GET foo1", "+QUEUED"},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors."},
		{"MULTI", "+OK"}, {"SET foo1 5", "+QUEUED"}, {"GET foo1", "+QUEUED"},
	})
	admin.play([]step{{"ACL SETUSER b -get", "+OK"}})
	c.play([]step{
		{"EXEC", "[+OK -NOPERM ACLs rules changed between the moment the transaction was accumulated and " +
			"the EXEC call. " +
			"This command is no longer allowed for the following reason: no permission to execute the " +
			"command or subcommand]"},
		{"RESET", "+RESET"}, {"GET x", "nil"},
	})
	admin.play([]step{
		{"ACL DRYRUN b get x", `"This user has no permissions to run the 'get' command"`},
		{"ACL DRYRUN b set x 1", `"This user has no permissions to access the 'x' key"`},
		{"ACL DRYRUN b set foo 1", "+OK"},
		{"ACL DRYRUN nobody get x", "-ERR User 'nobody' not found"},
		{"ACL DRYRUN b nocmd", "-ERR Command 'nocmd' not found"},
		{"ACL DRYRUN b get", "-ERR wrong number of arguments for 'get' command"},
		{"COMMAND GETKEYSANDFLAGS SET a b", `[["a" [+OW +update]]]`},
		{"COMMAND GETKEYSANDFLAGS SET a b GET", `[["a" [+RW +access +update]]]`},
	})
	log := admin.say("ACL LOG 100")
	for _, part := range []string{`"reason" "key" "context" "multi" "object" "x" "username" "b"`,
		`:3 "reason" "key" "context" "toplevel" "object" "wo1"`,
		`"reason" "command" "context" "multi" "object" "get"`,
		`"reason" "command" "context" "toplevel" "object" "config|get"`} {
		if !strings.Contains(log, part) {
			t.Errorf("ACL LOG lacks %s in %s", part, log)
		}
	}
}

// TestDenialsInACLLog: what 7.2 tells of a denial, with the request that was denied
// as the client's command, wherever it was denied.
func TestDenialsInACLLog(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin, c := dial(t, st, srv), dial(t, st, srv)
	admin.play([]step{{"ACL SETUSER b on >p ~a +get +multi +exec +auth", "+OK"},
		{"ACL SETUSER z on >p", "+OK"}})
	latest := func(line, want, cmd string) {
		t.Helper()
		for l := range strings.SplitSeq(line, ";") {
			c.say(l)
		}
		got := regexp.MustCompile(`"username" "[a-z]*" "age-seconds" "[0-9.]+" "client-info" "[^"]* (multi=\S+) [^"]* (cmd=\S+) [^"]*" ` +
			`"entry-id" :(\d+) "timestamp-created" :(\d{13}) "timestamp-last-updated" :(\d{13})\]\]$`).FindStringSubmatch(admin.say("ACL LOG 1"))
		if got == nil {
			t.Fatalf("%s: %s", line, admin.say("ACL LOG 1"))
		}
		if !strings.Contains(admin.say("ACL LOG 1"), want) || got[2] != "cmd="+cmd || got[4] > got[5] {
			t.Errorf("%s: %s, want %s of cmd=%s", line, admin.say("ACL LOG 1"), want, cmd)
		}
	}
	latest("AUTH b p;SET a 1", `:1 "reason" "command" "context" "toplevel" "object" "set"`, "set")
	latest("CONFIG GET x", `"reason" "command" "context" "toplevel" "object" "config|get"`, "config|get")
	latest("GET other", `"reason" "key" "context" "toplevel" "object" "other"`, "get")
	latest("MULTI;GET other", `"reason" "key" "context" "multi" "object" "other"`, "get")
	latest("EXEC;AUTH z wrong", `"reason" "auth" "context" "toplevel" "object" "AUTH" "username" "z"`, "auth")
	latest("MULTI;AUTH z wrong;EXEC", `"reason" "auth" "context" "multi" "object" "AUTH" "username" "z"`,
		"exec")
	c.say("MULTI")
	c.say("GET a")
	admin.say("ACL SETUSER b -get")
	latest("EXEC", `"reason" "command" "context" "multi" "object" "get" "username" "b"`, "exec")
	if got := admin.say("ACL LOG 100"); strings.Count(got, `"count"`) != 7 ||
		!strings.Contains(got, `"entry-id" :6 `) {
		t.Errorf("not seven entries: %s", got)
	}
}

// TestDeletedUser: who is gone may do nothing, in the same moment.
func TestDeletedUser(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin, c := dial(t, st, srv), dial(t, st, srv)
	admin.play([]step{{"ACL SETUSER x on nopass +@all ~*", "+OK"}})
	c.play([]step{{"AUTH x any", "+OK"}, {"INCR k", ":1"}})
	admin.play([]step{{"ACL DELUSER x", ":1"}, {"ACL SETUSER x on nopass +@all ~*", "+OK"}})
	if got := c.say("INCR k"); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("a deleted user's INCR: %s", got)
	}
	if !c.session.UserGone() || admin.session.UserGone() {
		t.Error("the wrong user is gone")
	}
}

// TestRulesOfRedis: rules may name every command that Redis has, up to 8 and
// with its modules, and what we do not have is denied as Redis denies it and else
// answered with the reason.
func TestRulesOfRedis(t *testing.T) {
	srv := new(Server)
	st := newStore(t)
	admin, c := dial(t, st, srv), dial(t, st, srv)
	const rules = "+@all -bgrewriteaof -module|load -restore-asking -pfselftest -sentinel -hexpire -vadd " +
		"-json.set -bf.add " +
		"-ft.search -hotkeys|start -cluster|migration -@scripting +script|load"
	run := func(name string) string {
		return "-NOPERM this user has no permissions to run the '" + name + "' command"
	}
	admin.play([]step{
		{"ACL SETUSER b on nopass ~* " + rules, "+OK"},
		{"ACL LIST", `["user b on nopass ~* resetchannels ` + rules +
			`" "user default on nopass ~* &* +@all"]`},
		{"ACL SETUSER b -nosuch", "-ERR Error in ACL SETUSER modifier '-nosuch': Unknown command or " +
			"category name in ACL"},
		{"ACL SETUSER b -module|nosuch", "-ERR Error in ACL SETUSER modifier '-module|nosuch': Unknown " +
			"command or category name in ACL"},
		{"ACL DRYRUN b BF.ADD f x", `"This user has no permissions to run the 'bf.add' command"`},
		{"BGREWRITEAOF", "-ERR BGREWRITEAOF is not supported: there is no append-only file to rewrite; " +
			"every checkpoint trims the op log"},
		{"BGREWRITEAOF x", "-ERR wrong number of arguments for 'bgrewriteaof' command"},
		{"MODULE LOAD x", "-ERR MODULE LOAD is not supported: there are no modules here"},
		{"MODULE NOSUCH x", "-ERR unknown subcommand 'NOSUCH'. Try MODULE HELP."},
		{"MODULE LIST", "[]"},
		{"SENTINEL masters", "-ERR SENTINEL is not supported: Sentinel is not supported"},
		{"SCRIPT LOAD x", "-ERR SCRIPT LOAD is not supported: scripts are not supported; MULTI is atomic"},
		{"SCRIPT NOSUCH", "-ERR SCRIPT is not supported: scripts are not supported; MULTI is atomic"},
		{"CLUSTER INFO", "-ERR This instance has cluster support disabled"},
	})
	c.play([]step{
		{"AUTH b x", "+OK"}, {"BGREWRITEAOF", run("bgrewriteaof")}, {"MODULE LOAD x", run("module|load")},
		{"MODULE LIST", "[]"},
		{"SENTINEL masters", run("sentinel")}, {"EVAL x 0", run("eval")},
		{"SCRIPT FLUSH", run("script|flush")},
		{"SCRIPT LOAD x", "-ERR SCRIPT LOAD is not supported: scripts are not supported; MULTI is atomic"},
		{"CLUSTER MIGRATION x", run("cluster|migration")},
		{"CLUSTER INFO", "-ERR This instance has cluster support disabled"},
	})
	if got := admin.say("COMMAND INFO module") + admin.say("COMMAND DOCS module") + admin.say("MODULE HELP") +
		admin.say("COMMAND"); strings.Contains(got, "loadex") ||
		strings.Contains(got, "bgrewriteaof") {
		t.Errorf("what is refused is listed: %s", got)
	}
}

// TestEveryCommandsKeys holds the whole table to its key specifications: with a
// pattern that does not allow what the command does with its keys it is denied,
// with one that does it is not.
func TestEveryCommandsKeys(t *testing.T) {
	users := acl.NewUsers(Catalog())
	for name, pattern := range map[string]string{"r": "%R~k", "w": "%W~k", "rw": "~k", "none": "~other"} {
		if err := users.Set(name, []string{"+@all", pattern}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range Commands.all {
		if c.Refusal != "" || c.Subcommands != nil {
			continue
		}
		if hasKeyArg(c.Args) != (c.Keys.First > 0) {
			t.Errorf("%s: documents a key: %v, has keys: %v", c.fullName, hasKeyArg(c.Args), c.Keys.First > 0)
		}
		if c.Keys.First == 0 {
			continue
		}
		if write := c.Flags&Write != 0; write != (c.access&acl.Write != 0) {
			t.Errorf("%s: flag write: %v, its keys' flags: %q", c.fullName, write, c.Keys.Flags)
		}
		args := sampleArgs(c)
		access := accessOf(c.keyFlags(args))
		for name, grants := range map[string]acl.Access{"r": acl.Read, "w": acl.Write,
			"rw": acl.Read | acl.Write} {
			want := acl.Allowed
			if access&^grants != 0 {
				want = acl.DeniedKey
			}
			if got, _, _ := c.check(users.Get(name), args, nil); got != want {
				t.Errorf("%s with %s: %v, want %v", c.fullName, name, got, want)
			}
		}
		if got, object, _ := c.check(users.Get("none"), args, nil); got != acl.DeniedKey || object != "k" {
			t.Errorf("%s on another's key: %v %q", c.fullName, got, object)
		}
	}
}

// hasKeyArg reports whether a command documents a key.
func hasKeyArg(args []Arg) bool {
	for i := range args {
		if args[i].Type == TypeKey || hasKeyArg(args[i].Args) {
			return true
		}
	}
	return false
}

// sampleArgs are arguments of a command, each of its keys "k".
func sampleArgs(c *Command) [][]byte {
	n := max(c.Arity, -c.Arity) + 2
	if c.Arity > 0 {
		n = c.Arity
	}
	args := make([][]byte, n)
	for i := range args {
		args[i] = []byte("1")
	}
	for i := c.Keys.First; i < n; i++ {
		args[i] = []byte("k")
	}
	if c.Keys.NumKeys {
		args[c.Keys.First] = []byte("1")
	}
	return args
}

// TestRename takes commands away and gives them other names; permissions keep
// to the old ones.
func TestRename(t *testing.T) {
	table := Commands
	for _, r := range [][2]string{{"CONFIG", ""}, {"get", "GOT"}, {"acl", "rules"}, {"set", "get"}} {
		var err error
		if table, err = table.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, newStore(t), &Server{Table: table})
	c.play([]step{
		{"CONFIG GET x", "-ERR unknown command 'CONFIG', with args beginning with: 'GET' 'x' "},
		{"get x 1", "+OK"}, {"got x", `"1"`}, {"got", "-ERR wrong number of arguments for 'get' command"},
		{"ACL WHOAMI", "-ERR unknown command 'ACL', with args beginning with: 'WHOAMI' "},
		{"RULES SETUSER a +got", "-ERR Error in ACL SETUSER modifier '+got': Unknown command or category " +
			"name in ACL"},
		{"RULES SETUSER a +get", "+OK"},
		{"RULES DRYRUN a got x", `"This user has no permissions to access the 'x' key"`},
		{"RULES DRYRUN a get x 1", `"This user has no permissions to run the 'set' command"`},
	})
	if got := c.say("RULES HELP"); !strings.Contains(got, "SETUSER") {
		t.Errorf("HELP of a renamed container: %s", got)
	}
	for _, bad := range [][2]string{{"nope", "x"}, {"got", "get"}} {
		if _, err := table.Rename(bad[0], bad[1]); err == nil {
			t.Errorf("rename of %s to %s is accepted", bad[0], bad[1])
		}
	}
}

// BenchmarkUnrestricted is what permissions cost a command of a user with all
// rights; BenchmarkRestricted of another one.
func BenchmarkUnrestricted(b *testing.B) { benchmarkUser(b, "~*", "+@all") }

func BenchmarkRestricted(b *testing.B) {
	benchmarkUser(b, "~page:*", "%R~ro:*", "+@all", "-@dangerous")
}

func benchmarkUser(b *testing.B, rules ...string) {
	p := newIdlePipeline()
	if err := p.srv.Users.Set(acl.Default, append([]string{"reset", "on", "nopass"}, rules...)); err != nil {
		b.Fatal(err)
	}
	c := Commands.Get([]byte("cincrby"))
	args := [][]byte{[]byte("CINCRBY"), []byte("page:home"), []byte("id"), []byte("1")}
	b.ReportAllocs()
	for b.Loop() {
		if !p.ses.unrestricted() && p.denied(c, args) != "" {
			b.Fatal("denied")
		}
	}
}

// TestPermissionsAllocateNothing: neither for a user with all rights nor for
// another, once its connection has run a command.
func TestPermissionsAllocateNothing(t *testing.T) {
	for _, rules := range [][]string{{"~*", "+@all"}, {"~page:*", "%R~ro:*", "+@all", "-@dangerous"}} {
		p := newIdlePipeline()
		if err := p.srv.Users.Set(acl.Default,
			append([]string{"reset", "on", "nopass"}, rules...)); err != nil {
			t.Fatal(err)
		}
		c := Commands.Get([]byte("cincrby"))
		args := [][]byte{[]byte("CINCRBY"), []byte("page:home"), []byte("id"), []byte("1")}
		if n := testing.AllocsPerRun(100, func() {
			if !p.ses.unrestricted() && p.denied(c, args) != "" {
				t.Fatal("denied")
			}
		}); n != 0 {
			t.Errorf("%q: %v allocations", rules, n)
		}
	}
}
