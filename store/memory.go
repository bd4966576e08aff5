package store

import "unsafe"

// What a key costs in memory beside its bytes: its entry in the map of hot keys
// (a string header, a pointer and a byte of metadata in a table that is three
// quarters full on the average), and its place in the ring.
const (
	mapEntryBytes  = (16 + 8 + 1) * 4 / 3
	ringEntryBytes = 8
)

// usage estimates the bytes that a key and its value hold in memory. The
// opids that were applied to a counter belong to its table, not to it.
func (c *counter) usage() int64 {
	n := sizeClassOf(unsafe.Sizeof(*c)) + sizeClassOf(uintptr(len(c.key))) + mapEntryBytes + ringEntryBytes
	if c.expire != 0 {
		n += int64(unsafe.Sizeof(expiry{}))
	}
	if c.filter != nil {
		n += sizeClassOf(unsafe.Sizeof(*c.filter)) + int64(c.filter.bytes())
	}
	return n
}

// sizeClassOf rounds up to about what Go's allocator gives: multiples of 16.
func sizeClassOf(n uintptr) int64 { return int64(n+15) &^ 15 }
