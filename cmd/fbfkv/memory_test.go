package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMemoryIsGivenBack: garbage goes once no collection has been needed for a
// while, and not before; so does what the store lets go of.
func TestMemoryIsGivenBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection but those asked for
	const size = 64 << 20
	held := make([]byte, size)
	k := memoryKeeper{trim: func() int64 {
		if held == nil {
			return 0
		}
		held = nil
		return size
	}}
	runtime.GC()
	if k.look() {
		t.Error("a collection while others come")
	}
	// held is garbage that counts as alive: only trim knows.
	before := readMemoryUse()
	if !k.look() {
		t.Errorf("%+v: what was trimmed is not given back", before)
	}
	after := readMemoryUse()
	if after.objects+size/2 > before.objects || after.free > minGiveBack {
		t.Errorf("%+v, then %+v", before, after)
	}
	if k.look() {
		t.Error("a collection for nothing")
	}
	garbage = make([]byte, size)
	garbage = nil
	if !k.look() {
		t.Error("garbage is not given back")
	}
	if u := readMemoryUse(); u.objects > after.objects+size/2 {
		t.Errorf("%+v, then %+v", after, u)
	}
}

// garbage keeps an allocation from being left out.
var garbage []byte

func TestWorthGivingBack(t *testing.T) {
	const mb = 1 << 20
	for _, tc := range []struct {
		what    string
		use     memoryUse
		trimmed uint64
		want    bool
	}{
		{"nothing", memoryUse{live: 10 * mb, objects: 10 * mb}, 0, false},
		{"a little garbage", memoryUse{live: 10 * mb, objects: 17 * mb}, 0, false},
		{"garbage", memoryUse{live: 10 * mb, objects: 18 * mb}, 0, true},
		{"free memory", memoryUse{live: 10 * mb, objects: 10 * mb, free: 8 * mb}, 0, true},
		{"trimmed", memoryUse{live: 10 * mb, objects: 10 * mb}, 8 * mb, true},
		{"some of each", memoryUse{live: 10 * mb, objects: 13 * mb, free: 3 * mb}, 2 * mb, true},
		{"a large heap", memoryUse{live: 1000 * mb, objects: 1200 * mb, free: 49 * mb}, 0, false},
		{"a large heap with more garbage", memoryUse{live: 1000 * mb, objects: 1200 * mb, free: 50 * mb}, 0,
			true},
		{"less than at the last collection", memoryUse{live: 100 * mb, objects: 50 * mb}, 0, false},
	} {
		if got := tc.use.worthGivingBack(tc.trimmed); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
}

// TestIdleLooks: a large heap is collected seldom, as that takes seconds.
func TestIdleLooks(t *testing.T) {
	for scanned, want := range map[uint64]uint64{0: 1, 31 << 20: 1, 32 << 20: 2, 320 << 20: 11, 4 << 30: 20} {
		if got := (memoryUse{scanned: scanned}).idleLooks(); got != want {
			t.Errorf("%d bytes to scan: %d looks, want %d", scanned, got, want)
		}
	}
}

// TestGarbageGrowsLess: filters do not let garbage grow as large as they are.
func TestGarbageGrowsLess(t *testing.T) {
	for _, tt := range []struct {
		live, scanned uint64
		want          int
	}{
		{0, 0, 100},
		{64 << 20, 1 << 20, 100},
		{200 << 20, 1 << 20, 32},
		{2 << 30, 1 << 20, minGCPercent},
		{2 << 30, 1 << 30, 50},
		{1 << 30, 1 << 30, 100},
		{1 << 30, 2 << 30, 100},
	} {
		if got := (memoryUse{live: tt.live, scanned: tt.scanned}).gcPercent(); got != tt.want {
			t.Errorf("%d of %d bytes may have pointers: %d %%, want %d", tt.scanned, tt.live, got, tt.want)
		}
	}
	set := 0
	k := memoryKeeper{trim: func() int64 { return 0 }, setGCPercent: func(p int) int { set = p; return 100 }}
	if k.look(); set != 100 {
		t.Errorf("a small heap has a GOGC of %d", set)
	}
}
