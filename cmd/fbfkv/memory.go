package main

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// idlePeriod is for how long no garbage collection must have been needed until
	// what a load left behind is given back. At load there are some a second.
	idlePeriod = 5 * time.Second
	// A collection must promise at least minGiveBack bytes, and 1/giveBackShare
	// of the live heap, with which its cost grows.
	minGiveBack   = 8 << 20
	giveBackShare = 4
	// A collection takes long where there are many pointers, and few are needed at load. So one more
	// period must pass for each scanShare that it scans, but fewer periods than the runtime itself waits.
	scanShare = 32 << 20
	mostIdle  = 20
	// minGarbage is how many bytes of garbage there may always be, and minGCPercent the least of
	// what is alive, until they are collected.
	minGarbage   = 64 << 20
	minGCPercent = 15
)

// giveMemoryBack gives free memory and garbage back to the operating system when
// a load has ended or fallen, until the returned func is called. The runtime alone
// collects as memory is allocated, at least every two minutes, and keeps what it
// expects to need again. trim lets go of memory that is only kept for reuse, and
// returns how many bytes became garbage.
func giveMemoryBack(trim func() int64) (stop func()) {
	k := memoryKeeper{trim: trim}
	if os.Getenv("GOGC") == "" {
		k.setGCPercent = debug.SetGCPercent
	}
	return every(idlePeriod, func() { k.look() })
}

// every calls fn from time to time, until the returned func is called, which waits for
// the last call.
func every(period time.Duration, fn func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fn()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// memoryKeeper looks at the heap from time to time.
type memoryKeeper struct {
	trim    func() int64
	cycles  uint64 // as of the last look
	trimmed uint64 // since the last collection
	idle    uint64 // looks since then

	setGCPercent func(int) int // nil: it stays
	gcPercent    int           // as it was set last
}

// look gives memory back if there is much of it and no collection since the last
// look, and reports whether it did.
func (k *memoryKeeper) look() bool {
	u := readMemoryUse()
	if p := u.gcPercent(); k.setGCPercent != nil && p != k.gcPercent {
		k.setGCPercent(p)
		k.gcPercent = p
	}
	if k.idle++; u.cycles != k.cycles {
		k.cycles, k.trimmed, k.idle = u.cycles, 0, 0
	}
	k.trimmed += uint64(k.trim())
	if k.idle < u.idleLooks() || !u.worthGivingBack(k.trimmed) {
		return false
	}
	debug.FreeOSMemory()
	k.cycles, k.trimmed, k.idle = readMemoryUse().cycles, 0, 0
	return true
}

// idleLooks is at how many looks in turn no collection must have been needed until memory is given back.
func (u memoryUse) idleLooks() uint64 { return min(1+u.scanned/scanShare, mostIdle) }

// memoryUse is what the Go heap consists of, in bytes.
type memoryUse struct {
	live    uint64 // at the last collection
	objects uint64 // live ones and garbage
	free    uint64 // neither in use nor given back
	cycles  uint64 // collections since the start
	scanned uint64 // by a collection: what may have pointers
}

func readMemoryUse() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/scan/heap:bytes"},
	}
	metrics.Read(samples)
	v := func(i int) uint64 { return samples[i].Value.Uint64() }
	return memoryUse{live: v(0), objects: v(1), free: v(2), cycles: v(3), scanned: v(4)}
}

// gcPercent is what GOGC should be, at most 100. The runtime's own lets as much garbage grow as
// there is alive. Filters and sketches have no pointers, so that a collection does not look at
// them, and need not be saved by letting garbage grow as large as they are.
func (u memoryUse) gcPercent() int {
	return int(min(100, max(minGCPercent, 100*max(u.scanned, minGarbage)/max(u.live, 1))))
}

// worthGivingBack reports whether so much is free, was trimmed, or came since the
// last collection and may be garbage, that a collection is worth its time.
func (u memoryUse) worthGivingBack(trimmed uint64) bool {
	return u.free+trimmed+max(u.objects, u.live)-u.live >= max(minGiveBack, u.live/giveBackShare)
}
