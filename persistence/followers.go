package persistence

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// maxFollowers bounds the file of the followers' names, bytes.
const maxFollowers = 64 << 10

// Followers returns the names that SetFollowers has kept. The caller checks them.
func (db *DB) Followers() ([]string, error) {
	b, err := disk.ReadFile(db.fs, db.path(FollowersName), maxFollowers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(b)), wrap("read "+FollowersName, err)
}

// SetFollowers keeps the names of those who follow the op log, for the next Open. No name has blanks.
func (db *DB) SetFollowers(names []string) error {
	return wrap("write "+FollowersName, disk.WriteFile(db.fs, db.path(), FollowersName,
		[]byte(strings.Join(names, "\n")+"\n")))
}
