package commands

import (
	"strconv"
	"strings"
	"testing"
)

func TestMemoryCommand(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.send("INCR short", "INCR "+strings.Repeat("long", 100), "FBF.RESERVE f BITS 80000 HASHES 3 REFRESH 1000 FIXED")
	usage := func(key string) int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimPrefix(c.say("MEMORY USAGE "+key+" SAMPLES 0"), ":"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	short, long, filter := usage("short"), usage(strings.Repeat("long", 100)), usage("f")
	if short < 50 || short > 500 || long < short+380 || filter < 2*80000/8 {
		t.Errorf("MEMORY USAGE: %d, %d, %d bytes", short, long, filter)
	}
	c.play([]step{{"MEMORY PURGE", "+OK"}, {"MEMORY DOCTOR", `"No memory issue was found in this instance.\n"`}})
	if got := c.say("MEMORY MALLOC-STATS"); !strings.Contains(got, "heap in use: ") {
		t.Error(got)
	}
	if got := c.say("MEMORY HELP"); !strings.Contains(got, "+USAGE key [SAMPLES count]") {
		t.Error(got)
	}
}
