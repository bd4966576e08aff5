package commands

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// vectorReply renders the first reply of b as the vectors do, and returns what follows it.
func vectorReply(b string) (shown, rest string) {
	line, rest, _ := strings.Cut(b, "\r\n")
	n := 0
	fmt.Sscanf(line[1:], "%d", &n)
	list := func(n int, join func(i int) string) string {
		var out strings.Builder
		for i := range n {
			var part string
			part, rest = vectorReply(rest)
			out.WriteString(join(i) + part)
		}
		return out.String()
	}
	comma := func(i int) string {
		if i == 0 {
			return ""
		}
		return ", "
	}
	switch line[0] {
	case '+', '-':
		return line, rest
	case ':':
		return line[1:], rest
	case '#':
		return fmt.Sprint(line[1] == 't'), rest
	case '_':
		return "null", rest
	case '*':
		return "[" + list(n, comma) + "]", rest
	case '%':
		return "{" + list(2*n, func(i int) string {
			if i%2 == 1 {
				return ": "
			}
			return comma(i)
		}) + "}", rest
	}
	if n < 0 {
		return "null", rest
	}
	var text strings.Builder
	for _, c := range []byte(rest[:n]) {
		switch {
		case c == '"' || c == '\\':
			fmt.Fprintf(&text, "\\%c", c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&text, "\\x%02x", c)
		default:
			text.WriteByte(c)
		}
	}
	return `"` + text.String() + `"`, rest[n+2:]
}

// TestSketchVectors: replies and error texts are RedisBloom's, in both versions of the
// protocol. Remarks in the file name what fbfkv does otherwise, which other tests hold.
func TestSketchVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/sketch.vectors")
	if err != nil {
		t.Fatal(err)
	}
	st, srv := newStore(t), &Server{}
	two, three := dial(t, st, srv), dial(t, st, srv)
	three.send("HELLO 3")
	var request, got string
	for _, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '2' || line[0] == '3':
			c := two
			if line[0] == '3' {
				c = three
			}
			request = line
			words := strings.Split(line[3:], " ")
			var in strings.Builder
			fmt.Fprintf(&in, "*%d\r\n", len(words))
			for _, w := range words {
				if w == "''" {
					w = ""
				}
				fmt.Fprintf(&in, "$%d\r\n%s\r\n", len(w), w)
			}
			got, _ = vectorReply(c.bytes([]byte(in.String())))
		default:
			if want := strings.TrimSpace(line); got != want {
				t.Errorf("%s\n got %s\nwant %s", request, got, want)
			}
		}
	}
}

// TestSketchKeys: commands on keys of any type work on sketches as on others, and those of
// counters are refused, or replace them.
func TestSketchKeys(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	const wrongType = "-WRONGTYPE Operation against a key holding the wrong kind of value"
	for name, make := range map[string]string{"MBbloom--": "BF.ADD k x",
		"CMSk-TYPE": "CMS.INITBYDIM k 10 2"} {
		c.send(make)
		c.play([]step{
			{"TYPE k", "+" + name}, {"OBJECT ENCODING k", `"raw"`}, {"EXISTS k", ":1"},
			{"SCAN 0 TYPE " + strings.ToLower(name), `["0" ["k"]]`},
			{"SCAN 0 TYPE string", `["0" []]`}, {"PEXPIRE k 100000", ":1"}, {"PERSIST k", ":1"},
			{"TTL k", ":-1"},
			{"GET k", wrongType}, {"INCR k", wrongType}, {"GETSET k 1", wrongType},
			{"SET k 1 GET", wrongType}, {"STRLEN k", wrongType},
			{"CINCRBY k id 1", wrongType}, {"FBF.ADD k x", wrongType}, {"SETNX k 1", ":0"},
			{"MSETNX k 1 l 1", ":0"}, {"TYPE k", "+" + name},
			{"SET k 1", "+OK"}, {"TYPE k", "+string"}, {"DEL k", ":1"},
		})
		c.send(make, "PEXPIRE k 1")
		for c.say("EXISTS k") != ":0" {
		}
		c.play([]step{{"TYPE k", "+none"}})
		if strings.HasPrefix(c.say(make), "-") {
			t.Errorf("%s: not made again where one has expired", name)
		}
		c.send("DEL k")
	}
	c.send("BF.RESERVE big 0.001 100000")
	if got := c.say("MEMORY USAGE big"); got < ":197" || len(got) != len(":197777") {
		t.Errorf("MEMORY USAGE %s", got)
	}
	c.play([]step{
		{"BF.ADD c x", ":1"}, {"CMS.INITBYDIM c 1 1", "-CMS: key already exists"},
		{"CMS.QUERY c x", wrongType}, {"CMS.INFO c", wrongType},
		{"CMS.MERGE c 1 c", wrongType}, {"CMS.INCRBY c x 1", wrongType}, {"CMS.CINCRBY c id x 1", wrongType},
		{"CMS.INITBYDIM s 5 2 CELL_SIZE 1", "+OK"},
		{"CMS.INFO s", "[+width :5 +depth :2 +count :0 +cell_size :1]"},
		{"CMS.INITBYPROB w 0.1 0.1 WINDOW 1m PAST 3", "+OK"},
		{"CMS.INFO w", "[+width :20 +depth :4 +count :0 +window :60000 +panes :4]"},
		{"CMS.INITBYDIM v 5 2 window 8000", "+OK"},
		{"CMS.INFO v", "[+width :5 +depth :2 +count :0 +window :8000 +panes :8]"},
		{"CMS.INITBYDIM n 5 2 PAST 3", "-CMS: invalid init arguments"},
		{"CMS.INITBYDIM n 5 2 WINDOW 0", "-CMS: invalid init arguments"},
		{"CMS.MERGE v 1 w", "-CMS: a sketch with a window cannot be the destination"},
		{"CMS.INITBYDIM d 5 2", "+OK"}, {"CMS.MERGE s 1 d", "-CMS: cell_size is not equal"},
		{"CMS.INITBYDIM e 5 2 CELL_SIZE 3", "-CMS: invalid init arguments"},
		{"CMS.INITBYDIM e 5 2 CELLS 1", "-CMS: invalid init arguments"},
		{"CMS.INITBYDIM e 5 2 CELL_SIZE", "-ERR wrong number of arguments for 'cms.initbydim' command"},
		{"CMS.INCRBY s x 255 y -1 x 1", "[:255 -CMS: INCRBY underflow -CMS: INCRBY overflow]"},
		{"CMS.QUERY s x y", "[:255 :0]"},
		{"CMS.INCRBY s x -255", "[:0]"},
		{"CMS.INCRBY s x", "-ERR wrong number of arguments for 'cms.incrby' command"},
		{"CMS.INITBYDIM weights 5 2", "+OK"}, {"CMS.INCRBY weights x 3", "[:3]"},
		{"CMS.MERGE d 2 weights d WEIGHTS 2 1", "+OK"}, {"CMS.QUERY d x", "[:6]"},
		{"CMS.INNERPROD d weights", ":18"},
		{"CMS.MERGE d 2 none weights WEIGHTS 2 x", "-CMS: key does not exist"},
		{"CMS.MERGE d 2 weights none WEIGHTS x 2", "-CMS: invalid weight value"},
		{"CMS.INNERPROD d none", "-CMS: key does not exist"},
		{"CMS.INITBYDIM p 1 99999999999", "-CMS: Insufficient memory to create the key"},
		{"BF.RESERVE r 1e-300 1000000000", "-ERR Insufficient memory to create filter"},
		{"BF.INSERT r CAPACITY 5 ERROR 0.1 EXPANSION 0 ITEMS a b", "[:1 :1]"},
		{"BF.INFO r EXPANSION", "[nil]"},
		{"BF.INSERT r CAPACITY", "-ERR wrong number of arguments for 'bf.insert' command"},
		{"BF.INSERT r CAPACITY 5", "-ERR wrong number of arguments for 'bf.insert' command"},
		{"BF.INSERT r CAPACITY 5 ITEMS", "-ERR wrong number of arguments for 'bf.insert' command"},
		{"BF.INSERT r EXPANSION 40000 ITEMS a", "-Bad expansion"}, {"BF.INSERT r nocreate ITEMS a", "[:0]"},
		{"BF.RESERVE q 0.1 5 EXPANSION x", "-ERR bad expansion"},
		{"BF.RESERVE q 0.1 5 EXPANSION 40000", "-ERR expansion must be in the range [0, 32768]"},
		{"BF.RESERVE q 0.1 5 EXPANSION 1 NONSCALING x", "-ERR wrong number of arguments for " +
			"'bf.reserve' command"},
	})
}

// TestSketchIDs: operations with an opid answer as counters do.
func TestSketchIDs(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"CTABLE CREATE t PREFIX a: MODE APPROX", "+OK"},
		{"BF.CADD f 1 x y x", "[:1 :1 :0]"}, {"BF.ADD f z", ":1"}, {"BF.CADD f 1 x y x", "[:1 :1 :0]"},
		{"BF.CADD f 2 x", "[:0]"},
		{"BF.CADD f 3 x w WITHSTATUS", "[[:0 :1] :1]"}, {"BF.CADD f 3 x w WITHSTATUS", "[[:0 :1] :0]"},
		{"BF.CADD f 3 w x", "-MISMATCH opid was used with other items or increments"},
		{"BF.CADD f 4 AT 1", "[:1 :1]"}, {"BF.CADD f 5 v AT 1", "-" + staleText},
		{"BF.CADD f 5 v AT x", "[:1 :0 :0]"}, {"BF.CADD f 6 WITHSTATUS", "[:1]"},
		{"BF.CADD f 7 WITHSTATUS WITHSTATUS", "[[:0] :1]"},
		// An item may be called at, if AT follows, and 0 is no time.
		{"BF.CADD f 8 v at 1 AT 0 WITHSTATUS", "[[:0 :1 :0] :1]"},
		{"BF.CADD f 8 v at 1 WITHSTATUS AT 0", "[[:0 :1 :0] :0]"},
		{"BF.CADD a:f 1 x", "-ERR BF.CADD needs a table of MODE EXACT"},
		{"CMS.CINCRBY s 1 x 1", "-CMS: key does not exist"}, {"CMS.INITBYDIM s 100 3", "+OK"},
		{"CMS.INITBYDIM a:s 100 3", "+OK"},
		{"CMS.CINCRBY s 1 x 1 y 2", "[:1 :2]"}, {"CMS.INCRBY s x 5", "[:6]"},
		{"CMS.CINCRBY s 1 x 1 y 2", "[:6 :2]"},
		{"CMS.CINCRBY s 1 x 1 y 3", "-MISMATCH opid was used with other items or increments"},
		{"CMS.CINCRBY s 9 x 0 at 2 AT 0", "[:6 :2]"},
		{"CMS.CINCRBY s 9 x 0 at 2 WITHSTATUS AT 0", "[[:6 :2] :0]"},
		{"CMS.CINCRBY s 2 x 1 WITHSTATUS", "[[:7] :1]"}, {"CMS.CINCRBY s 2 x 1 WITHSTATUS", "[[:7] :0]"},
		{"CMS.CINCRBY s 3 x -7 y -3", "-CMS: INCRBY underflow"},
		{"CMS.CINCRBY s 3 y 1 x 4294967290", "-CMS: INCRBY overflow"}, {"CMS.QUERY s x y", "[:7 :2]"},
		{"CMS.CINCRBY s 3 AT 5", "[:5]"},
		{"CMS.CINCRBY s 4 x 1 y", "-ERR wrong number of arguments for 'cms.cincrby' command"},
		{"CMS.CINCRBY s 4 x y", "-CMS: Cannot parse number"},
		{"CMS.CINCRBY a:s 1 x 1", "[:1]"}, {"CMS.CINCRBY a:s 1 x 1 WITHSTATUS", "[[:1] :0]"},
		{"DEL s f", ":2"}, {"CMS.CINCRBY s 1 x 1 y 2", "-CMS: key does not exist"},
		{"BF.CADD f 1 x y x", "[:1 :1 :0]"}, {"EXISTS f", ":0"},
	})
	many := "BF.CADD f many" + strings.Repeat(" x", 65)
	c.play([]step{{many, "-ERR BF.CADD takes at most 64 items"},
		{"BF.CADD f " + strings.Repeat("i", 513) + " x", "-ERR opid must be 1 to 512 bytes"}})
}

// TestMergeKeys: of a MERGE the sources are keys too, which are only read.
func TestMergeKeys(t *testing.T) {
	srv := &Server{}
	st := newStore(t)
	c, u := dial(t, st, srv), dial(t, st, srv)
	c.play([]step{
		{"COMMAND GETKEYS CMS.MERGE d 2 a b WEIGHTS 1 2", `["d" "a" "b"]`},
		{"COMMAND GETKEYS CMS.MERGE d x a", "-ERR Invalid arguments specified for command"},
		{"COMMAND GETKEYSANDFLAGS CMS.MERGE d 1 a", "[[\"d\" [+RW +access +update]] [\"a\" [+RO +access]]]"},
		{"CMS.INITBYDIM d 5 2", "+OK"}, {"CMS.INITBYDIM a 5 2", "+OK"}, {"CMS.INITBYDIM b 5 2", "+OK"},
		{"ACL SETUSER u on nopass +@all ~d %R~a", "+OK"},
		{"ACL CAT sketch", `["bf.cadd" "cms.cincrby" "cms.innerprod"]`},
	})
	for _, category := range []string{"bloom", "cms"} {
		if got := c.say("ACL CAT " + category); strings.Contains(got, "cadd") ||
			strings.Contains(got, "cincr") || strings.Contains(got, "inner") {
			t.Errorf("of %s are %s", category, got)
		}
	}
	const denied = "-NOPERM this user has no permissions to access one of the keys used as arguments"
	u.play([]step{
		{"AUTH u x", "+OK"}, {"CMS.MERGE d 1 a", "+OK"},
		{"CMS.MERGE d 2 a b", denied}, {"CMS.MERGE a 1 d", denied}, {"CMS.INNERPROD a b", denied},
		{"CMS.MERGE d 9 a", "-CMS: wrong number of keys"}, {"CMS.MERGE b 9 a", denied},
	})
}

// TestLoadChunk moves a filter from one key to another, and what anybody may send instead is
// refused.
func TestLoadChunk(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.send("BF.RESERVE f 0.01 2000000", "BF.MADD f a b c")
	load := func(iterator int, data string) string {
		return c.bytes([]byte(fmt.Sprintf("*4\r\n$12\r\nBF.LOADCHUNK\r\n$1\r\ng\r\n$%d\r\n%d\r\n$%d\r\n%s\r\n", len(fmt.Sprint(iterator)), iterator, len(data), data)))
	}
	chunks := 0
	for iterator := 0; ; chunks++ {
		reply := c.send(fmt.Sprint("BF.SCANDUMP f ", iterator))
		var n int
		fmt.Sscanf(reply, "*2\r\n:%d\r\n$%d\r\n", &iterator, &n)
		data := reply[len(fmt.Sprintf("*2\r\n:%d\r\n$%d\r\n", iterator, n)):]
		if iterator == 0 {
			break
		}
		if got := load(iterator, data[:n]); got != "+OK\r\n" || n > 1<<20 {
			t.Fatalf("%d, %d bytes: %q", iterator, n, got)
		}
	}
	if a, b := c.say("BF.DEBUG f"), c.say("BF.DEBUG g"); a != b || chunks < 3 {
		t.Errorf("%s became %s in %d chunks", a, b, chunks)
	}
	c.play([]step{
		{"BF.MEXISTS g a c z", "[:1 :1 :0]"}, {"BF.LOADCHUNK g x y", "-ERR Second argument must be numeric"},
		{"BF.LOADCHUNK n x y", "-ERR Second argument must be numeric"}, {"SET s 1", "+OK"},
		{"BF.LOADCHUNK s 1 y", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"BF.SCANDUMP s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
	})
}
