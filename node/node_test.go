package node

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/server"
)

// TestOpenFails: with an error there is no node that a caller could take for an open one.
func TestOpenFails(t *testing.T) {
	for _, member := range []bool{false, true} {
		fsys := vfs.NewMem()
		// a file where the data directory should be
		f, err := fsys.Create("dir", vfs.WriteCategoryUnspecified)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		config := server.DefaultConfig()
		config.Dir, config.Cluster.Enabled = "dir", member
		if n, err := Open(Options{FS: fsys, Config: config}); n != nil || err == nil {
			t.Errorf("as a member %v: %v, %v", member, n, err)
		}
	}
}
