package server

import (
	"strings"
	"testing"
)

// TestHotkeys: a search sees what all clients send, however they are served, and not what comes after it.
func TestHotkeys(t *testing.T) {
	for _, loop := range loops {
		s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet})
		admin, a, b := s.dial(t), s.dial(t), s.dial(t)
		a.expect(":1", "INCR", "before")
		admin.expect("+OK", "HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", "2")
		for range 10 {
			a.expect(":0", "EXISTS", "warm")
			b.send(frame("CINCRBY", "hot", "op", "1") + frame("GET", "hot") + frame("GET", "cold"))
			for range 3 {
				b.reply()
			}
		}
		a.expect("[0 []]", "SCAN", "0", "MATCH", "x")
		admin.expect("+OK", "HOTKEYS", "STOP")
		a.expect("$-1", "GET", "after")
		got := admin.do("HOTKEYS", "GET")
		for _, want := range []string{"[[tracking-active :0 sample-ratio :1 selected-slots [[:0 :16383]] ",
			" by-net-bytes [hot :740 warm :300]]]", " by-cpu-time-us [", " total-net-bytes :",
			" total-cpu-time-user-ms :", "all-commands-all-slots-us :"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", loop, got, want)
			}
		}
		admin.expect("+OK", "HOTKEYS", "RESET")
		admin.expect("*-1", "HOTKEYS", "GET")
	}
}
