//go:build !linux

package persistence

import "github.com/cockroachdb/pebble/v2/vfs"

// setDirect reports whether f passes by the page cache, which it never does here.
func setDirect(_ vfs.File, on bool) bool { return !on }
