package store

import "unsafe"

// What a key costs in memory beside its counter: its places in the table of hot
// counters, which is between three and six eighths full, and in the ring.
const (
	hotEntryBytes  = int64(unsafe.Sizeof(hotSlot{})) * 2
	ringEntryBytes = 8
)

// usage estimates the bytes that a key and its value hold in memory. The
// opids that were applied to a counter belong to its table, not to it.
func (c *counter) usage() int64 {
	n := sizeClassOf(unsafe.Sizeof(*c)) + hotEntryBytes + ringEntryBytes
	if c.expire != 0 {
		n += int64(unsafe.Sizeof(expiry{}))
	}
	if x := c.extra; x != nil {
		n += sizeClassOf(unsafe.Sizeof(*x)) + sizeClassOf(uintptr(len(x.key)))
	}
	if f := c.filter(); f != nil {
		n += sizeClassOf(unsafe.Sizeof(*f)) + int64(f.bytes())
	}
	return n
}

// sizeClassOf rounds up to about what Go's allocator gives: multiples of 16.
func sizeClassOf(n uintptr) int64 { return int64(n+15) &^ 15 }
