// Package compare measures package fbf beside other ways to remember ids for
// a window of time: rings of Bloom filters, an Age-Partitioned Bloom Filter, the
// paper's N-FBF, and an exact map. It is a module of its own, so that users of
// fbf do not inherit what it imports.
//
// Every contestant becomes a Window of the same length and the same false positive
// probability (FPP). A Contestant knows how to size one; a Stream drives it with
// one new id per millisecond of logged time, and with duplicates:
//
//	c := compare.Contestants(1e-6)[0]
//	w, err := c.New(c.IDsIn(4 << 20)) // as many ids as fit in 4 MiB
//	s := compare.NewStream(w, ids)
//	s.Fill(1.5)                       // one and a half windows: steady state
//	s.New(block)                      // 64 ids not seen before
//
// The benchmarks (go test -bench .) give absolute times on a quiet machine.
// The command in cmd/filterbench runs the contestants in turn, round by
// round, so that noise hits all alike, and reports ratios.
package compare
