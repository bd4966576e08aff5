//go:build (amd64 || arm64) && !purego

package fbf

import "unsafe"

// prefetchLines asks for the n lines at[0..n-1] of the array at lines without waiting for
// them. Loads in plain Go hold up the processor's reorder buffer, which
// costs about twice the time in memory larger than the caches.
//
//go:noescape
func prefetchLines(lines unsafe.Pointer, at *uint64, n int)

// prefetch asks for the first n lines of p.
func (s *segment) prefetch(p *probes, n int) {
	prefetchLines(unsafe.Pointer(unsafe.SliceData(s.lines)), &p.at[0], min(n, maxProbes))
}
