//go:build !(amd64 || arm64) || purego

package fbf

import "sync/atomic"

// sink keeps the loads of prefetch from being optimised away.
var sink atomic.Uint64

// prefetch asks for the first n lines of p by loading a word of each.
func (s *segment) prefetch(p *probes, n int) {
	var x uint64
	for i := 0; i < n && i < maxProbes; i++ {
		x |= s.lines[p.at[i]][0]
	}
	if x == 0 { // rarely: empty lines
		sink.Store(x)
	}
}
