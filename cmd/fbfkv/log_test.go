package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/server"
)

// TestDurationsHaveUnits in both formats of the log, and levels Redis' names.
func TestDurationsHaveUnits(t *testing.T) {
	for format, want := range map[string]string{"json": `"took":"1.5s"`, "text": "took=1.5s"} {
		c := server.DefaultConfig()
		c.LogFormat = format
		var out strings.Builder
		log, err := openLog(c, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("done", "took", 1500*time.Millisecond)
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "notice") {
			t.Errorf("%s: %s", format, out.String())
		}
		if format == "json" && !json.Valid([]byte(out.String())) {
			t.Errorf("no JSON: %s", out.String())
		}
	}
}
