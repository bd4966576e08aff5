package wire

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// NoteName is the file in which a fetcher keeps the id of the offer that it collects.
const NoteName = "CUT"

// ErrTooLarge: the disk has no space for the files.
var ErrTooLarge = errors.New("the disk has no space for the files of the other node")

// Fetcher collects the files of an offer in a directory, over as many connections as that takes. What
// a broken connection or an earlier process has left there is used. Not safe for concurrent use.
type Fetcher struct {
	FS  vfs.FS
	Dir string
	// Subs are the directories in Dir in which there may be files.
	Subs []string
	// MinFree is how many bytes are left free on the disk.
	MinFree uint64
	// Begin is called before an offer's first byte is fetched, with how many bytes are there; Got for
	// all that has come. nil: nothing.
	Begin func(o *Offer, there int64)
	Got   func(bytes int)
	// written are the files all bytes of which this process has written, without a failed fsync
	// since. Of the others memory may have what is on no disk, and what no fsync would write
	// (disk.Renew).
	written map[string]bool
}

// Fetch returns when all files of a valid offer are in the directory, durable and checked, and
// nothing else is.
func (f *Fetcher) Fetch(c *Caller, o *Offer) error {
	if f.written == nil {
		f.written = map[string]bool{}
	}
	t := transfer{f: f, c: c, o: o, buf: make([]byte, MaxRead)}
	if err := t.begin(); err != nil {
		return err
	}
	return t.files()
}

// transfer is one connection over which files come.
type transfer struct {
	f     *Fetcher
	c     *Caller
	o     *Offer
	buf   []byte
	where map[string]int64 // by name: how many bytes of a file are there
}

// begin prepares the directory: it keeps those files that the offer has, whole, and those
// that are a part of one of the same offer, and removes all else.
func (t *transfer) begin() error {
	fsys, dir := t.f.FS, t.f.Dir
	noted, err := disk.ReadFile(fsys, fsys.PathJoin(dir, NoteName), int64(len(t.o.ID)))
	same := err == nil && string(noted) == t.o.ID
	wanted := make(map[string]File, len(t.o.Files))
	for _, file := range t.o.Files {
		wanted[file.Name] = file
	}
	t.where = make(map[string]int64)
	for _, sub := range append([]string{""}, t.f.Subs...) {
		if err := disk.MakeDir(fsys, fsys.PathJoin(dir, sub)); err != nil {
			return err
		}
		names, err := fsys.List(fsys.PathJoin(dir, sub))
		if err != nil {
			return err
		}
		for _, name := range names {
			if sub != "" {
				name = sub + "/" + name
			}
			file, ok := wanted[name]
			if err := t.keep(name, file, ok, same); err != nil {
				return err
			}
		}
	}
	if err := t.space(); err != nil || same {
		return err
	}
	if t.f.Begin != nil {
		t.f.Begin(t.o, t.there())
	}
	return disk.WriteFile(fsys, dir, NoteName, []byte(t.o.ID))
}

// keep decides what becomes of a file that is there.
func (t *transfer) keep(name string, file File, wanted, same bool) error {
	fsys, path := t.f.FS, t.f.FS.PathJoin(t.f.Dir, name)
	info, err := fsys.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() || name == NoteName:
		return nil
	case wanted && (info.Size() == file.Size || same && info.Size() < file.Size):
		t.where[name] = info.Size()
		return nil
	}
	return fsys.Remove(path)
}

// there returns how many bytes of the files are there.
func (t *transfer) there() (n int64) {
	for _, size := range t.where {
		n += size
	}
	return n
}

// space returns an error if the disk has no space for the missing bytes.
func (t *transfer) space() error {
	usage, err := t.f.FS.GetDiskUsage(t.f.Dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	need := uint64(t.o.Bytes()-t.there()) + t.f.MinFree
	if need > usage.AvailBytes {
		return fmt.Errorf("%w: it has %d bytes, and they need %d", ErrTooLarge, usage.AvailBytes, need)
	}
	return nil
}

// files fetches what is missing of each file.
func (t *transfer) files() error {
	for i := range t.o.Files {
		if err := t.file(i); err != nil {
			return fmt.Errorf("%s: %w", t.o.Files[i].Name, err)
		}
	}
	for _, sub := range append([]string{""}, t.f.Subs...) {
		if err := disk.SyncDir(t.f.FS, t.f.FS.PathJoin(t.f.Dir, sub)); err != nil {
			return err
		}
	}
	return disk.SyncName(t.f.FS, t.f.Dir)
}

// file fetches the missing part of a file, and checks the whole file. The part that was there
// before may be damaged: if the sum is wrong then, the file is fetched once more from its
// beginning.
func (t *transfer) file(i int) error {
	file, path := t.o.Files[i], t.f.FS.PathJoin(t.f.Dir, t.o.Files[i].Name)
	for {
		had, existed := t.where[file.Name]
		sum, err := t.rest(i, had)
		if err != nil {
			return err
		}
		if sum == file.Sum {
			return nil
		}
		delete(t.where, file.Name)
		if err := t.f.FS.Remove(path); err != nil {
			return err
		}
		if !existed {
			return fmt.Errorf("%w: the bytes that came do not have the checksum %08x", ErrProtocol, file.Sum)
		}
	}
}

// rest fetches a file from an offset on, durably, and returns the checksum of all of it. It writes
// the bytes of an earlier process once more.
func (t *transfer) rest(i int, from int64) (sum uint32, err error) {
	name := t.o.Files[i].Name
	out, err := t.f.FS.OpenReadWrite(t.f.FS.PathJoin(t.f.Dir, name), disk.WriteCategory)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if from == 0 || t.f.written[name] {
		sum, err = sumOfPart(out, from)
	} else {
		sum, err = renewPart(out, from)
	}
	t.f.written[name] = err == nil
	for at := from; err == nil && at < t.o.Files[i].Size; {
		var b []byte
		if b, err = t.read(i, at); err != nil {
			break
		}
		if _, err = out.WriteAt(b, at); err != nil {
			break
		}
		sum = crc32.Update(sum, disk.Castagnoli, b)
		at += int64(len(b))
		if t.f.Got != nil {
			t.f.Got(len(b))
		}
	}
	if err != nil {
		return 0, disk.NoSpace(err)
	}
	err = out.Sync()
	t.f.written[name] = err == nil
	return sum, err
}

// read asks for the next bytes of a file.
func (t *transfer) read(i int, at int64) ([]byte, error) {
	n := int(min(t.o.Files[i].Size-at, MaxRead))
	b, err := t.c.Do(Ask{Verb: VerbRead, Ask: ReadAsk{t.o.ID, i, at, n}, Limit: n, Into: t.buf,
		Within: readTime})
	if err == nil && len(b) != n {
		err = fmt.Errorf("%w: %d bytes instead of %d", ErrProtocol, len(b), n)
	}
	return b, err
}

// renewPart writes the first bytes of a file once more, so that the next fsync writes them to the
// disk, and returns their checksum.
func renewPart(f vfs.File, size int64) (sum uint32, err error) {
	buf := make([]byte, 256<<10)
	for at := int64(0); at < size; at += int64(len(buf)) {
		buf = buf[:min(size-at, int64(len(buf)))]
		if _, err := f.ReadAt(buf, at); err != nil {
			return 0, err
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, disk.Castagnoli, buf)
	}
	return sum, nil
}

// sumOfPart returns the checksum of the first bytes of a file.
func sumOfPart(f vfs.File, size int64) (uint32, error) {
	n, sum, err := sumOf(io.NewSectionReader(f, 0, size), func(int) {})
	if err == nil && n != size {
		err = fmt.Errorf("%w: it has %d bytes, not %d", fs.ErrInvalid, n, size)
	}
	return sum, err
}
