package persistence

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// aStream is the stream of a data directory with 30 records in its log.
func aStream(t testing.TB) ([]byte, Meta) {
	t.Helper()
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	for seq := uint64(1); seq <= 30; seq++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
	}
	staged, err := db.Stage(func() {}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := staged.Send(&b, Counts{Keys: 1, Entries: 29}, Counts{Keys: 2, Entries: 31}); err != nil {
		t.Fatal(err)
	}
	if names, err := mem.List("data/tmp"); err != nil || !slices.Equal(names, []string{stagedName}) {
		t.Errorf("there is %v: %v", names, err)
	}
	if err := staged.Remove(); err != nil {
		t.Fatal(err)
	}
	if names, err := mem.List("data/tmp"); err != nil || len(names) > 0 {
		t.Errorf("there is still %v: %v", names, err)
	}
	mustClose(t, db)
	return b.Bytes(), db.Meta()
}

// receive restores a stream to "restored" on a new disk.
func receive(stream []byte) (*vfs.MemFS, StreamInfo, error) {
	mem := vfs.NewMem()
	info, err := RestoreStream(mem, bytes.NewReader(stream), "restored", func(string) error { return nil },
		func(done, total int64) {
			if done > total {
				panic("more was received than there is")
			}
		})
	return mem, info, err
}

// expectRefused expects that a stream is refused, and that it leaves nothing.
func expectRefused(t *testing.T, what string, stream []byte) {
	t.Helper()
	mem, _, err := receive(stream)
	if !errors.Is(err, ErrStream) {
		t.Errorf("%s: %v", what, err)
	}
	if names, err := mem.List(""); err != nil || len(names) > 0 {
		t.Errorf("%s leaves %v: %v", what, names, err)
	}
}

func TestStream(t *testing.T) {
	stream, meta := aStream(t)
	mem := vfs.NewMem()
	refused := errors.New("refused")
	for _, sound := range []error{refused, nil} {
		asked := ""
		info, err := RestoreStream(mem, bytes.NewReader(stream), "restored", func(dir string) error {
			asked = dir
			if _, err := mem.Stat("restored"); err == nil {
				t.Error("it has its name before anybody has looked at it")
			}
			return sound
		}, func(int64, int64) {})
		if !errors.Is(err, sound) || asked == "" {
			t.Fatalf("%q, %v", asked, err)
		}
		if info.Before != (Counts{1, 29}) || info.After != (Counts{2, 31}) || info.ID != meta.ID ||
			info.At.IsZero() {
			t.Errorf("it says %+v", info)
		}
		if _, err := mem.Stat("restored"); (err == nil) != (sound == nil) {
			t.Errorf("sound says %v, and: %v", sound, err)
		}
	}
	o := testOptions(mem)
	o.Dir = "restored"
	db := mustOpen(t, o)
	checkCopiedLog(t, db, 30)
	if got := db.Meta(); got.ID != meta.ID || got.Incarnation == meta.Incarnation || got.Seed != meta.Seed {
		t.Errorf("%+v is restored as %+v", meta, got)
	}
	mustClose(t, db)
	if _, err := RestoreStream(mem, bytes.NewReader(stream), "restored", nil, nil); !errors.Is(err,
		ErrTarget) {
		t.Errorf("over what is there: %v", err)
	}
}

// TestStagedLeftovers: what a crash leaves of a copy is removed by the next start.
func TestStagedLeftovers(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	if _, err := db.Stage(func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	mustClose(t, mustOpen(t, testOptions(mem)))
	if names, err := mem.List("data/tmp"); err != nil || len(names) > 0 {
		t.Errorf("there is still %v: %v", names, err)
	}
}

// TestStreamDamage: a stream that is cut anywhere, or of which any byte is another, is
// refused.
func TestStreamDamage(t *testing.T) {
	stream, _ := aStream(t)
	for n := 0; n < len(stream); n += 1 + n/200 {
		expectRefused(t, "a stream that is cut", stream[:n])
		damaged := slices.Clone(stream)
		damaged[n] ^= 1 << (n % 8)
		expectRefused(t, "a damaged stream", damaged)
	}
	expectRefused(t, "a stream without its end", stream[:len(stream)-1])
	expectRefused(t, "a stream that goes on", append(slices.Clone(stream), 0))
	expectRefused(t, "two streams", append(slices.Clone(stream), stream...))
	blocks := slices.Collect(slices.Chunk(stream, streamBlock))
	for i := 0; i < len(blocks); i += 1 + i/50 {
		without := slices.Delete(slices.Clone(blocks), i, i+1)
		expectRefused(t, "a block is missing", slices.Concat(without...))
		twice := slices.Insert(slices.Clone(blocks), i, blocks[i])
		expectRefused(t, "a block comes twice", slices.Concat(twice...))
		if i+1 < len(blocks) && !bytes.Equal(blocks[i], blocks[i+1]) {
			swapped := slices.Clone(blocks)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			expectRefused(t, "blocks have changed places", slices.Concat(swapped...))
		}
	}
}

// TestStreamIsTar: any program for archives shows what is in a stream, and takes it out.
func TestStreamIsTar(t *testing.T) {
	stream, meta := aStream(t)
	r, dir, sums := tar.NewReader(bytes.NewReader(stream)), t.TempDir(), ""
	var m manifestText
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		name, ok := strings.CutPrefix(h.Name, streamDir)
		if err != nil || !ok || int64(len(b)) != h.Size || h.Mode != 0o600 || h.Typeflag != tar.TypeReg ||
			h.ModTime.Unix() != m.At/1000 && n > 0 {
			t.Fatalf("%+v: %v", h, err)
		}
		switch name {
		case streamManifest:
			line, _, _ := bytes.Cut(b, []byte("\n"))
			if err := json.Unmarshal(line, &m); err != nil || m.ID != hex.EncodeToString(meta.ID[:]) {
				t.Fatalf("%s: %v", b, err)
			}
		case streamSums:
			if sums != string(b) || n != len(m.Files)+1 {
				t.Errorf("the sums of %d files are\n%s, and not\n%s", n, b, sums)
			}
		default:
			sums += string(appendSum(nil, crc32.Checksum(b, disk.Castagnoli), name))
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
				os.WriteFile(path, b, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The directory is a backup.
	if err := Restore(vfs.Default, dir, filepath.Join(t.TempDir(), "new"), func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(bytes.NewReader(tarHeader("db/x", 1<<40, time.Unix(9, 0)))).Next(); err != nil ||
		h.Size != 1<<40 || h.Name != streamDir+"db/x" {
		t.Errorf("a large file: %+v, %v", h, err)
	}
}

// TestForgedStream: checksums prove nothing about who has written a stream. What no backup
// holds is refused before anything is written of it.
func TestForgedStream(t *testing.T) {
	_, meta := aStream(t)
	other := meta
	other.ID[0]++
	m, x := meta.encode(), []byte("x")
	good := []forgedFile{{"META", m}, {"db/x", x}}
	if _, _, err := receive(forgeStream(meta, nil, good...)); err != nil {
		t.Fatalf("one as it should be: %v", err)
	}
	says := func(fn func(m *manifestText), files ...forgedFile) []byte {
		return forgeStream(meta, fn, files...)
	}
	for what, forged := range map[string][]byte{
		"no META":                forgeStream(meta, nil, good[1]),
		"no files":               forgeStream(meta, nil),
		"another backup's META":  forgeStream(meta, nil, forgedFile{"META", other.encode()}),
		"a long META":            forgeStream(meta, nil, forgedFile{"META", make([]byte, 5000)}),
		"a file twice":           forgeStream(meta, nil, good[0], good[1], good[1]),
		"fewer files":            says(func(m *manifestText) { m.Files = append(m.Files, stagedFile{"db/y", 1}) }, good...),
		"more files":             says(func(m *manifestText) { m.Files = m.Files[:1] }, good...),
		"fewer bytes":            says(func(m *manifestText) { m.Files[1].Size++ }, good...),
		"more bytes":             says(func(m *manifestText) { m.Files[1].Size-- }, good...),
		"less than none":         says(func(m *manifestText) { m.Files[1].Size = -1 }, good...),
		"more than there can be": says(func(m *manifestText) { m.Files[1].Size = 1<<63 - 1 }, good...),
		"another name":           says(func(m *manifestText) { m.Files[1].Path = "db/y" }, good...),
		"another order":          says(func(m *manifestText) { slices.Reverse(m.Files) }, good...),
		"another time":           says(func(m *manifestText) { m.At += 1000 }, good...),
		"no time":                says(func(m *manifestText) { m.At = -1 }, good...),
		"no id":                  says(func(m *manifestText) { m.ID = m.ID[2:] }, good...),
		"keys below none":        says(func(m *manifestText) { m.After.Keys = -1 }, good...),
		"a long manifest": append(tarHeader(streamManifest, maxStreamHead+1, time.Unix(9, 0)),
			make([]byte, 2000)...),
		"a manifest that is announced": tarHeader(streamManifest, maxStreamHead, time.Unix(9, 0)),
	} {
		expectRefused(t, what, forged)
	}
	for _, path := range []string{"../x", "/x", "db/../x", "db/../../x", "db//x", "db/x/y", "tmp/x", "x/y",
		".x", "db/.x", "", "db/", "LOCK", "BACKUP", "x.tmp", `db\x`, "db/x\x00", "db/x\n", streamSums,
		streamManifest, "db/" + strings.Repeat("x", maxStreamPath)} {
		expectRefused(t, "a file "+path, forgeStream(meta, nil, good[0], forgedFile{path, x}))
	}
}

// forgedFile is a file of a stream that Send has not written.
type forgedFile struct {
	path    string
	content []byte
}

// forgeStream makes a stream of files, with right checksums. Its manifest says of them what is so,
// unless lie changes that.
func forgeStream(meta Meta, lie func(*manifestText), files ...forgedFile) []byte {
	m := manifestText{ID: hex.EncodeToString(meta.ID[:]), At: 9000}
	var sums []byte
	for _, f := range files {
		m.Files = append(m.Files, stagedFile{f.path, int64(len(f.content))})
		sums = appendSum(sums, crc32.Checksum(f.content, disk.Castagnoli), f.path)
	}
	if lie != nil {
		lie(&m)
	}
	text, _ := json.Marshal(m)
	b := new(bytes.Buffer)
	out := tarWriter{w: b, at: time.Unix(9, 0)}
	out.file(streamManifest, sealed(text))
	for _, f := range files {
		out.file(f.path, f.content)
	}
	out.file(streamSums, sums)
	b.Write(make([]byte, 2*streamBlock))
	return b.Bytes()
}

// FuzzStream: whatever the bytes are, only a stream as Send writes it makes a directory.
func FuzzStream(f *testing.F) {
	meta := Meta{Format: format, Partitions: 16, Seed: [16]byte{1}}
	m := meta.encode()
	text := func(stream []byte) string {
		size, _ := strconv.ParseInt(string(stream[tarSizeAt:tarSizeAt+11]), 8, 64)
		line, _, _ := bytes.Cut(stream[streamBlock:streamBlock+size], []byte("\n"))
		return string(line)
	}
	for _, files := range [][]forgedFile{{{"META", m}}, {{"META", m}, {"db/x", []byte("abc")}},
		{{"META", m}, {"../x", []byte("abc")}}} {
		stream := forgeStream(meta, nil, files...)
		f.Add(stream, text(stream))
	}
	f.Fuzz(func(t *testing.T, b []byte, manifest string) {
		// With a manifest that matches its checksum, to get behind that.
		repaired := new(bytes.Buffer)
		out := tarWriter{w: repaired, at: time.Unix(9, 0)}
		out.file(streamManifest, sealed([]byte(manifest)))
		repaired.Write(b)
		for _, b := range [][]byte{b, repaired.Bytes()} {
			mem, _, err := receive(b)
			names, _ := mem.List("")
			switch {
			case err == nil && !slices.Equal(names, []string{"restored"}), err != nil && len(names) > 0:
				t.Fatalf("%v leaves %v", err, names)
			case err != nil && !errors.Is(err, ErrStream) && !errors.Is(err, ErrCorrupt) &&
				!errors.Is(err, ErrNewerFormat) && !errors.Is(err, ErrOldFormat):
				t.Fatal(err)
			}
		}
	})
}
