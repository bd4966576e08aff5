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

// pacer is the pace of work that has no natural measure of how much it has done. Its
// zero value is ready for use.
type pacer struct{ began time.Time }

// step is called between pieces of the work, without a lock. Work in a hurry does not
// give way.
func (p *pacer) step(hurry bool) {
	if now := time.Now(); !hurry && now.Sub(p.began) >= timeSlice {
		giveWay()
		p.began = time.Now()
	}
}
