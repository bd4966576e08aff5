//go:build !unix

package persistence

import "github.com/cockroachdb/pebble/v2/vfs"

// lockHandle does nothing: LOCK is all there is.
func lockHandle(vfs.File) error { return nil }

// fileID cannot tell.
func fileID(vfs.FileInfo) (id [2]uint64, ok bool) { return id, false }

// blockBytes returns the bytes of a file.
func blockBytes(info vfs.FileInfo) int64 { return info.Size() }
