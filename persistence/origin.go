package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// originName is the file of a backup that says what it is of: text of a line, which means nothing here,
// and a checksum line as in META. Open removes it: a directory that is used is no backup any more.
const (
	originName    = "SHARD"
	maxOriginSize = 64 << 10
)

// Describe has every backup that begins from now on say what it is of: it calls begin before it
// copies anything, and what that returns once it has copied everything. An error of either fails
// the backup; no bytes say nothing. Safe for concurrent use.
func (db *DB) Describe(begin func() (end func() ([]byte, error))) { db.describe.Store(&begin) }

// beginCopy returns the last step of a backup that begins, which makes aside a data directory.
func (db *DB) beginCopy() (end func(aside string) error) {
	origin := func() ([]byte, error) { return nil, nil }
	if begin := db.describe.Load(); begin != nil {
		origin = (*begin)()
	}
	return func(aside string) error {
		text, err := origin()
		if err != nil {
			return err
		}
		if len(text) > 0 {
			if err := disk.WriteFile(db.fs, aside, originName, sealed(text)); err != nil {
				return err
			}
		}
		return writeCopyOf(db.Meta(), db.fs, aside)
	}
}

// Used reports whether a server has ever opened a data directory: one that none has opened is a
// backup, or was restored. fsys nil is the machine's file system.
func Used(fsys vfs.FS, dir string) (bool, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	_, err := fsys.Stat(fsys.PathJoin(dir, buildName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func sealed(text []byte) []byte {
	return fmt.Appendf(bytes.Clone(text), "\nchecksum %08x\n", crc32.Checksum(text, disk.Castagnoli))
}

// ReadOrigin reads the META of the data directory or backup dir, and its origin, which names the
// source of a backup: nil if it has none. No server need have it open. Errors: fs.ErrNotExist if
// dir is neither, ErrCorrupt, ErrNewerFormat or ErrOldFormat.
func ReadOrigin(fsys vfs.FS, dir string) (meta Meta, origin []byte, err error) {
	b, err := disk.ReadFile(fsys, fsys.PathJoin(dir, metaName), metaMaxSize)
	if err == nil {
		meta, err = decodeMeta(b)
	}
	if err != nil {
		return meta, nil, err
	}
	b, err = disk.ReadFile(fsys, fsys.PathJoin(dir, originName), maxOriginSize)
	if errors.Is(err, fs.ErrNotExist) {
		return meta, nil, nil
	}
	end := bytes.IndexByte(b, '\n')
	if err == nil && (end < 0 || !bytes.Equal(sealed(b[:end]), b)) {
		err = disk.Corruptf("%s does not match its checksum", originName)
	}
	if err != nil {
		return meta, nil, err
	}
	return meta, b[:end], nil
}
