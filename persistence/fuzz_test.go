package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// The decoders of everything that is read from disk: they never panic, fail
// only with the documented errors, and accept only what the encoder writes.

func FuzzMeta(f *testing.F) {
	f.Add(Meta{Format: format, Partitions: 16, Seed: [16]byte{1}}.encode())
	f.Add([]byte(metaOf(metaMagic + "\nformat 9\n")))
	f.Add([]byte(metaOf(metaMagicOld + "\nformat 4\n")))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		switch {
		case err == nil && !bytes.Equal(m.encode(), b):
			t.Fatalf("%q is accepted as %+v", b, m)
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) &&
			!errors.Is(err, ErrOldFormat):
			t.Fatal(err)
		}
	})
}

func FuzzRunHeader(f *testing.F) {
	r := Run{Partition: 1, Table: 2, ID: 3, FirstSeq: 4, LastSeq: 5, Count: 6}
	f.Add(r.headerKey(), r.encodeHeader())
	f.Add([]byte{kindRun}, []byte{runHeaderVersion})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := decodeRun(key, value)
		switch {
		case err == nil && (!bytes.Equal(r.headerKey(), key) || !bytes.Equal(r.encodeHeader(), value)):
			t.Fatalf("%x %x is accepted as %+v", key, value, r)
		case err != nil && !errors.Is(err, ErrCorrupt):
			t.Fatal(err)
		}
	})
}

// FuzzRunFile reads a run's footer, index and blocks from any bytes.
func FuzzRunFile(f *testing.F) {
	r := Run{Partition: 1, Table: 2, ID: 3, Count: 1, Bytes: 5}
	block := appendRunRecord(nil, 7, 8, []byte("value"))
	block = binary.BigEndian.AppendUint32(block, crc32.Checksum(block, disk.Castagnoli))
	x := newRunIndex(1)
	x.setEnd(0, uint64(len(block)))
	index := x.appendTo(nil)
	footer := runFooter{run: r, blocks: 1, index: uint64(len(block)),
		sum: crc32.Checksum(index, disk.Castagnoli)}
	f.Add(footer.appendTo(append(append([]byte(nil), block...), index...)))
	f.Add(footer.appendTo(nil))
	f.Add(block)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := readRunIndex(bytes.NewReader(b), int64(len(b)), r)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		for i := range x.n {
			from, to := x.span(i)
			if from == to {
				continue
			}
			records, err := checkRunBlock(b[from:to])
			for err == nil && len(records) > 0 {
				_, _, _, records, err = nextRunRecord(records)
			}
		}
		// Records that no checksum vouches for.
		for err := error(nil); err == nil && len(b) > 0; {
			_, _, _, b, err = nextRunRecord(b)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	header, sum := encodeSnapshotHeader(1, 2)
	frame := append(make([]byte, frameHeaderSize), "content"...)
	sum = sealFrame(frame, sum, 7)
	end := append(make([]byte, frameHeaderSize), 0, 0, 0, 0, 0, 0, 0, 7)
	sealFrame(end, sum, 0)
	whole := bytes.Join([][]byte{header, frame, end}, nil)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(header)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := newSnapshotReader(bytes.NewReader(b), 1, 2)
		if err == nil {
			var content []byte
			if content, err = io.ReadAll(r); err == nil && len(content) > len(b) {
				t.Fatalf("%d bytes from a file of %d", len(content), len(b))
			}
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func FuzzScanManifest(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat(chunk(disk.First, "first"), 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		tail, err := disk.Scan(bytes.NewReader(b), 0, parseChunk, func(disk.Part, int64, []byte) {})
		size := int64(len(b))
		if err != nil || tail.Good < 0 || tail.Good > tail.Valid || tail.Stray > size || tail.Bad >= size &&
			size > 0 ||
			tail.Valid > size || tail.Stray > 0 && tail.Bad < 0 {
			t.Fatalf("%+v %v", tail, err)
		}
	})
}

// FuzzMoved reads the items of a partition that moves, and its tail.
func FuzzMoved(f *testing.F) {
	var good bytes.Buffer
	var buf []byte
	item := func(kind MovedKind, key, value []byte) {
		for _, b := range [][]byte{key, value} {
			buf = binary.AppendUvarint(buf, uint64(len(b)))
			buf = append(buf, b...)
		}
		good.WriteByte(byte(kind))
		good.Write(buf)
		buf = nil
	}
	run := Run{Partition: 1, Table: 2, ID: 3, FirstSeq: 4, LastSeq: 5, Count: 1}
	row := make([]byte, rowPrefixSize+3)
	RowKey{Slot: 5000, Hash: 1, Key: []byte("key")}.put(row)
	item(MovedHeader, nil, []byte{1})
	item(MovedState, nil, []byte{2})
	item(MovedFilters, nil, []byte{3})
	item(MovedRow, row, []byte{4})
	item(MovedRun, run.headerKey(), run.encodeHeader())
	item(MovedRecord, make([]byte, movedRecord), []byte{5})
	f.Add(good.Bytes())
	f.Add(good.Bytes()[:good.Len()-1])
	f.Add([]byte("h\x00\xff\xff\xff\x7f"))
	f.Add(append([]byte{'h'}, bytes.Repeat([]byte{0xff}, 11)...))
	frame := append(make([]byte, 8), "content"...)
	sealFrame(frame, 0, 7)
	f.Add(frame)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := ReadMoved(bytes.NewReader(b), uint64(len(b)), 1, 4096, 8191)
		var item MovedItem
		err := r.Next(&item)
		for ; err == nil; err = r.Next(&item) {
			if k := item.Row; k.Key != nil && (k.Slot < 4096 || k.Slot > 8191) || item.Run.Partition > 1 ||
				item.Run.Count > uint64(len(b)) {
				t.Fatalf("%+v is another partition's", item)
			}
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		var tail Tail
		n := int64(0)
		err = tail.read(bytes.NewReader(b), func(content []byte) error {
			n += 8 + int64(len(content))
			return nil
		})
		if err != nil || n != tail.at || n > int64(len(b)) {
			t.Fatalf("of a tail of %d bytes %d are read, to %d: %v", len(b), n, tail.at, err)
		}
	})
}
