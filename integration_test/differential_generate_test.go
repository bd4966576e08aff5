package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/commands"
)

// generatedScripts makes the scripts that follow from the command table: every
// command that both servers know with too few and too many arguments, what
// COMMAND says of it, and a long random one.
func generatedScripts(t *testing.T) []*script {
	known := knownToRedis(t)
	var common []*commands.Command
	for _, c := range commands.Commands.All() {
		if known[c.Name] {
			common = append(common, c)
		}
	}
	if len(common) < 60 {
		t.Fatalf("only %d of our commands are known to Redis", len(common))
	}
	return []*script{arityScript(t, common, known), commandScript(t, common, known), randomScript(t, common)}
}

// knownToRedis asks a real Redis for the names of its commands and
// subcommands.
func knownToRedis(t *testing.T) map[string]bool {
	s := newSide(t, "Redis", startRedis(t, "--save", ""), "2")
	known := map[string]bool{}
	for _, r := range s.ask("", frame("COMMAND")).elements {
		known[r.elements[0].text] = true
		for _, sub := range r.elements[9].elements {
			known[sub.elements[0].text] = true
		}
	}
	return known
}

// add appends a step to a generated script.
func (s *script) add(t testing.TB, line string) {
	t.Helper()
	e, err := parseStep(line)
	if err != nil {
		t.Fatal(err)
	}
	e.where = fmt.Sprintf("%s, step %d", s.name, len(s.steps)+1)
	s.steps = append(s.steps, e)
}

// arityScript sends every command with one argument too few and too many.
func arityScript(t *testing.T, common []*commands.Command, known map[string]bool) *script {
	s := &script{name: "arity"}
	var add func(c *commands.Command)
	add = func(c *commands.Command) {
		words := strings.Split(strings.ToUpper(c.FullName()), "|")
		least := max(c.Arity, -c.Arity)
		if n := least - 1 - len(words); n >= 0 {
			s.add(t, "> "+strings.Join(words, " ")+strings.Repeat(" 1", n))
		}
		if c.Arity > 0 {
			s.add(t, "> "+strings.Join(words, " ")+strings.Repeat(" 1", least+1-len(words)))
		}
		for i := range c.Subcommands {
			if sub := &c.Subcommands[i]; known[sub.FullName()] {
				add(sub)
			}
		}
		if c.Subcommands != nil {
			s.add(t, "> "+words[0]+" NOSUCH")
			s.add(t, "> "+words[0]+" NOSUCH a b")
		}
	}
	for _, c := range common {
		add(c)
	}
	return s
}

// commandScript asks COMMAND about every command.
func commandScript(t *testing.T, common []*commands.Command, known map[string]bool) *script {
	s := &script{name: "command-info"}
	for _, c := range common {
		if c.Refusal != "" {
			continue
		}
		if c.Subcommands == nil {
			s.add(t, "> COMMAND INFO "+c.Name)
		}
		for i := range c.Subcommands {
			if sub := &c.Subcommands[i]; known[sub.FullName()] {
				s.add(t, "> COMMAND INFO "+sub.FullName())
			}
		}
	}
	return s
}

// The random script: its length and the seed it is drawn with.
const (
	randomSteps = 4000
	randomSeed  = 20110613
)

// drawn are the commands of the random script: those whose reply depends on
// the keys and arguments alone. The replies of some come near each other only.
var drawn = map[string]string{
	"ttl": "near", "pttl": "near", "expiretime": "near", "pexpiretime": "near", "keys": "sorted",
	"dbsize": "", "ping": "", "echo": "", "multi": "", "exec": "", "discard": "", "watch": "", "unwatch": "",
}

// generator draws the random script.
type generator struct {
	*rand.Rand
	inMulti, near bool
	future        bool // no time that has passed: who notices when is free
}

// randomScript draws commands of the table with arguments as the table
// documents them, some of them wrong.
func randomScript(t *testing.T, common []*commands.Command) *script {
	s := &script{name: "random"}
	g := &generator{Rand: rand.New(rand.NewPCG(randomSeed, randomSeed))}
	var pool []*commands.Command
	for _, c := range common {
		_, listed := drawn[c.Name]
		isKeyed := c.Parse != nil && (c.Group == "string" || c.Group == "generic")
		// INCRBYFLOAT is for tables with SCALE, which Redis has not.
		if c.Refusal == "" && (listed || isKeyed && c.Name != "object" && c.Name != "incrbyfloat") {
			pool = append(pool, c)
		}
	}
	if len(pool) < 30 {
		t.Fatalf("only %d commands to draw from", len(pool))
	}
	for len(s.steps) < randomSteps {
		if c := pool[g.IntN(len(pool))]; !g.inMulti || c.Name != "keys" && c.Name != "dbsize" {
			s.add(t, g.step(c))
		}
		if len(s.steps)%500 == 0 {
			s.add(t, "> FLUSHALL")
		}
	}
	return s
}

// step draws one command.
func (g *generator) step(c *commands.Command) string {
	args := []string{c.Name}
	if g.IntN(2) == 0 {
		args[0] = strings.ToUpper(c.Name)
	}
	g.future = c.Name == "set"
	for _, a := range c.Args {
		args = g.arg(args, a)
	}
	switch g.IntN(40) {
	case 0:
		args = append(args, g.pick("1", "NX", "GET", "foo", "10"))
	case 1:
		if len(args) > 1 {
			args = args[:len(args)-1]
		}
	}
	name := drawn[c.Name]
	switch {
	case c.Name == "multi":
		g.inMulti = true
	case c.Name == "exec" && g.near:
		name = "near"
		fallthrough
	case c.Name == "exec" || c.Name == "discard":
		g.inMulti, g.near = false, false
	case name == "near" && g.inMulti:
		g.near = true
	}
	if name != "" {
		name = "~" + name
	}
	return ">" + name + " " + strings.Join(args, " ")
}

// arg draws one argument.
func (g *generator) arg(args []string, a commands.Arg) []string {
	if a.Optional && g.IntN(4) > 0 {
		return args
	}
	times := 1
	if a.Multiple {
		times += g.IntN(4)
	}
	if a.Token != "" && a.Type != commands.TypePureToken {
		args = append(args, g.anyCase(a.Token))
	}
	for range times {
		switch a.Type {
		case commands.TypePureToken:
			args = append(args, g.anyCase(a.Token))
		case commands.TypeOneOf:
			args = g.arg(args, a.Args[g.IntN(len(a.Args))])
		case commands.TypeBlock:
			for _, part := range a.Args {
				args = g.arg(args, part)
			}
		default:
			args = append(args, g.value(a))
		}
	}
	return args
}

// oddIntegers are no integers in Redis' eyes, or the greatest there are.
var oddIntegers = []string{"9223372036854775807", "-9223372036854775808", "9223372036854775808", "abc", "1.5",
	`""`, "+1", "01", "-0", `" 1"`}

// value draws an argument other than a keyword.
func (g *generator) value(a commands.Arg) string {
	odd := g.IntN(12) == 0
	isTime := strings.Contains(a.Name, "seconds")
	switch {
	case a.Type == commands.TypeKey:
		return g.pick("a", "b", "c", "d", "e", "{t}1", "{t}2", `"with space"`, `"\x00\xff"`)
	case a.Type == commands.TypePattern:
		return g.pick("*", "?", "a*", "[a-c]", "[^a]", "{t}*", "nothing", `\\?`)
	case odd && (a.Type == commands.TypeInteger || a.Type == commands.TypeUnixTime):
		return oddIntegers[g.IntN(len(oddIntegers))]
	case a.Type == commands.TypeUnixTime && g.future:
		return g.pick("9999999999999", strconv.Itoa(4e12+g.IntN(1e9)))
	case a.Type == commands.TypeUnixTime && strings.Contains(a.Name, "milli"):
		return g.pick("9999999999999", strconv.Itoa(4e12+g.IntN(1e9)), "1", "0", "-5")
	case a.Type == commands.TypeUnixTime:
		return g.pick("9999999999", strconv.Itoa(4e9+g.IntN(1e6)), "1", "0", "-5")
	case isTime && strings.Contains(a.Name, "milli"): // far enough not to come true
		return g.pick(strconv.Itoa(1e6+g.IntN(1e9)), strconv.Itoa(1e6+g.IntN(1e9)),
			strconv.Itoa(1e6+g.IntN(1e9)), "0", "-1000")
	case isTime:
		return g.pick(strconv.Itoa(1e3+g.IntN(1e6)), strconv.Itoa(1e3+g.IntN(1e6)),
			strconv.Itoa(1e3+g.IntN(1e6)), "0", "-1")
	}
	n := slices.Max([]int64{g.Int64N(100), g.Int64N(1000)}) - 300
	if g.IntN(20) == 0 {
		n = int64(g.Uint64())
	}
	return strconv.FormatInt(n, 10)
}

// pick draws one of several words.
func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

// anyCase writes a keyword in upper or lower case.
func (g *generator) anyCase(token string) string {
	if g.IntN(2) == 0 {
		return strings.ToLower(token)
	}
	return token
}
