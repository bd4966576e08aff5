package persistence

import (
	"errors"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logWindow is how far apart in a file the records may lie that ReadLog reads at
// once.
const logWindow = 128 << 10

// ReadLog calls fn for the partition's sections of the op log with a sequence of at
// least from, ascending, until it returns an error, which ReadLog returns. fn
// borrows the section. It sees the log as Open found it, and nothing after
// EndRecovery.
func (db *DB) ReadLog(partition uint16, from uint64, fn func(seq uint64, record []byte) error) error {
	if db.closed.Load() {
		return ErrClosed
	}
	list := db.log.index[partition]
	r := logReader{l: db.log}
	list = list[sort.Search(len(list), func(i int) bool { return list[i].seq >= from }):]
	err := r.read(list, fn)
	return errors.Join(err, wrap("read the op log", r.close()))
}

// LogBounds returns the lowest and the highest sequence in the partition's op
// log, as Open found it; ok is false when it is empty.
func (db *DB) LogBounds(partition uint16) (first, last uint64, ok bool, err error) {
	if db.closed.Load() {
		return 0, 0, false, ErrClosed
	}
	list := db.log.index[partition]
	if len(list) == 0 {
		return 0, 0, false, nil
	}
	return list[0].seq, list[len(list)-1].seq, true, nil
}

// EndRecovery gives back the memory in which ReadLog's index is.
func (db *DB) EndRecovery() { db.log.index = make([][]logPosition, len(db.log.lows)) }

// TrimLog gives up the partition's sections of the op log below a sequence: a file that
// holds no other is used again. Whatever was to outlast them must be durable.
func (db *DB) TrimLog(partition uint16, below uint64) error {
	if err := db.failure(); err != nil {
		return err
	}
	return wrap("trim the op log", db.log.trim(partition, below))
}

// PinsLog reports whether the op log has more than limit bytes and the
// partition's records are among those that keep its oldest file.
func (db *DB) PinsLog(partition uint16, limit uint64) bool { return db.log.pins(partition, limit) }

// logReader reads records at known positions.
type logReader struct {
	l    *opLog
	num  uint64
	file vfs.File
	buf  []byte
	one  []byte
}

func (r *logReader) read(list []logPosition, fn func(seq uint64, record []byte) error) error {
	for len(list) > 0 {
		first := list[0]
		n, end := 1, first.end()
		for n < len(list) && list[n].file == first.file && list[n].end()-first.at <= logWindow {
			end = list[n].end()
			n++
		}
		if err := r.load(first, end); err != nil {
			return wrap("read the op log", err)
		}
		for _, p := range list[:n] {
			// A record that crosses blocks is put together in place, so in a copy.
			r.one = append(r.one[:0], r.buf[p.at-first.at:p.end()-first.at]...)
			if err := fn(p.seq, unframe(r.one, p.at)); err != nil {
				return err
			}
		}
		list = list[n:]
	}
	return nil
}

// end is the offset behind the record's last byte.
func (p logPosition) end() int64 {
	if p.size == 0 {
		return p.at
	}
	return payloadOffset(p.at, p.size-1) + 1
}

// load reads a file's bytes from p on up to end.
func (r *logReader) load(p logPosition, end int64) error {
	if r.file == nil || r.num != p.file {
		if err := r.close(); err != nil {
			return err
		}
		f, err := r.l.fs.Open(r.l.path(logFileName(p.file)))
		if err != nil {
			return err
		}
		r.file, r.num = f, p.file
	}
	n := int(end - p.at)
	if cap(r.buf) < n {
		r.buf = make([]byte, max(n, logWindow))
	}
	r.buf = r.buf[:n]
	if n == 0 {
		return nil
	}
	_, err := r.file.ReadAt(r.buf, p.at)
	return err
}

func (r *logReader) close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}
