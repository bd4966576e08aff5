package persistence

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// setDirect makes what f reads and writes from now on pass by the page cache
// (O_DIRECT, open(2)), or no longer. It reports whether it does as asked: not every
// file system can, and files in memory have no descriptor. The flag belongs to the
// open file; others of the same name are not touched.
func setDirect(f vfs.File, on bool) bool {
	fd := f.Fd()
	if fd == vfs.InvalidFd {
		return false
	}
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	if on {
		flags |= unix.O_DIRECT
	} else {
		flags &^= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(fd, unix.F_SETFL, flags)
	return err == nil
}
