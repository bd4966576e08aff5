package integration

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// conformanceStep is one line of clients/conformance.jsonl.
type conformanceStep struct {
	Server, Await []string // words that are sent to the server
	Reply         any      // what they have as answer
	Lose          int      // so many answers to come are lost
	Do            string   // what the package does
	Want          map[string]any
}

// decimals are the packages that write and read decimals.
var decimals = map[string]bool{"go-redis": true}

// packageConformance plays the script for packages of all languages.
func packageConformance(t *testing.T, command []string) {
	script, err := os.ReadFile("../clients/conformance.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	p := startRelay(t, s)
	c := s.dial()
	d := startDriver(t, command, p.Addr().String(), 2*time.Second, patience)
	done := 0
	for i, line := range strings.Split(string(script), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		done++
		var step conformanceStep
		request := map[string]any{}
		if json.Unmarshal([]byte(line), &step) != nil || json.Unmarshal([]byte(line), &request) != nil {
			t.Fatalf("line %d is no step: %s", i+1, line)
		}
		want, _ := json.Marshal(step.Reply)
		switch {
		case step.Lose > 0:
			p.set(func(p *relay) { p.cuts = step.Lose })
		case step.Await != nil:
			eventually(t, patience, line, func() bool { return plain(c.do(step.Await...)) == string(want) })
		case step.Server != nil:
			if got := plain(c.do(step.Server...)); got != string(want) {
				t.Errorf("line %d: %s: %s", i+1, line, got)
			}
		case request["scale"] != nil && !decimals[driverName(t)]:
		default:
			delete(request, "want")
			got := d.await(d.ask(request)).fields
			for field, want := range step.Want {
				if !conforms(field, got[field], want) {
					t.Errorf("line %d: %s\nanswered %v", i+1, line, got)
					break
				}
			}
		}
	}
	if done < 60 {
		t.Errorf("only %d steps: was the script found?", done)
	}
}

// driverName returns the name of the driver that a test of TestPackages is about.
func driverName(t *testing.T) string { return strings.Split(t.Name(), "/")[1] }

// plain makes JSON of a reply. A status becomes a string.
func plain(reply string) string {
	if strings.HasPrefix(reply, "+") {
		return strconv.Quote(reply[1:])
	}
	return strings.ReplaceAll(strings.ReplaceAll(reply, ":", ""), " ", ",")
}

// conforms compares a field of an answer with the expected one. Times may be off by a minute.
func conforms(field string, got, want any) bool {
	if got == nil {
		got = ""
	}
	minute := map[string]int64{"ttl": 60_000, "retryAfter": 60, "fullAfter": 60}[field]
	n, err := strconv.ParseInt(toText(got), 10, 64)
	limit, err2 := strconv.ParseInt(toText(want), 10, 64)
	if minute > 0 && err == nil && err2 == nil && limit > minute {
		return n <= limit && n > limit-minute
	}
	return toText(got) == toText(want)
}

func toText(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	text, _ := json.Marshal(value)
	return string(text)
}
