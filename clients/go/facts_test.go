package fbfkv

import (
	"testing"
	"time"
)

// TestFacts: the longest prefix decides; what is a minute old is asked for again, by one.
func TestFacts(t *testing.T) {
	f := facts{known: true, asked: time.Now().Add(-2 * refreshEvery), server: time.UnixMilli(1700000000000),
		tables: []table{{"long", "page:home:", 0}, {"short", "page:", time.Second},
			{"default", "", time.Hour}}}
	for key, want := range map[string]time.Duration{"page:home:x": 0, "page:home": time.Second,
		"other": time.Hour} {
		if _, window, _ := f.get(key); window != want {
			t.Errorf("%s: %v, want %v", key, window, want)
		}
	}
	f.refreshing = false
	now, _, refresh := f.get("x")
	if ahead := now.Sub(time.UnixMilli(1700000000000)); ahead < 2*refreshEvery || !refresh {
		t.Errorf("the server's time went on by %v, refresh %v", ahead, refresh)
	}
	if _, _, refresh := f.get("x"); refresh {
		t.Error("two ask at the same time")
	}
	f.forget()
	if _, window, _ := f.get("other"); window != 0 {
		t.Error("what is forgotten is still known")
	}
}
