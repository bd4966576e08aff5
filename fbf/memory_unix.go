//go:build unix

package fbf

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func mapMemory(n uint64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("%w: mapping %d bytes: %w", ErrMemory, n, err)
	}
	adviseHuge(b)
	return b, nil
}

// unmapMemory gives b back. munmap of what mmap returned can only fail if b
// was unmapped before, which would be a bug here.
func unmapMemory(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic(fmt.Sprintf("fbf: munmap: %v", err))
	}
}
