package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

const (
	// RegionsName is a file in which a region keeps where the nodes of others are. It may be lost.
	RegionsName = "REGIONS"
	// FollowersName is a file with the names of those who follow the op log, one a line. It may be lost.
	FollowersName = "FOLLOWERS"
	// ValuesName is the file of a node's own values, WitnessName that of what the node remembers of
	// others: it is written often, and no vote waits for it.
	ValuesName  = "CLUSTER"
	WitnessName = "WITNESS"
	valuesMagic = "fbfkvnod"
	// valuesCopy is the size of each of the two copies in it, valuesMost what their
	// values may take.
	valuesCopy   = 1 << 20
	valuesHeader = 8 + 8 + 4
	valuesMost   = valuesCopy - valuesHeader - 4
)

// Values are a few named values that belong to this node of a cluster alone, such as its
// id and its votes: no backup and no restored directory has them. They lie in a file of
// the data directory, in two copies, which are written one after the other, in place: one
// that a crash tears, or that rots, leaves the other, which has all that was acknowledged.
// A full disk does not matter. Safe for concurrent use.
type Values struct {
	name       string // of the file
	mu         longlock.Mutex
	file       vfs.File
	generation uint64
	values     map[string][]byte
	failed     disk.Failure
	unsettled  atomic.Bool // some of the values are in memory only
	work       disk.Work
}

// OpenValues opens the values of a data directory, both of which are made if they are
// missing, and locks them. ErrInUse, ErrCorrupt, or an error of the file system.
func OpenValues(fsys vfs.FS, dir string) (*Values, error) { return openValues(fsys, dir, ValuesName) }

// OpenWitness does the same with the values in the file WitnessName.
func OpenWitness(fsys vfs.FS, dir string) (*Values, error) { return openValues(fsys, dir, WitnessName) }

func openValues(fsys vfs.FS, dir, name string) (*Values, error) {
	v := &Values{name: name, values: make(map[string][]byte)}
	if err := v.open(fsys, dir); err != nil {
		if v.file != nil {
			err = errors.Join(err, v.file.Close())
		}
		return nil, fmt.Errorf("%s of data directory %s: %w", name, dir, err)
	}
	return v, nil
}

func (v *Values) open(fsys vfs.FS, dir string) error {
	path := fsys.PathJoin(dir, v.name)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := disk.MakeDir(fsys, dir); err != nil {
			return err
		}
		content := make([]byte, 2*valuesCopy)
		n := copy(content, v.encode(v.values))
		copy(content[valuesCopy:], content[:n])
		if err := disk.WriteFile(fsys, dir, v.name, content); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	f, err := fsys.OpenReadWrite(path, disk.WriteCategory)
	if err != nil {
		return err
	}
	v.file = f
	if err := lockHandle(f); err != nil {
		return err
	}
	content := make([]byte, 2*valuesCopy)
	if _, err := f.ReadAt(content, 0); err != nil {
		return disk.Corruptf("it cannot be read whole: %v", err)
	}
	if err := v.decode(content); err != nil {
		return err
	}
	// The node acts upon the values that it has read, so from now on both copies have them, and the
	// file its name: they may have been in memory only. To write them makes pages dirty that a
	// failed fsync has left clean.
	if err := disk.SyncDir(fsys, dir); err != nil {
		return err
	}
	return v.write(v.encode(v.values))
}

// encode encodes values as a copy of the present generation.
//
//	"fbfkvnod" | generation u64 | length u32 | length bytes | CRC u32
//
// The bytes are, for each value by ascending name: length u16 | name | length u32 | value.
func (v *Values) encode(values map[string][]byte) []byte {
	b := append([]byte(nil), valuesMagic...)
	b = binary.BigEndian.AppendUint64(b, v.generation)
	b = append(b, 0, 0, 0, 0)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(values[name])))
		b = append(b, values[name]...)
	}
	binary.BigEndian.PutUint32(b[valuesHeader-4:], uint32(len(b)-valuesHeader))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, disk.Castagnoli))
}

// decode takes the values of the newer of two copies.
func (v *Values) decode(content []byte) error {
	generation, values, ok := decodeValues(content[:valuesCopy])
	generation2, values2, ok2 := decodeValues(content[valuesCopy:])
	if !ok && !ok2 {
		return disk.Corruptf("both copies are damaged")
	}
	if !ok || ok2 && generation2 > generation {
		generation, values = generation2, values2
	}
	v.generation, v.values = generation, values
	return nil
}

// decodeValues decodes a copy, if it is whole.
func decodeValues(b []byte) (generation uint64, values map[string][]byte, ok bool) {
	size := binary.BigEndian.Uint32(b[valuesHeader-4:])
	if string(b[:8]) != valuesMagic || size > valuesMost {
		return 0, nil, false
	}
	end := valuesHeader + int(size)
	if binary.BigEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], disk.Castagnoli) {
		return 0, nil, false
	}
	values = make(map[string][]byte)
	last := ""
	for rest := b[valuesHeader:end]; len(rest) > 0; {
		name, after, ok := cutBytes(rest, 2)
		if !ok {
			return 0, nil, false
		}
		value, after, ok := cutBytes(after, 4)
		if !ok || string(name) <= last {
			return 0, nil, false
		}
		last, rest = string(name), after
		values[last] = bytes.Clone(value)
	}
	return binary.BigEndian.Uint64(b[8:]), values, true
}

// cutBytes cuts off what begins with its length, an integer of so many bytes.
func cutBytes(b []byte, width int) (content, rest []byte, ok bool) {
	if len(b) < width {
		return nil, nil, false
	}
	n := 0
	for _, c := range b[:width] {
		n = n<<8 | int(c)
	}
	if b = b[width:]; n > len(b) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// Get returns a value, nil if there is none. The caller may keep but not change it.
func (v *Values) Get(name string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.values[name], v.failed.Err()
}

// Set sets a value, or deletes it if it is nil, durably. Names have 1 to 255 bytes; all
// values take at most about 1 MiB. After an ErrFailed the outcome is unknown and nothing
// more is accepted (G8); after another error nothing has changed.
func (v *Values) Set(name string, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	values, err := v.with(name, value)
	if err != nil {
		return err
	}
	return v.settle(values)
}

// SetSoon sets a value as Set does, but durably only with the next Set or Settle: several that
// follow each other cost no more than one. Until then it must not be acted upon.
func (v *Values) SetSoon(name string, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	values, err := v.with(name, value)
	if err == nil {
		v.values = values
		v.unsettled.Store(true)
	}
	return err
}

// Settle makes durable what SetSoon has set. It costs next to nothing if that is so already.
func (v *Values) Settle() error {
	if !v.unsettled.Load() {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.failed.Err(); err != nil || !v.unsettled.Load() {
		return err
	}
	return v.settle(v.values)
}

// with returns the values with another one.
func (v *Values) with(name string, value []byte) (map[string][]byte, error) {
	if err := v.failed.Err(); err != nil {
		return nil, err
	}
	values := maps.Clone(v.values)
	if values[name] = bytes.Clone(value); value == nil {
		delete(values, name)
	}
	if name == "" || len(name) > 255 || len(v.encode(values)) > valuesCopy {
		return nil, fmt.Errorf("%w: value %q of %d bytes", ErrBadOptions, name, len(value))
	}
	return values, nil
}

// settle writes values, which become the present ones.
func (v *Values) settle(values map[string][]byte) error {
	v.generation++
	if err := v.write(v.encode(values)); err != nil {
		return v.failed.Set(fmt.Errorf("%w: write %s: %w", ErrFailed, v.name, err))
	}
	v.values = values
	v.unsettled.Store(false)
	return nil
}

// write writes both copies: the second one only when the first one is durable.
func (v *Values) write(b []byte) error {
	for at := range int64(2) {
		err := v.work.Do(func() error {
			_, err := v.file.WriteAt(b, at*valuesCopy)
			return err
		})
		if err == nil {
			err = v.work.Do(v.file.SyncData)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Work are the calls of the disk, for a watchdog.
func (v *Values) Work() *disk.Work { return &v.work }

// Close closes the file and gives up the lock.
func (v *Values) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.failed.Set(ErrClosed)
	return v.file.Close()
}
