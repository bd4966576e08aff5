package fbf

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages; a kernel without them serves small ones.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
