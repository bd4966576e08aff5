package commands

import (
	"sync/atomic"
	"time"
)

// maxCommands bounds the table, so that the statistics need no allocation.
const maxCommands = 192

// commandStats counts, per command, what INFO commandstats shows. Pipelines
// add to it once per run of equal commands, not once per command.
type commandStats struct {
	all [maxCommands]struct {
		calls, rejections, failures, nanos atomic.Uint64
	}
	errors atomic.Uint64 // error replies of all kinds
}

// rejected counts a request refused before its arguments were looked at; c is
// nil if no command has the name.
func (s *commandStats) rejected(c *Command) {
	if c != nil {
		s.all[c.index].rejections.Add(1)
	}
}

// ran counts n calls of c that together took a time.
func (s *commandStats) ran(c *Command, n int, took time.Duration) {
	s.all[c.index].calls.Add(uint64(n))
	s.all[c.index].nanos.Add(uint64(took))
}

// ranAll counts a batch's slots. The time of a batch is shared evenly by its
// commands: they are executed as one and cannot be told apart.
func (s *commandStats) ranAll(slots []slot, took time.Duration) {
	each := took / time.Duration(len(slots))
	for i := 0; i < len(slots); {
		c, n := slots[i].cmd, 0
		for ; i < len(slots) && slots[i].cmd == c; i++ {
			n++
		}
		if c != nil {
			s.ran(c, n, each*time.Duration(n))
		}
	}
}

// failed counts an error reply; c is nil if it belongs to no command.
func (s *commandStats) failed(c *Command) {
	s.errors.Add(1)
	if c != nil {
		s.all[c.index].failures.Add(1)
	}
}

// total returns the number of commands carried out.
func (s *commandStats) total() uint64 {
	var n uint64
	for i := range s.all {
		n += s.all[i].calls.Load()
	}
	return n
}

// reset zeroes all counts (CONFIG RESETSTAT).
func (s *commandStats) reset() {
	for i := range s.all {
		e := &s.all[i]
		e.calls.Store(0)
		e.rejections.Store(0)
		e.failures.Store(0)
		e.nanos.Store(0)
	}
	s.errors.Store(0)
}
