package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// cutSource is a node that has files to give: not those of a store, but as many bytes.
type cutSource struct {
	t       testing.TB
	fs      vfs.FS
	at      cutPosition
	files   map[string][]byte
	cuts    atomic.Int64
	holds   atomic.Bool
	server  *fileServer
	answers wire.Server
	serving sync.WaitGroup
}

func newCutSource(t testing.TB, files map[string][]byte) *cutSource {
	s := &cutSource{t: t, fs: vfs.NewMem(), files: files, at: cutPosition{applied: 100, appliedTerm: 3}}
	s.server = newFileServer(fileServerOptions{
		fs: s.fs, dir: "cut", remove: func() error { return s.fs.RemoveAll("cut") },
		begin:   func() (cutPosition, error) { s.holds.Store(true); return s.at, nil },
		release: func() { s.holds.Store(false) },
		cut:     func() error { s.cuts.Add(1); return writeFiles(s.fs, "cut", s.files) },
		rate:    1 << 40, log: slog.New(slog.DiscardHandler),
	})
	s.server.answers(s.answers.Handle, true)
	t.Cleanup(func() {
		s.server.close()
		s.serving.Wait()
	})
	return s
}

func admitAll() error { return nil }

// dial connects to the source.
func (s *cutSource) dial(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	s.serving.Go(func() { s.answers.Serve(there, testID("1"), admitAll) })
	return here, nil
}

// fetcher returns one that fetches from the source to a directory of another file system.
func (s *cutSource) fetcher(fsys vfs.FS) *fetcher {
	return newFetcher(fetcherOptions{
		fs: fsys, dir: "d/incoming", dial: s.dial, last: func() (uint64, uint64) { return 10, 1 },
		examine: func(string, *manifest) error { return nil }, log: slog.New(slog.DiscardHandler),
		retryFirst: time.Millisecond, askAgain: time.Millisecond,
	})
}

// writeFiles writes files and makes them durable.
func writeFiles(fsys vfs.FS, dir string, files map[string][]byte) error {
	for name, content := range files {
		at := path.Join(dir, path.Dir(name))
		if err := errors.Join(fsys.RemoveAll(path.Join(dir, name)), disk.MakeDir(fsys, at),
			disk.WriteFile(fsys, at, path.Base(name), bytes.Clone(content))); err != nil {
			return err
		}
	}
	for _, sub := range cutDirs {
		if err := disk.MakeDir(fsys, path.Join(dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// someFiles are files of a data directory, some of them longer than one answer.
func someFiles() map[string][]byte {
	files := map[string][]byte{"META": []byte("meta"), "LOGSYNC": nil, "MANISYNC": crashtest.Noise[:64]}
	const piece = wire.MaxRead
	for i, size := range []int{0, 1, 1000, piece - 1, piece, piece + 1, 2*piece + 17} {
		content := append(bytes.Clone(crashtest.Noise[:min(size, len(crashtest.Noise))]),
			make([]byte, max(0, size-len(crashtest.Noise)))...)
		files[fmt.Sprintf("%s/%06d.x", cutDirs[i%len(cutDirs)], i)] = content
	}
	return files
}

// checkFetched compares what was fetched.
func checkFetched(t testing.TB, fsys vfs.FS, dir string, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		if b, err := disk.ReadFile(fsys, path.Join(dir, name), 1<<30); err != nil ||
			!bytes.Equal(b, content) {
			t.Errorf("%s has %d bytes, not the %d that it should: %v", name, len(b), len(content), err)
		}
	}
	for _, sub := range append([]string{""}, cutDirs...) {
		names, _ := fsys.List(path.Join(dir, sub))
		for _, name := range names {
			if info, err := fsys.Stat(path.Join(dir, sub, name)); err == nil && !info.IsDir() &&
				name != wire.NoteName && files[path.Join(sub, name)] == nil && name != "LOGSYNC" &&
				name != "000000.x" {
				t.Errorf("%s was never sent", path.Join(sub, name))
			}
		}
	}
}

// brokenConn breaks after some bytes were read, or changes one of them.
type brokenConn struct {
	net.Conn
	left, flip int64
}

func (c *brokenConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	if c.left -= int64(n); c.flip >= 0 {
		if c.flip < int64(n) {
			b[c.flip] ^= 1
		}
		c.flip -= int64(n)
	}
	return n, err
}

// TestFetch: a node fetches all files although each connection breaks at a random place, and
// some change a byte on the way. No byte that arrived is sent again, and no changed byte is
// accepted.
func TestFetch(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 0))
		files, mem := someFiles(), vfs.NewMem()
		s := newCutSource(t, files)
		f := s.fetcher(mem)
		if err := writeFiles(mem, "d/incoming",
			map[string][]byte{"db/old.sst": {1}, "runs/000002.x": {2}, "META": []byte("atem")}); err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, b := range files {
			total += int64(len(b))
		}
		broken := 0
		f.o.dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := s.dial(ctx)
			if broken++; broken > 12 {
				return conn, err
			}
			c := &brokenConn{Conn: conn, left: r.Int64N(total), flip: -1}
			if r.IntN(3) == 0 {
				c.flip = r.Int64N(total)
			}
			return c, err
		}
		if _, err := f.fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkFetched(t, mem, "d/incoming", files)
		if n := s.cuts.Load(); n != 1 {
			t.Errorf("%d cuts were made", n)
		}
		if c := f.counts.Counts(); c.Begun != 1 || c.Finished != 1 || c.Failed != 0 ||
			c.Bytes < uint64(total) {
			t.Errorf("counted %+v", c)
		}
	}
}

// TestFetchGoesOn: what was fetched before the node was restarted, or the leader changed, is
// not fetched again.
func TestFetchGoesOn(t *testing.T) {
	files, mem := someFiles(), vfs.NewMem()
	s := newCutSource(t, files)
	total := int64(0)
	for _, b := range files {
		total += int64(len(b))
	}
	f := s.fetcher(mem)
	f.o.dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := s.dial(ctx)
		return &brokenConn{Conn: conn, left: total / 2, flip: -1}, err
	}
	if _, err := f.attempt(t.Context()); err == nil {
		t.Fatal("it is done already")
	}
	had := f.counts.Counts().Bytes
	if had == 0 {
		t.Fatal("nothing was fetched")
	}
	for round := range 2 {
		f = s.fetcher(mem)
		if _, err := f.fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkFetched(t, mem, "d/incoming", files)
		if n := f.counts.Counts().Bytes; n+had != uint64(total) {
			t.Errorf("round %d: %d bytes were fetched, %d before, and there are %d", round, n, had, total)
		}
		had = uint64(total)
		s = newCutSource(t, files) // another node, with the same files
	}
}

// TestFetchCrash: whenever a power loss ends the fetching node, what it has then is completed.
func TestFetchCrash(t *testing.T) {
	files := map[string][]byte{"META": []byte("meta"), "db/000001.sst": crashtest.Noise[:5000],
		"log/000001.log": crashtest.Noise[:700]}
	for at, done := 1, false; !done; at++ {
		for _, percent := range []int{0, 50, 100} {
			mem := vfs.NewCrashableMem()
			var left *vfs.MemFS
			rng := rand.New(rand.NewPCG(uint64(at), uint64(percent)))
			fsys := errorfs.Wrap(mem, crashtest.AtOperation(at, func() {
				left = crashtest.Left(mem, percent, rng)
			}))
			s := newCutSource(t, files)
			if _, err := s.fetcher(fsys).fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			if done = left == nil; done {
				// Once fetch has returned, the files are durable.
				left = crashtest.Left(mem, percent, rng)
				checkFetched(t, left, "d/incoming", files)
				continue
			}
			if _, err := s.fetcher(left).fetch(t.Context()); err != nil {
				t.Fatalf("operation %d: %v", at, err)
			}
			checkFetched(t, left, "d/incoming", files)
		}
	}
}

// hostile answers questions with the manifest m and the function read.
func hostile(m []byte, read func(q wire.ReadAsk) []byte) func(context.Context) (net.Conn, error) {
	var s wire.Server
	s.Handle(verbManifest, wire.Answer(0, func(*wire.Call, manifestAsk) (any, []byte, error) {
		return nil, m, nil
	}))
	s.Handle(wire.VerbRead, wire.Answer(0, func(_ *wire.Call, q wire.ReadAsk) (any, []byte, error) {
		return nil, read(q), nil
	}))
	return func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go s.Serve(there, testID("1"), admitAll)
		return here, nil
	}
}

// TestHostileLeader: what a node is told of names, sizes and sums does not lead it out of
// its directory, does not fill its disk, and is not believed.
func TestHostileLeader(t *testing.T) {
	id := strings.Repeat("ab", 16)
	sum := func(b string) uint32 { return crc32.Checksum([]byte(b), disk.Castagnoli) }
	file := func(name string, size int64, sum uint32) string {
		return fmt.Sprintf(`{"name":%q,"size":%d,"sum":%d}`, name, size, sum)
	}
	manifest := func(files ...string) string {
		return fmt.Sprintf(`{"id":%q,"files":[%s]}`, id, strings.Join(files, ","))
	}
	good := file("META", 4, sum("meta"))
	for name, m := range map[string]string{
		"no JSON":        "META",
		"no files":       manifest(),
		"no id":          `{"id":"1","files":[` + good + `]}`,
		"a field":        `{"id":"` + id + `","files":[` + good + `],"more":1}`,
		"outside":        manifest(file("../letter", 4, sum("meta"))),
		"far outside":    manifest(file("/etc/letter", 4, sum("meta"))),
		"by a detour":    manifest(file("db/../../letter", 4, sum("meta"))),
		"by a backslash": manifest(file(`db\..\..\letter`, 4, sum("meta"))),
		"hidden":         manifest(file("db/.letter", 4, sum("meta"))),
		"the node's own": manifest(file("CLUSTER", 4, sum("meta"))),
		"its manifest":   manifest(file("CUT", 4, sum("meta"))),
		"deep":           manifest(file("db/db/letter", 4, sum("meta"))),
		"a zero":         manifest(file("db/a\x00b", 4, sum("meta"))),
		"twice":          manifest(good, good),
		"less than none": manifest(file("META", -1, 0)),
		"huge":           manifest(file("META", wire.MaxFile+1, 0)),
		"for no disk":    manifest(file("META", wire.MaxFile, 0)),
		"a wrong sum":    manifest(file("META", 4, sum("atem"))),
		"another shard": `{"id":"` + id + `","files":[` + good +
			`],"snapshot":{"Version":1,"ID":"x","Index":1,"Term":1,"Configuration":{"Servers":[{"Suffrage":0,"ID":"1","Address":"a"}]},"ConfigurationIndex":1,"Size":0}}`,
	} {
		mem := vfs.NewMem()
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30})
		if err := disk.MakeDir(mem, "d/incoming"); err != nil {
			t.Fatal(err)
		}
		f := newCutSource(t, nil).fetcher(mem)
		f.o.dial = hostile([]byte(m), func(q wire.ReadAsk) []byte { return []byte("meta")[:min(q.Bytes, 4)] })
		want := wire.ErrProtocol
		if name == "for no disk" {
			want = wire.ErrTooLarge
		}
		if _, err := f.attempt(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, dir := range []string{"", "d"} {
			names, _ := mem.List(dir)
			if len(names) > 1 {
				t.Errorf("%s leaves %v", name, names)
			}
		}
		if names, _ := mem.List("d/incoming/db"); len(names) > 0 {
			t.Errorf("%s leaves %v", name, names)
		}
	}
	for name, answer := range map[string]func(q wire.ReadAsk) []byte{
		"too few bytes":  func(q wire.ReadAsk) []byte { return make([]byte, q.Bytes-1) },
		"too many bytes": func(q wire.ReadAsk) []byte { return make([]byte, q.Bytes+1) },
		"other bytes":    func(q wire.ReadAsk) []byte { return make([]byte, q.Bytes) },
	} {
		mem := vfs.NewMem()
		f := newCutSource(t, nil).fetcher(mem)
		f.o.dial = hostile([]byte(manifest(good)), answer)
		if _, err := f.attempt(t.Context()); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// asking is a connection to a source, on which a manifest was asked for.
type asking struct {
	*wire.Caller
	m *manifest
}

func (s *cutSource) ask(ctx context.Context) (asking, error) {
	conn, _ := s.dial(ctx)
	c := wire.NewCaller(ctx, conn)
	m, err := s.fetcher(vfs.NewMem()).manifest(ctx, c)
	return asking{c, m}, err
}

func (a asking) read(q wire.ReadAsk) ([]byte, error) {
	return a.Do(wire.Ask{Verb: wire.VerbRead, Ask: q, Limit: 2 * wire.MaxRead, Within: time.Minute})
}

// TestServerQuestions: a node answers no question about files outside its cut.
func TestServerQuestions(t *testing.T) {
	s := newCutSource(t, someFiles())
	for _, q := range []wire.ReadAsk{
		{File: len(someFiles()), Bytes: 1},
		{File: 1 << 40, Bytes: 1},
		{File: -1, Bytes: 1},
		{At: 4, Bytes: 1},
		{At: -1, Bytes: 1},
		{At: 1<<63 - 1, Bytes: 2},
		{Bytes: 0},
		{Bytes: -1},
		{Bytes: wire.MaxRead + 1},
	} {
		a, err := s.ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q.Offer = testID("1")
		if _, err := a.read(q); !errors.Is(err, wire.ErrGone) {
			t.Errorf("%+v of no cut: %v", q, err)
		}
		if i := slices.IndexFunc(a.m.Files, func(f wire.File) bool { return f.Name == "META" }); q.File == 0 {
			q.File = i
		}
		q.Offer = a.m.ID
		if b, err := a.read(q); err == nil {
			t.Errorf("%+v is answered with %d bytes", q, len(b))
		}
		a.Close()
		s.serving.Wait() // for there is room for a few only
	}
}

// TestCutIsKept: a cut, and the log behind it, is kept while somebody asks, and a while
// longer; not for ever, and not at any price. One is made for all who ask.
func TestCutIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := someFiles()
		s := newCutSource(t, files)
		ask := func() (asking, error) { return s.ask(t.Context()) }
		first, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		second, err := ask()
		if err != nil || second.m.ID != first.m.ID || s.cuts.Load() != 1 {
			t.Fatalf("two who ask get %s and %s: %v", first.m.ID, second.m.ID, err)
		}
		kept := func(logBytes uint64) bool { return s.server.keepsLog(logBytes) && s.holds.Load() }
		for range 10 { // slow, but they ask
			time.Sleep(cutIdle / 2)
			_, err := first.read(wire.ReadAsk{Offer: first.m.ID, File: 1, Bytes: 1})
			if err != nil || !kept(0) {
				// The connection ends before the cut does.
				first.Close()
				if first, err = ask(); err != nil || !kept(0) {
					t.Fatal("the cut is gone:", err)
				}
			}
		}
		if first.m.ID != second.m.ID {
			t.Error("another cut was made")
		}
		first.Close()
		second.Close()
		time.Sleep(cutIdle - time.Second)
		synctest.Wait()
		if !kept(heldLog) {
			t.Error("it is gone too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := s.fs.Stat("cut"); err == nil || kept(0) || s.holds.Load() {
			t.Error("it is kept although nobody asks")
		}
		third, err := ask()
		if err != nil || third.m.ID == first.m.ID {
			t.Fatal("no new cut:", err)
		}
		if !kept(heldLog) || kept(heldLog+1) || s.holds.Load() {
			t.Error("the log is kept, however long it is, or not at all")
		}
		if _, err := third.read(wire.ReadAsk{Offer: third.m.ID, Bytes: 1}); !errors.Is(err, wire.ErrGone) {
			t.Error("the cut that was dropped is given:", err)
		}
		third.Close()
		// A node that has entries of the cut's term behind it needs none of it.
		s.at = cutPosition{applied: 100, appliedTerm: 3}
		f := s.fetcher(vfs.NewMem())
		f.o.last = func() (uint64, uint64) { return 101, 3 }
		if _, err := f.fetch(t.Context()); !errors.Is(err, errNotBehind) {
			t.Error(err)
		}
		// Done: the files go, the log stays a while, since the node needs what follows.
		fourth := s.fetcher(vfs.NewMem())
		if _, err := fourth.fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := s.fs.Stat("cut"); err == nil || !kept(0) {
			t.Error("the files stay, or the log does not")
		}
		time.Sleep(cutIdle + time.Second)
		synctest.Wait()
		if kept(0) {
			t.Error("the log is kept although nobody asks")
		}
		s.server.close()
		s.serving.Wait()
	})
}

// TestTakesPlaceOf: a log is given up only if none of its entries behind the files can have
// been committed, or ever be.
func TestTakesPlaceOf(t *testing.T) {
	for _, c := range []struct {
		applied, appliedTerm, last, lastTerm uint64
		want                                 bool
	}{
		{10, 2, 0, 0, true},   // a new node
		{10, 2, 10, 2, true},  // the same
		{10, 2, 9, 2, true},   // behind
		{10, 2, 9, 7, true},   // what a leader of term 7 appended there was not committed: another entry was
		{10, 2, 11, 1, true},  // never committed: the leader of term 2 had nothing there
		{10, 2, 11, 2, false}, // it has the files' entries, and perhaps promised to keep the next one
		{10, 2, 11, 3, false}, // a later leader's
	} {
		if got := takesPlaceOf(c.applied, c.appliedTerm, c.last, c.lastTerm); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// FuzzManifest: a manifest that is accepted names files of a data directory only, within the
// limits, and is what its encoding says.
func FuzzManifest(f *testing.F) {
	m := manifest{Offer: wire.Offer{ID: strings.Repeat("01", 16),
		Files: []wire.File{{Name: "META", Size: 3, Sum: 1}, {Name: "db/000001.sst", Size: 9}}}}
	plain, _ := m.encode()
	m.Snapshot = &raft.SnapshotMeta{Version: 1, ID: "1-2", Index: 2, Term: 1, ConfigurationIndex: 1,
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(testID("a")),
			Address: "127.0.0.1:1"}}}}
	full, _ := m.encode()
	for _, b := range [][]byte{plain, full, []byte("{}"), []byte(`{"id":1}`)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if clean := path.Join("d", file.Name); !strings.HasPrefix(clean, "d/") ||
				clean != "d/"+file.Name || strings.Count(file.Name, "/") > 1 || file.Size < 0 {
				t.Errorf("%q is accepted", file.Name)
			}
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if m2, err := decodeManifest(again); err != nil || fmt.Sprint(m2) != fmt.Sprint(m) &&
			m2.Snapshot == nil {
			t.Errorf("%s is decoded as %v: %v", again, m2, err)
		}
	})
}
