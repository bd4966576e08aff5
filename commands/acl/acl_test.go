package acl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// testCatalog is a small part of Redis' commands.
func testCatalog() *Catalog {
	return NewCatalog([]string{"read", "write", "admin", "slow", "list"}, []Command{
		{Name: "get", Categories: []string{"read"}},
		{Name: "set", Categories: []string{"write", "slow"}},
		{Name: "del", Categories: []string{"write", "slow"}},
		{Name: "select"},
		{Name: "config", Categories: []string{"slow"}},
		{Name: "config|get", Categories: []string{"admin", "slow"}},
		{Name: "config|set", Categories: []string{"admin", "slow"}},
		{Name: "auth", Always: true},
		{Name: "lpush"},
	})
}

const hashOfP = "#148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940"

// TestMayOnly: whoever may run more than one command, whatever its arguments, is not restricted to it.
func TestMayOnly(t *testing.T) {
	harmless := func(c Command) bool { return slices.Contains(c.Categories, "read") }
	for rules, want := range map[string]bool{
		"":                                    false,
		"+set":                                true,
		"+auth +get +set ~*":                  true,
		"+get":                                false,
		"+@all":                               false,
		"+set +del":                           false,
		"+@write -del":                        true,
		"+set +config|get":                    false,
		"+set +select|0":                      false,
		"+set|ex":                             true,
		"+set (+get ~x)":                      true,
		"+set (+del ~x)":                      false,
		"+get (+set)":                         true,
		"+set +@all -@admin -del -select":     false, // config, lpush
		"+set -@all":                          false,
		"+config|get +config|set -@slow +set": true,
	} {
		u, err := usersWith(rules)
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		if got := u.Get("a").MayOnly("set", harmless); got != want {
			t.Errorf("%q: %v", rules, got)
		}
	}
}

// usersWith are users of which one, a, has rules, as ACL SETUSER takes them.
func usersWith(rules string) (*Users, error) {
	u := NewUsers(testCatalog())
	merged, err := MergeSelectors(strings.Fields(rules))
	if err == nil {
		err = u.Set("a", merged)
	}
	return u, err
}

// TestRules: what ACL SETUSER makes of a new user, in the words of ACL LIST of
// redis-server 7.0.15, but for the order of rules on commands, which there
// depends on a hash table and here is the one in which they were given.
func TestRules(t *testing.T) {
	for rules, want := range map[string]string{
		"":                         "off resetchannels -@all",
		"on nopass":                "on nopass resetchannels -@all",
		"reset":                    "off sanitize-payload resetchannels -@all",
		"skip-sanitize-payload":    "off skip-sanitize-payload resetchannels -@all",
		"on >p >p":                 "on " + hashOfP + " resetchannels -@all",
		"on >p <p":                 "on resetchannels -@all",
		"on >p nopass":             "on nopass resetchannels -@all",
		"nopass >p":                "off " + hashOfP + " resetchannels -@all",
		">p resetpass":             "off resetchannels -@all",
		hashOfP + " on OFF":        "off " + hashOfP + " resetchannels -@all",
		"~a %R~b %W~c %RW~d %wr~e": "off ~a %R~b %W~c ~d ~e resetchannels -@all",
		"%R~b %W~b ~a ~a":          "off ~b ~a resetchannels -@all",
		"~a allkeys":               "off ~* resetchannels -@all",
		"~* resetkeys ~x":          "off ~x resetchannels -@all",
		"&a &a &b":                 "off resetchannels &a &b -@all",
		"&a allchannels":           "off &* -@all",
		"+get":                     "off resetchannels -@all +get",
		"+GET +Config|Get":         "off resetchannels -@all +get +config|get",
		"+@all":                    "off resetchannels +@all",
		"allcommands -set":         "off resetchannels +@all -set",
		"+@all -set +set":          "off resetchannels +@all +set",
		"+get nocommands +set":     "off resetchannels -@all +set",
		"+config|get +config":      "off resetchannels -@all +config",
		"+config -config|set":      "off resetchannels -@all +config -config|set",
		"+@READ -get":              "off resetchannels -@all +@read -get",
		"+@read +set -@read":       "off resetchannels -@all +set -@read",
		"+@list":                   "off resetchannels -@all +@list",
		"+select|0 +SELECT|0":      "off resetchannels -@all +select|0",
		"+lpush":                   "off resetchannels -@all +lpush",
		"(+get ~x) (+@all -set %R~y)": "off resetchannels -@all (~x resetchannels -@all +get) (%R~y " +
			"resetchannels +@all -set)",
		"( +get  ~x )":           "off resetchannels -@all (~x resetchannels -@all +get)",
		"()":                     "off resetchannels -@all (resetchannels -@all)",
		"(~x) clearselectors ~r": "off ~r resetchannels -@all",
		"~r (~x) reset":          "off sanitize-payload resetchannels -@all",
	} {
		u, err := usersWith(rules)
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		got := u.Get("a").String()
		if got != "user a "+want {
			t.Errorf("%s\n gives %q\n  want %q", rules, got, "user a "+want)
		}
		again, err := ParseFile(testCatalog(), "f", got+"\n", "")
		if err != nil || again.Get("a").String() != got {
			t.Errorf("%q is read back with %v", got, err)
		}
	}
}

// TestWrongRules: Redis' words for each mistake, and that nothing changes.
func TestWrongRules(t *testing.T) {
	for rule, want := range map[string]error{
		"blah": errSyntax, "%": errSyntax, "%~a": errSyntax, "%RR~a": errSyntax, "%X~a": errSyntax,
		"%R": errSyntax,
		"+":  errUnknown, "-": errUnknown, "+@": errUnknown, "+@nope": errUnknown, "+nope": errUnknown,
		"-nope":        errUnknown,
		"+config|nope": errUnknown, "-config|nope": errUnknown, "+config|": errSyntax,
		"+config|get|x": errSubcommandArg,
		"-select|0":     errUnknown, "<nope": errNoSuchPassword, "#12": errBadHash, "!12": errBadHash,
		"#" + strings.Repeat("A", 64): errBadHash, "#" + strings.Repeat("g", 64): errBadHash,
		"!" + strings.Repeat("a", 64): errNoSuchPassword, "(on)": errSyntax, "(+get (x))": errSyntax,
		"(~* ~b)": errAfterAllKey,
		"~a b":    errSyntax, "&a\tb": errSyntax, "~" + strings.Repeat("x", maxPattern+1): errSyntax,
		"\x00": errSyntax,
		"(":    errSyntax, ")": errSyntax, "(+get": errSyntax,
	} {
		u := NewUsers(testCatalog())
		if err := u.Set("a", []string{"on", "+get", "~a"}); err != nil {
			t.Fatal(err)
		}
		before := u.Get("a")
		err := u.Set("a", []string{"+set", ">pw", rule})
		var wrong *RuleError
		if !errors.As(err, &wrong) || wrong.Rule != rule || !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", rule, err, want)
		}
		if u.Get("a") != before {
			t.Errorf("%.20q changes the user", rule)
		}
	}
	u := NewUsers(testCatalog())
	for _, rules := range [][]string{{"~*", "~a"}, {"&*", "&a"}} {
		if err := u.Set("b", rules); err == nil {
			t.Errorf("%q is accepted", rules)
		}
	}
	if u.Get("b") != nil {
		t.Error("a user whose rules are wrong exists")
	}
	if err := u.Set("a b", nil); !errors.Is(err, ErrBadName) {
		t.Errorf("a name with a space: %v", err)
	}
}

// TestCheck asks what users may do.
func TestCheck(t *testing.T) {
	c := testCatalog()
	for _, tt := range []struct {
		rules, request string // a key's access stands before it: r:k, w:k, rw:k, :k
		want           Reason
		pos            int
	}{
		{"+get ~a*", "get r:abc", Allowed, 0}, {"+get ~a*", "get r:b", DeniedKey, 1},
		{"+get ~a*", "set w:abc", DeniedCommand, 0},
		{"+@all ~*", "set w:x", Allowed, 0}, {"", "auth", Allowed, 0}, {"", "get r:a", DeniedCommand, 0},
		{"+@all %R~a", "get r:a", Allowed, 0}, {"+@all %R~a", "set w:a", DeniedKey, 1},
		{"+@all %R~a", "set rw:a", DeniedKey, 1},
		{"+@all %W~a", "set w:a", Allowed, 0}, {"+@all %W~a", "set rw:a", DeniedKey, 1},
		{"+@all %W~a", "get r:a", DeniedKey, 1},
		{"+@all %R~a %W~*a", "set rw:a", DeniedKey, 1}, // no single pattern allows both
		{"+@all %W~a", "get :a", Allowed, 0}, {"+@all %W~a", "get :b", DeniedKey, 1},
		{"+@all ~a", "del w:a w:b", DeniedKey, 2}, {"+@all -del ~*", "del w:a", DeniedCommand, 0},
		{"+config|get", "config|get", Allowed, 0}, {"+config|get", "config|set", DeniedCommand, 0},
		{"+config", "config|set", Allowed, 0},
		{"+@slow", "config|get", Allowed, 0}, {"+@admin", "config|set", Allowed, 0},
		{"+@admin", "config", DeniedCommand, 0},
		{"+select|0", "select :0", Allowed, 0}, {"+select|0", "select :1", DeniedCommand, 0},
		{"+select|0", "select", DeniedCommand, 0},
		{"+select|0 -select", "select :0", DeniedCommand, 0},
		{"+get ~a (+set ~b)", "set w:b", Allowed, 0}, {"+get ~a (+set ~b)", "get r:b", DeniedKey, 1},
		{"+get ~a (+set ~b)", "set w:a", DeniedKey, 1},
		{"+@all ~a (+@all ~b)", "del w:a w:b", DeniedKey, 2}, {"(+@all ~*)", "del w:a w:b", Allowed, 0},
	} {
		u := NewUsers(c)
		rules, err := MergeSelectors(strings.Fields(tt.rules))
		if err == nil {
			err = u.Set("a", append(rules, "on"))
		}
		if err != nil {
			t.Fatal(err)
		}
		var args [][]byte
		var keys []KeyRef
		for i, w := range strings.Fields(tt.request) {
			access, key, isKey := strings.Cut(w, ":")
			if !isKey {
				args = append(args, []byte(w))
				continue
			}
			args = append(args, []byte(key))
			if !strings.HasPrefix(tt.request, "select") {
				keys = append(keys,
					KeyRef{i, map[string]Access{"": 0, "r": Read, "w": Write, "rw": Read | Write}[access]})
			}
		}
		i, _ := c.lookup(string(args[0]))
		if got, pos := u.Get("a").Check(i, args, keys); got != tt.want || pos != tt.pos {
			t.Errorf("%q asks %q: %v at %d, want %v at %d", tt.rules, tt.request, got, pos, tt.want, tt.pos)
		}
	}
}

// TestEverything: the short cut is taken for users that may do everything, and for no others.
func TestEverything(t *testing.T) {
	for rules, want := range map[string]bool{
		"+@all ~*": true, "~* &* allcommands": true, "(+@all ~*)": true, "+@all -get +get ~*": true,
		"+@all": false, "~*": false, "+@all ~a": false, "+@all -config|get ~*": false,
		"+@read +@write ~*": false,
	} {
		u := NewUsers(testCatalog())
		merged, _ := MergeSelectors(strings.Fields(rules))
		if err := u.Set("a", merged); err != nil || u.Get("a").Everything() != want {
			t.Errorf("%q: everything is %v, %v", rules, u.Get("a").Everything(), err)
		}
	}
}

// TestAuthenticate: who gets in with what.
func TestAuthenticate(t *testing.T) {
	u := NewUsers(testCatalog())
	for name, rules := range map[string]string{"a": "on >p >q", "off": "off >p", "any": "on nopass",
		"none": "on"} {
		if err := u.Set(name, strings.Fields(rules)); err != nil {
			t.Fatal(err)
		}
	}
	for login, want := range map[string]bool{
		"a p": true, "a q": true, "a x": false, "a ": false, "off p": false, "any x": true, "any ": true,
		"none ":   false,
		"nobody ": false, "nobody p": false, "default x": true,
	} {
		name, password, _ := strings.Cut(login, " ")
		a, ok := u.Authenticate(name, []byte(password))
		if ok != want || ok && a.Name() != name {
			t.Errorf("%q: %v", login, ok)
		}
	}
	for password, needed := range map[string]bool{"p": true, "": false} {
		u.SetDefaultPassword(password)
		if u.LoginNeeded() != needed {
			t.Errorf("with the password %q a login is needed: %v", password, !needed)
		}
	}
}

// TestParseFile: all the lines that are wrong are told, with where they are and
// without passwords, in Redis' words.
func TestParseFile(t *testing.T) {
	for text, want := range map[string]string{
		"usr bob\nuser carl +foo\n": "f:1 should start with user keyword followed by the username. " +
			"f:2: Error in applying operation '+foo': Unknown command or category name in ACL. ",
		"user\n":                     "f:1 should start with user keyword followed by the username. ",
		"user a on\n\n user a off\n": "WARNING: Duplicate user 'a' found on line 3. ",
		"user a >secret #secret\n": "f:1: The password hash must be exactly 64 characters and contain " +
			"only lowercase hexadecimal characters. ",
		"user a (+get\n": "f:1: Unmatched parenthesis in selector definition. ",
		"# comment\n":    "f:1 should start with user keyword followed by the username. ",
	} {
		users, err := ParseFile(testCatalog(), "f", text, "")
		if users != nil || err == nil || err.Error() != want+unchanged {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want+unchanged)
		}
	}
	u, err := ParseFile(testCatalog(), "f", "user a on +get ~a\r\n\n\tuser b\n", "pw")
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Names(); !slices.Equal(got, []string{"a", "b", "default"}) || !u.LoginNeeded() {
		t.Errorf("users %q, default %s", got, u.Default().User())
	}
	u, err = ParseFile(testCatalog(), "f", "user default on nopass +@all ~*\n", "pw")
	if err != nil || u.LoginNeeded() {
		t.Errorf("the file's default user is not the one that counts: %v", err)
	}
}

// TestFileIsReadAgain: whatever users are accepted, the file of them is read again, and they are
// the same: else ACL SAVE would keep the server from starting.
func TestFileIsReadAgain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func() (w string) {
		parts := []string{"a", "(", ")", " ", "~", "\"", "\\", "#", "*", "%", "|", "@", "+", "on", "\u00a0",
			"\x85", "\x1f"}
		for range rnd.IntN(4) {
			w += parts[rnd.IntN(len(parts))]
		}
		return w
	}
	rule := func() string {
		rules := []string{"~" + word(), "%R~" + word(), "&" + word(), "+get", "-get", "+select|" + word(),
			"on", ">" + word(), "allkeys", "reset"}
		if i := rnd.IntN(len(rules) + 4); i < len(rules) {
			return rules[i]
		}
		return "(~" + word() + " +get" + word() + ")"
	}
	for range 300 {
		u := NewUsers(testCatalog())
		for range 20 {
			u.Set(word(), []string{rule(), rule()}) // most are refused
		}
		again, err := ParseFile(testCatalog(), "f", u.File(), "")
		if err != nil || again.File() != u.File() {
			t.Fatalf("%v: of\n%s", err, u.File())
		}
	}
	if err := NewUsers(testCatalog()).Set("", []string{"on"}); !errors.Is(err, ErrNoName) {
		t.Error(err)
	}
}

// TestReplace: accounts of users who stay as they are stay, default's too; the
// others may do nothing from then on.
func TestReplace(t *testing.T) {
	c := testCatalog()
	u, err := ParseFile(c, "f", "user same on +get\nuser changed on +get\nuser gone +@all ~*\n", "")
	if err != nil {
		t.Fatal(err)
	}
	accounts := map[string]*Account{}
	for name, a := range u.byName {
		accounts[name] = a
	}
	by, err := ParseFile(c, "f", "user same on +get\nuser changed on +set\nuser new\nuser default on >p\n",
		"")
	if err != nil {
		t.Fatal(err)
	}
	if n := u.Replace(by); n != 2 {
		t.Errorf("%d are gone", n)
	}
	for name, gone := range map[string]bool{"same": false, "changed": true, "gone": true, "default": false} {
		if accounts[name].Gone() != gone {
			t.Errorf("%s gone: %v", name, !gone)
		}
	}
	if r, _ := accounts["gone"].User().Check(0, [][]byte{[]byte("get")}, nil); r != DeniedCommand {
		t.Error("a user who is gone may run commands")
	}
	if !u.LoginNeeded() || u.Get("changed").String() != "user changed on resetchannels -@all +set" ||
		u.Get("new") == nil {
		t.Errorf("users now: %s", u.File())
	}
}

// TestLog: equal denials of a minute are one entry.
func TestLog(t *testing.T) {
	var l Log
	start := time.Unix(1000, 0)
	add := func(after time.Duration, object string) {
		l.Add(Entry{Reason: DeniedKey, Context: "toplevel", Object: object, User: "u",
			Time: start.Add(after)})
	}
	add(0, "a")
	add(time.Second, "b")
	add(2*time.Second, "a")
	add(63*time.Second, "a") // more than a minute after the one before
	got := l.Latest(10)
	var shown []string
	for _, e := range got {
		shown = append(shown, fmt.Sprint(e.ID, e.Object, " ", e.Count, e.Created.Unix(), e.Time.Unix()))
	}
	if !slices.Equal(shown, []string{"2a 1 1063 1063", "0a 2 1000 1002", "1b 1 1001 1001"}) {
		t.Errorf("%q", shown)
	}
	if len(l.Latest(10)) != 3 || len(l.Latest(1)) != 1 || len(l.Latest(-1)) != 0 {
		t.Error("wrong number of entries")
	}
	for i := range 500 {
		add(time.Hour, strings.Repeat("k", i+1))
	}
	if len(l.Latest(1000)) != LogLength {
		t.Error("the log grows beyond its limit")
	}
	l.Reset()
	add(0, "x")
	if e := l.Latest(1)[0]; e.ID < 500 {
		t.Errorf("after a reset an entry has the number %d of another", e.ID)
	}
}

// FuzzRules: whatever the rules, they are refused and change nothing, or give a
// user whose description gives the same user again.
func FuzzRules(f *testing.F) {
	for _, seed := range []string{"on >p ~a %R~b &c +@all -get (+set ~x) clearselectors",
		"+config|get -config|set +select|0",
		"reset nopass (~a +@slow)", "( ) (( )) %", "#" + strings.Repeat("0", 64)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u := NewUsers(testCatalog())
		rules, err := MergeSelectors(strings.Split(text, " "))
		if err != nil {
			return
		}
		if err := u.Set("a", rules); err != nil {
			if u.Get("a") != nil {
				t.Fatal("refused, and there")
			}
			return
		}
		described := u.File()
		again, err := ParseFile(testCatalog(), "f", described, "")
		if err != nil {
			t.Fatalf("%q: %v", described, err)
		}
		a, b := u.Get("a"), again.Get("a")
		if a.String() != b.String() {
			t.Fatalf("%q becomes %q", a, b)
		}
		for i := range testCatalog().commands {
			args := [][]byte{[]byte("x"), []byte("0")}
			x, _ := a.Check(i, args, []KeyRef{{1, Read}})
			y, _ := b.Check(i, args, []KeyRef{{1, Read}})
			if x != y {
				t.Fatalf("%q: command %d is %v, and %v when read back", a, i, x, y)
			}
		}
	})
}

// FuzzFile: any text is refused, or gives users that are written and read as
// the same.
func FuzzFile(f *testing.F) {
	f.Add("user a on >p +get ~a\nuser b (+@all ~b)\n")
	f.Add("user default off\n\n\t user x \r\n")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseFile(testCatalog(), "f", text, "")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("an error of several lines: %q", err)
			}
			return
		}
		again, err := ParseFile(testCatalog(), "f", u.File(), "")
		if err != nil || again.File() != u.File() {
			t.Fatalf("%q is read back as %v, %v", u.File(), again, err)
		}
	})
}
