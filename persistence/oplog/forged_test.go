package oplog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// pebbleChunk is a chunk of Pebble's WAL of any kind, made without a secret.
func pebbleChunk(kind byte, num uint32, payload []byte) []byte {
	b := make([]byte, 6, 64)
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b = append(b, kind)
	if kind > 4 {
		b = binary.LittleEndian.AppendUint32(b, num)
	}
	if kind > 8 {
		b = binary.LittleEndian.AppendUint64(b, 1<<40)
	}
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[6:], disk.Castagnoli))
	return b
}

// forgeries are chunks that a client could write, each of which would do harm if
// it were read: they add operations, belong to no partition, are of
// no known section, or end the file. They are of all kinds, Pebble's too, and carry
// no tag, a guessed one, or that of a file.
func forgeries(file header) (list [][]byte) {
	for _, payload := range [][]byte{
		AppendSection(nil, 0, 1<<40, []byte("false")), AppendSection(nil, 60000, 1, nil), {99}, {},
		AppendSection(nil, EntryPartition, 1<<40, appendMark(nil, kindVoid, 1<<40, Reign{})),
	} {
		for kind := byte(1); kind <= 12; kind++ {
			for num := range uint32(3) {
				list = append(list, pebbleChunk(kind, num, payload))
			}
		}
		for part := disk.Part(0); part <= trailer+1; part++ {
			for _, h := range []header{{}, {tag: 1}, file} {
				list = append(list, h.appendChunk(nil, part, 0, 1<<40, payload))
			}
		}
	}
	return list
}

// TestForgedChunks fills files with forged chunks, lets them be used again, ends
// the log in front of each of the chunks in turn, and crashes there: nothing of
// them is found, and what was acknowledged is.
func TestForgedChunks(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.FileSize = 200 << 10
	db := mustOpen(t, o)
	defer mustClose(t, db)
	var seq uint64
	record := func(content []byte) {
		seq++
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, content) })
	}
	forged := forgeries(db.header)
	for files := int64(0); files < 4; files, _ = db.Sizes() {
		record(bytes.Join(forged, nil))
	}
	if err := db.Trim(0, seq); err != nil {
		t.Fatal(err)
	}
	for used := db.current.num + 2; db.current.num < used; {
		record(make([]byte, 5000))
	}
	file, err := disk.ReadFile(mem, "data/log/"+fileName(db.current.num), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for len(forged) > 0 {
		// The nearest chunk that a record can end in front of.
		i, at := -1, int64(0)
		for at = db.pos + chunkHeader + sectionHeader; i < 0 && at < int64(len(file)); at++ {
			i = slices.IndexFunc(forged, func(chunk []byte) bool { return bytes.HasPrefix(file[at:], chunk) })
		}
		if i < 0 {
			t.Fatalf("%d chunks are not in what is left of the file", len(forged))
		}
		at--
		size := at - db.pos - sectionHeader - chunkHeader
		if at/disk.Block != db.pos/disk.Block {
			size -= chunkHeader
		}
		if record(make([]byte, max(size, 0))); db.pos != at {
			continue // at a block's edge
		}
		chunk := forged[i]
		forged = slices.DeleteFunc(forged, func(c []byte) bool { return bytes.Equal(c, chunk) })
		again, err := Open(testOptions(crashtest.Left(mem, 100, nil)))
		if err != nil {
			t.Errorf("kind %d, %x: %v", chunk[6], chunk, err)
			continue
		}
		if _, end, _ := again.Bounds(0); end != seq {
			t.Errorf("kind %d, %x: the log ends at %d instead of %d", chunk[6], chunk, end, seq)
		}
		expect(t, "recovery", again.Recovery(), Recovery{})
		mustClose(t, again)
	}
}

// TestLogTagsAreDrawn: the tag of a file follows from nothing that is known.
func TestLogTagsAreDrawn(t *testing.T) {
	a, b := newHeader(7), newHeader(7)
	if a.tag == b.tag || a.tag < 1<<20 && b.tag < 1<<20 {
		t.Fatal(a, b)
	}
}

// aLog is a file of the op log with records of these sizes, and where each ends.
func aLog(h header, sizes ...int) (file []byte, ends []int64) {
	file = h.appendTo(nil)
	for _, n := range sizes {
		file = h.appendRecord(file, int64(len(file)), 0, crashtest.Noise[:n])
		ends = append(ends, int64(len(file)))
	}
	return file, ends
}

// scanned scans a file and returns how many records it found; each of their
// chunks must be crashtest.Noise from the beginning on.
func scanned(t testing.TB, h header, file []byte) (records int, tail disk.Tail) {
	t.Helper()
	at := 0
	got, tail, err := scanFile(bytes.NewReader(file), h.num, func(part disk.Part, _ int64, payload []byte) {
		if part.Begins() {
			at = 0
		}
		if !bytes.HasPrefix(crashtest.Noise[at:], payload) {
			t.Fatal("a chunk that nobody wrote")
		}
		at += len(payload)
		if part.Ends() {
			records++
		}
	})
	if err != nil || got != h {
		t.Fatal(got, err)
	}
	return records, tail
}

// TestForgedAlignments puts what clients and earlier records may leave behind the
// end of a log, at each alignment, and at the beginning of the next block.
func TestForgedAlignments(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	h, old := header{num: 9, tag: 1 << 63}, header{num: 3, tag: 1<<63 - 77}
	forged := forgeries(old)
	stale, _ := aLog(old, 1000, 2000, 40_000, 30_000, 7, 300)
	for shift := 0; shift < chunkHeader+3; shift += raced.Step {
		log, ends := aLog(h, 500, disk.Block+shift, 77)
		end := ends[len(ends)-1]
		tails := append(slices.Clone(forged),
			log[headerSize:ends[0]],                             // a chunk of this file, of another place
			log[ends[0]:disk.Block],                             // the same, cut
			log[disk.Block:],                                    // the last block
			h.appendTrailer(nil, end+1, 0),                      // an end elsewhere
			h.appendTrailer(nil, end%disk.Block, 0),             // one at this place of another block
			old.appendTrailer(nil, end, 0),                      // of another file
			old.appendRecord(nil, end, 0, crashtest.Noise[:99]), // a record of another file at this place
			stale[headerSize:], stale[end:],
		)
		for _, broken := range []int{0, 4, 6, 7, chunkHeader - 1, chunkHeader} {
			chunk := h.appendRecord(nil, end, 1<<40, crashtest.Noise[:50])
			chunk[broken] ^= 0x40
			trailer := h.appendTrailer(nil, end, 1<<40)
			trailer[min(broken, len(trailer)-1)] ^= 0x40
			tails = append(tails, chunk, trailer)
		}
		for i, tail := range tails {
			// the log, and the next block
			block := append(slices.Clone(log), make([]byte, disk.Block-end%disk.Block)...)
			for _, file := range [][]byte{append(slices.Clone(log), tail...), append(block, tail...)} {
				if n, tail := scanned(t, h, file); n != len(ends) || tail.Good != end ||
					tail.Valid == math.MaxInt64 || tail.Stray != 0 || tail.Synced != 0 {
					t.Fatalf("shift %d, tail %d: %d records, %+v", shift, i, n, tail)
				}
			}
		}
	}
}

// FuzzLogTail appends any bytes to a log, or overwrites its end with them: exactly
// the records in front of the first byte that changed are found.
func FuzzLogTail(f *testing.F) {
	h := newHeader(5)
	log, ends := aLog(h, 0, 1, 500, disk.Block, 3, 90)
	other, _ := aLog(header{num: 5, tag: 7}, 10, 20, 700)
	f.Add(uint16(0), other)
	f.Add(uint16(100), pebbleChunk(3, 5, []byte("payload")))
	f.Add(uint16(len(log)-headerSize), other[headerSize:])
	f.Fuzz(func(t *testing.T, back uint16, tail []byte) {
		from := max(int64(len(log))-int64(back), headerSize)
		file := append(slices.Clone(log[:from]), tail...)
		if len(file) < len(log) && len(tail)%2 == 0 {
			file = append(file, log[len(file):]...) // the end of it is as it was
		}
		same := int(from)
		for same < min(len(file), len(log)) && file[same] == log[same] {
			same++
		}
		want := 0
		for want < len(ends) && ends[want] <= int64(same) {
			want++
		}
		if n, tail := scanned(t, h, file); n != want || tail.Valid == math.MaxInt64 ||
			tail.Stray > int64(len(log)) {
			t.Fatalf("%d records instead of %d, %+v", n, want, tail)
		}
	})
}
