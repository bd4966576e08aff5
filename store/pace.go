package store

import (
	"runtime"
	"time"
)

// timeSlice is how long work for a whole core goes on, about, before it gives way between
// two pieces, so that whoever serves clients does not wait for the end of a scheduler's
// time slice, which is twenty times as long. Not shorter: under full load those who serve
// clients give way after each round, of about a millisecond, and what is to be saved would
// pile up. Tests set it to zero.
var timeSlice = 500 * time.Microsecond

// giveWay lets other goroutines run. Tests count it.
var giveWay = runtime.Gosched

// pacer is the pace of work in pieces that take unlike times, for they wait for a lock.
// Its zero value is ready for use.
type pacer struct{ began time.Time }

// step is called between pieces of the work, without a lock.
func (p *pacer) step() {
	if time.Since(p.began) >= timeSlice {
		giveWay()
		p.began = time.Now()
	}
}

// giveWay is called between pieces of a checkpoint, without a lock. Nothing gives way
// while clients are delayed until what is to be saved has been.
func (c *checkpoint) giveWay() {
	if !c.s.late.Load() && !c.s.behind.Load() {
		c.pace.step()
	}
}
