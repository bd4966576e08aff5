//go:build unix

package persistence

import (
	"errors"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// lockHandle locks an open directory against other processes, and other handles of
// this one. A file system in memory, or one that cannot, has LOCK alone.
func lockHandle(d vfs.File) error {
	fd := d.Fd()
	if fd == vfs.InvalidFd {
		return nil
	}
	err := unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	return nil
}

// fileID returns what a file is, whatever its name: its device and inode.
func fileID(info vfs.FileInfo) (id [2]uint64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		id = [2]uint64{uint64(s.Dev), uint64(s.Ino)}
	}
	return id, ok
}

// blockBytes returns the bytes of a file's blocks.
func blockBytes(info vfs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(s.Blocks) * 512
	}
	return info.Size()
}
