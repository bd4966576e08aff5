package transfer

import (
	"bytes"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// TestExpiredOnTheWay: a key whose time is up when its page is to be written is not, and
// nothing else of the page needs the server here.
func TestExpiredOnTheWay(t *testing.T) {
	var out bytes.Buffer
	m := importer{out: &out, target: new(connect.Client)} // it connects when it must
	m.progress = bar.New(&out)
	p := page{asked: time.Now().Add(-time.Minute), records: []record{
		{key: "ran out meanwhile", value: "5", expiry: 60_000},
		{key: "was gone already", value: "", expiry: -2},
		{key: "is no counter", value: "x", expiry: -1},
	}}
	if err := m.write(p); err != nil || m.expired != 2 || m.skipped != 1 {
		t.Errorf("%v, %d have expired: %s", err, m.expired, out.String())
	}
}

func TestCounter(t *testing.T) {
	for text, valid := range map[string]bool{
		"0": true, "-1": true, "9223372036854775807": true, "-9223372036854775808": true,
		"": false, "-0": false, "+1": false, "01": false, " 1": false, "1.0": false, "9223372036854775808": false, "0x1": false, "1_0": false,
	} {
		r := record{value: text}
		if _, why := r.counter(); (why == "") != valid {
			t.Errorf("%q: %s", text, why)
		}
	}
}
