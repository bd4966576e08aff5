package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
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
	records := splitStream(stream)
	for i := 1; i < len(records); i++ {
		without := slices.Delete(slices.Clone(records), i, i+1)
		expectRefused(t, "a record is missing", slices.Concat(without...))
		twice := slices.Insert(slices.Clone(records), i, records[i])
		expectRefused(t, "a record comes twice", slices.Concat(twice...))
		if i+1 < len(records) {
			swapped := slices.Clone(records)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			expectRefused(t, "records have changed places", slices.Concat(swapped...))
		}
	}
}

// splitStream returns the magic and the records.
func splitStream(stream []byte) (parts [][]byte) {
	parts = append(parts, stream[:len(streamMagic)])
	for b := stream[len(streamMagic):]; len(b) > 0; {
		n := streamHead + int(binary.BigEndian.Uint32(b[4:]))
		parts = append(parts, b[:n])
		b = b[n:]
	}
	return parts
}

// TestForgedStream: checksums prove nothing about who has written a stream. What no backup
// holds is refused before anything is written of it.
func TestForgedStream(t *testing.T) {
	_, meta := aStream(t)
	other := meta
	other.ID[0]++
	forge := func(files int, size int, records ...[]streamRecord) []byte {
		return forgeStream(meta, files, size, records...)
	}
	file := fileRecords
	type record = streamRecord
	m, end, x := meta.encode(), []record{{streamEnd, nil}}, []byte("x")
	if _, _, err := receive(forge(2, len(m)+1, file("META", m), file("db/x", x), end)); err != nil {
		t.Fatalf("one as it should be: %v", err)
	}
	for what, forged := range map[string][]byte{
		"no META":                forge(1, 1, file("db/x", x), end),
		"another backup's META":  forge(1, len(m), file("META", other.encode()), end),
		"a long META":            forge(1, 5000, file("META", make([]byte, 5000)), end),
		"a file twice":           forge(3, len(m)+2, file("META", m), file("db/x", x), file("db/x", x), end),
		"fewer files":            forge(3, len(m)+1, file("META", m), file("db/x", x), end),
		"more files":             forge(1, len(m)+1, file("META", m), file("db/x", x), end),
		"fewer bytes":            forge(2, len(m)+2, file("META", m), file("db/x", x), end),
		"more bytes":             forge(2, len(m), file("META", m), file("db/x", x), end),
		"too many files":         forge(maxStreamFiles+1, len(m)+1, file("META", m), file("db/x", x), end),
		"an end with content":    forge(1, len(m), file("META", m), []record{{streamEnd, x}}),
		"a piece without a file": forge(1, len(m), []record{{streamData, m}}, end),
		"a piece beyond its file": forge(2, len(m)+1, file("META", m),
			[]record{{streamFile, append(make([]byte, 8), "db/x"...)}, {streamData, x}}, end),
		"a piece of nothing": forge(2, len(m)+1, file("META", m),
			[]record{file("db/x", x)[0], {streamData, nil}, {streamData, x}}, end),
		"a file without a size": forge(2, len(m), file("META", m), []record{{streamFile, x}}, end),
		"two beginnings": forge(1, len(m), []record{{streamBegin, make([]byte, streamBeginSize)}},
			file("META", m), end),
		"a record of a gigabyte": append(forge(1, len(m)), 0, 0, 0, 0, 64, 0, 0, 0, streamFile),
	} {
		expectRefused(t, what, forged)
	}
	for _, path := range []string{"../x", "/x", "db/../x", "db/../../x", "db//x", "db/x/y", "tmp/x", "x/y",
		".x", "db/.x", "", "db/", "LOCK", "BACKUP",
		"x.tmp", `db\x`, "db/x\x00", "db/x\n", strings.Repeat("x", 200)} {
		expectRefused(t, "a file "+path, forge(2, len(m)+1, file("META", m), file(path, x), end))
	}
}

// streamRecord is a record before it has a number and a checksum.
type streamRecord struct {
	kind    byte
	content []byte
}

// fileRecords are those of a file.
func fileRecords(path string, content []byte) []streamRecord {
	return []streamRecord{{streamFile, append(binary.BigEndian.AppendUint64(nil, uint64(len(content))),
		path...)}, {streamData, content}}
}

// forgeStream makes a stream of records, of so many files and bytes as it says.
func forgeStream(meta Meta, files, size int, records ...[]streamRecord) []byte {
	b := bytes.NewBufferString(streamMagic)
	out := &streamWriter{w: b}
	info := StreamInfo{ID: meta.ID, Files: files, Bytes: int64(size)}
	out.record(streamBegin, info.encode())
	for _, r := range slices.Concat(records...) {
		out.record(r.kind, r.content)
	}
	return b.Bytes()
}

// FuzzStream: whatever the bytes are, only a stream as Send writes it makes a directory.
func FuzzStream(f *testing.F) {
	meta := Meta{Format: format, Partitions: 16, Seed: [16]byte{1}}
	m := meta.encode()
	f.Add(forgeStream(meta, 1, len(m), fileRecords("META", m), []streamRecord{{streamEnd, nil}}))
	f.Add(forgeStream(meta, 2, len(m)+3, fileRecords("META", m), fileRecords("db/x", []byte("abc")),
		[]streamRecord{{streamEnd, nil}}))
	f.Add(forgeStream(meta, 2, len(m)+3, fileRecords("META", m), fileRecords("../x", []byte("abc")),
		[]streamRecord{{streamEnd, nil}}))
	f.Add([]byte(streamMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// With checksums that match, to get behind them.
		repaired := slices.Clone(b)
		for at, n := len(streamMagic), uint64(0); at+streamHead <= len(repaired); n++ {
			size := int(binary.BigEndian.Uint32(repaired[at+4:]))
			if size > len(repaired)-at-streamHead {
				break
			}
			binary.BigEndian.PutUint32(repaired[at:], streamSum(n, repaired[at+4:at+streamHead+size]))
			at += streamHead + size
		}
		for _, b := range [][]byte{b, repaired} {
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
