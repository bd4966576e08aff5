package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

const (
	// manifestName is the file in which a node keeps the manifest of what it is fetching.
	manifestName = "CUT"
	// askAgain is how long a node waits while the leader makes a cut.
	askAgain = 200 * time.Millisecond
	// A broken transfer is tried again after retryFirst, then each time after twice as long,
	// up to retryMost.
	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second
)

// errTooLarge: the disk has no space for the leader's files.
var errTooLarge = errors.New("the disk has no space for the files of the leader")

// fetcher collects the files of another node.
type fetcher struct {
	o      fetcherOptions
	counts Transfers
	// written are the files all bytes of which this process has written, without a failed fsync
	// since. Of the others memory may have what is on no disk, and what no fsync would write
	// (disk.Renew).
	written map[string]bool
}

// fetcherOptions configure a fetcher. All but the times are required.
type fetcherOptions struct {
	fs vfs.FS
	// dir is where the files are collected. What a broken transfer has left there is used.
	dir string
	// dial connects to the node that is to be asked, the leader.
	dial func(ctx context.Context) (net.Conn, error)
	// last is the index and the term of the last entry of this node's log.
	last func() (index, term uint64)
	// examine says what is wrong with all files together.
	examine func(dir string, m *manifest) error
	// minFree is how many bytes are left free on the disk.
	minFree uint64
	log     *slog.Logger
	// retryFirst and askAgain: the constants, by default.
	retryFirst, askAgain time.Duration
}

func newFetcher(o fetcherOptions) *fetcher {
	if o.retryFirst == 0 {
		o.retryFirst = retryFirst
	}
	if o.askAgain == 0 {
		o.askAgain = askAgain
	}
	return &fetcher{o: o, written: map[string]bool{}}
}

// fetch returns when all files of a cut are in the directory, durable and examined. It tries
// again until ctx is done. errNotBehind: the leader has what this node needs in its log.
func (f *fetcher) fetch(ctx context.Context) (*manifest, error) {
	f.counts.begun.Add(1)
	last := ""
	for pause := f.o.retryFirst; ; pause = min(2*pause, retryMost) {
		before := f.counts.bytes.Load()
		m, err := f.attempt(ctx)
		switch {
		case err == nil:
			f.counts.finished.Add(1)
			return m, nil
		case ctx.Err() != nil:
			f.counts.failed.Add(1)
			return nil, ctx.Err()
		case errors.Is(err, errNotBehind):
			f.counts.failed.Add(1)
			return nil, err
		}
		if f.counts.bytes.Load() > before {
			pause = f.o.retryFirst
		}
		if err.Error() != last { // once for each reason
			last = err.Error()
			f.o.log.Warn("the leader's files cannot be fetched now; this node tries again", "error", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// attempt fetches what is missing over one connection.
func (f *fetcher) attempt(ctx context.Context) (*manifest, error) {
	conn, err := f.o.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	t := transfer{f: f, conn: conn, buf: make([]byte, maxRead)}
	if t.m, err = t.manifest(ctx); err != nil {
		return nil, err
	}
	if err := t.begin(); err != nil {
		return nil, err
	}
	if err := t.files(); err != nil {
		return nil, err
	}
	if err := f.o.examine(f.o.dir, t.m); err != nil {
		// Sums say that it is what the leader has: another cut may be better.
		return nil, errors.Join(fmt.Errorf("the fetched files cannot be used: %w", err),
			f.o.fs.RemoveAll(f.o.dir))
	}
	_, _ = t.ask(question{verb: verbDone, cut: t.m.id()}, nil, maxReason) // otherwise it finds out
	return t.m, nil
}

// transfer is one connection over which files come.
type transfer struct {
	f     *fetcher
	conn  net.Conn
	m     *manifest
	buf   []byte
	where map[string]int64 // by name: how many bytes of a file are there
}

// ask asks a question.
func (t *transfer) ask(q question, dst []byte, limit int) ([]byte, error) {
	if err := t.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	b := q.encode()
	if _, err := t.conn.Write(b[:]); err != nil {
		return nil, err
	}
	return readAnswer(t.conn, dst, limit)
}

// manifest asks for a manifest until there is one.
func (t *transfer) manifest(ctx context.Context) (*manifest, error) {
	for {
		last, term := t.f.o.last()
		b, err := t.ask(question{verb: verbManifest, a: last, b: term}, nil, maxManifest)
		if err == nil {
			return decodeManifest(b)
		}
		if !errors.Is(err, errWait) {
			return nil, err
		}
		again := time.NewTimer(t.f.o.askAgain)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-again.C:
		}
	}
}

// begin prepares the directory: it keeps those files that the manifest has, whole, and those
// that are a part of one of the same cut, and removes all else.
func (t *transfer) begin() error {
	fsys, dir := t.f.o.fs, t.f.o.dir
	sameCut := false
	if b, err := disk.ReadFile(fsys, fsys.PathJoin(dir, manifestName), maxManifest); err == nil {
		old, err := decodeManifest(b)
		sameCut = err == nil && old.Cut == t.m.Cut
	}
	for _, sub := range append([]string{""}, cutDirs...) {
		if err := disk.MakeDir(fsys, fsys.PathJoin(dir, sub)); err != nil {
			return err
		}
	}
	wanted := make(map[string]cutFile, len(t.m.Files))
	for _, file := range t.m.Files {
		wanted[file.Name] = file
	}
	t.where = make(map[string]int64)
	for _, sub := range append([]string{""}, cutDirs...) {
		names, err := fsys.List(fsys.PathJoin(dir, sub))
		if err != nil {
			return err
		}
		for _, name := range names {
			if sub != "" {
				name = sub + "/" + name
			}
			file, ok := wanted[name]
			if err := t.keep(name, file, ok, sameCut); err != nil {
				return err
			}
		}
	}
	if err := t.space(); err != nil {
		return err
	}
	if sameCut {
		return nil
	}
	b, err := t.m.encode()
	if err != nil {
		return err
	}
	t.f.o.log.Info("this node fetches the leader's files", "cut", t.m.Cut, "files", len(t.m.Files), "bytes",
		t.m.bytes(), "there", t.there())
	return disk.WriteFile(fsys, dir, manifestName, b)
}

// keep decides what becomes of a file that is there.
func (t *transfer) keep(name string, file cutFile, wanted, sameCut bool) error {
	fsys, path := t.f.o.fs, t.f.o.fs.PathJoin(t.f.o.dir, name)
	info, err := fsys.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() || name == manifestName:
		return nil
	case wanted && (info.Size() == file.Size || sameCut && info.Size() < file.Size):
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

// space returns an error if the disk has no space for what is missing.
func (t *transfer) space() error {
	usage, err := t.f.o.fs.GetDiskUsage(t.f.o.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	need := uint64(t.m.bytes()-t.there()) + t.f.o.minFree
	if need > usage.AvailBytes {
		return fmt.Errorf("%w: it has %d bytes, and they need %d", errTooLarge, usage.AvailBytes, need)
	}
	return nil
}

// files fetches what is missing of each file.
func (t *transfer) files() error {
	for i := range t.m.Files {
		if err := t.file(i); err != nil {
			return fmt.Errorf("%s: %w", t.m.Files[i].Name, err)
		}
	}
	for _, sub := range append(cutDirs, "") {
		if err := disk.SyncDir(t.f.o.fs, t.f.o.fs.PathJoin(t.f.o.dir, sub)); err != nil {
			return err
		}
	}
	return disk.SyncName(t.f.o.fs, t.f.o.dir)
}

// file fetches what is missing of a file, and checks it all. What was there before may be
// damaged: if the sum is wrong then, the file is fetched once more from its beginning.
func (t *transfer) file(i int) error {
	file, path := t.m.Files[i], t.f.o.fs.PathJoin(t.f.o.dir, t.m.Files[i].Name)
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
		if err := t.f.o.fs.Remove(path); err != nil {
			return err
		}
		if !existed {
			return fmt.Errorf("%w: the bytes that came do not have the checksum %08x", errProtocol, file.Sum)
		}
	}
}

// rest fetches a file from an offset on, durably, and returns the checksum of all of it. It writes
// the bytes of an earlier process once more.
func (t *transfer) rest(i int, from int64) (sum uint32, err error) {
	name := t.m.Files[i].Name
	fsys, path := t.f.o.fs, t.f.o.fs.PathJoin(t.f.o.dir, name)
	out, err := fsys.OpenReadWrite(path, disk.WriteCategory)
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
	for at := from; err == nil && at < t.m.Files[i].Size; {
		n := min(t.m.Files[i].Size-at, maxRead)
		var b []byte
		b, err = t.ask(question{verb: verbRead, cut: t.m.id(), a: uint64(i), b: uint64(at), n: uint32(n)},
			t.buf, int(n))
		if err == nil && int64(len(b)) != n {
			err = fmt.Errorf("%w: %d bytes instead of %d", errProtocol, len(b), n)
		}
		if err != nil {
			break
		}
		if _, err = out.WriteAt(b, at); err != nil {
			break
		}
		sum = crc32.Update(sum, disk.Castagnoli, b)
		at += n
		t.f.counts.bytes.Add(uint64(n))
	}
	if err != nil {
		return 0, disk.NoSpace(err)
	}
	err = out.Sync()
	t.f.written[name] = err == nil
	return sum, err
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
