// Package sketch has two summaries of a stream that are far smaller than the stream:
//
//	Bloom     which items were in it: no false "no", and a bounded share of false "yes"
//	CountMin  how often each item was in it: never too few, and rarely far too many
//
// Bits, cells and hashes are RedisBloom's, so that summaries can move between the two.
//
// # Deciding and redoing
//
// A sketch changes in two steps. First its methods say what a request means: which items
// are new, whether a pair would overflow, what a merge makes; the result is encoded by one
// of the Append functions. Then Redo makes the change. The caller writes the change to a
// log in between, with a sequence, and after a crash redoes from the log what the disk
// lacks. Redo decides nothing.
//
// # Pages
//
// A Bloom filter's bits may be set twice. Counts may not be added twice, and a sketch of
// 80 MB is too large to be written whole at each checkpoint. So the memory of a sketch is
// cut into pages (Pages). A page knows the sequence of the last change that it has, and
// Redo leaves out what a page has already. A checkpoint writes those that are dirty:
// TakeDirty says which, TakePage hands them out, LoadPage puts them back at the next
// start. Page 0 is the header, with counts and sizes. A page that does not exist on disk is
// zero.
//
// # Where it is
//
//	pages.go     Pages, Sketch, and what moves pages to and from the disk
//	bloom.go     Bloom: options, header, sub-filters; chunk.go its dump
//	countmin.go  CountMin: options, cells, increments, merge; window.go those with a window
//	hash.go      MurmurHash
//
// Nothing here is safe for concurrent use, knows keys, reads a clock, or writes to disk.
package sketch
