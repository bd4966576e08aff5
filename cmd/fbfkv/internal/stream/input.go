package stream

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/valyala/fastjson"
)

// maxLine is the longest line, and the longest record of CSV, bytes: what proto-max-bulk-len allows
// by default.
const maxLine = 1 << 20

// maxBatch is when a batch is full, bytes.
const maxBatch = 4 * maxLine

// byteOrderMark is what some programs write before the first line.
const byteOrderMark = "\ufeff"

// input is where records come from, and which part of them is the item.
type input struct {
	field int
	csv   bool
	path  string
	redis string // The URL of a server with a stream; else the input is standard input.
	name  string // of that stream
	group string

	whole bool  // the item is the whole record
	full  int64 // lines of a batch

	header  bool     // the first line names the columns of CSV
	columns []string // Once it was read.

	committed position // an earlier run has counted so many lines, which are passed over
	refuse    func(why string) error
	line1     int64 // fingerprint of the first line; known once there is a batch
	size      int64 // of the input, bytes; 0: nobody knows
}

// position is how many lines of an input were counted, with the fingerprints of the first and the
// last of them, so that another input is not taken for the rest of it.
type position struct{ lines, first, last int64 }

// batch is lines with their items.
type batch struct {
	first   int64 // how many lines were before it
	n       int64 // how many lines it is made of, those without an item too
	lines   []string
	items   []string
	numbers []int64      // of the items' lines, from 1
	ids     []string     // of the entries of a stream
	again   bool         // they were delivered before
	bytes   int          // of the lines
	done    func() error // to be called once all is done; may be nil
	skipped int64
	long    []int64 // numbers of lines that were too long
	last    int64   // fingerprint of the last line
	end     int64   // bytes read so far
}

// check refuses flags that do not go together.
func (in *input) check() error {
	switch {
	case in.field < 0:
		return errors.New("--field counts from 1")
	case in.path != "" && (in.csv || in.field > 0):
		return errors.New("--json goes with neither --csv nor --field")
	case (in.redis == "") != (in.group == "") || (in.redis == "") != (in.name == ""):
		return errors.New("--redis, --stream and --group go together")
	}
	return nil
}

// item returns the item of a line; false if the line has none.
func (in *input) item(line string) (string, bool) {
	switch {
	case in.whole:
	case in.path != "":
		return itemAt(line, in.path)
	case in.csv:
		fields, err := csv.NewReader(strings.NewReader(line)).Read()
		n := max(in.field, 1)
		if err != nil || n > len(fields) {
			return "", false
		}
		return fields[n-1], true
	case in.field > 0:
		words := wordsOf(line)
		if in.field > len(words) {
			return "", false
		}
		return words[in.field-1], true
	}
	return line, true
}

// wordsOf returns what blanks and tabs separate.
func wordsOf(line string) []string {
	return strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
}

// itemAt returns the string, number or truth value at a path of a JSON object.
func itemAt(line, path string) (string, bool) {
	p := parsers.Get()
	defer parsers.Put(p)
	value, err := p.Parse(line)
	if err != nil {
		return "", false
	}
	return textAt(value, path)
}

var parsers fastjson.ParserPool

// textAt is itemAt of a value. It returns a copy.
func textAt(value *fastjson.Value, path string) (string, bool) {
	for name := range strings.SplitSeq(path, ".") {
		object, err := value.Object()
		if err != nil || object.Get(name) == nil {
			return "", false
		}
		value = object.Get(name)
	}
	switch value.Type() {
	case fastjson.TypeString:
		text, _ := value.StringBytes()
		return string(text), true
	case fastjson.TypeNumber, fastjson.TypeTrue, fastjson.TypeFalse:
		return string(value.MarshalTo(nil)), true
	}
	return "", false
}

// add puts a line into the batch.
func (b *batch) add(in *input, line string) bool {
	item, ok := in.item(line)
	if b.n++; !ok {
		b.skipped++
		return false
	}
	b.bytes += len(line)
	b.lines, b.items, b.numbers = append(b.lines, line), append(b.items, item), append(b.numbers, b.first+b.n)
	return true
}

// addRecord puts a record of standard input into the batch.
func (b *batch) addRecord(in *input, l *record) {
	switch {
	case l.header:
		b.n++
	case l.long:
		b.n, b.skipped, b.long = b.n+l.lines, b.skipped+1, append(b.long, b.first+b.n+1)
	default:
		b.add(in, l.text)
		b.n += l.lines - 1
	}
	b.last, b.end = l.print, l.end
}

// batches reads records until the input ends or ctx does. Then failed says why it ended early,
// if it did.
func (in *input) batches(ctx context.Context, r io.Reader) (out <-chan *batch, failed *error) {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.size = info.Size()
		}
	}
	records, batches := make(chan *record, batchLines), make(chan *batch)
	failed = new(error)
	go func() {
		defer close(records)
		*failed = in.read(r, func(l *record) bool {
			select {
			case records <- l:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	go func() {
		defer close(batches)
		next := in.committed.lines
		for more := true; more; {
			b := &batch{first: next}
			var l *record
			if l, more = <-records; !more {
				return
			}
			full := time.After(batchTime)
			for waiting := true; waiting; {
				if b.addRecord(in, l); b.n >= in.full || b.bytes >= maxBatch {
					break
				}
				select {
				case l, more = <-records:
					waiting = more
				case <-full:
					waiting = false
				}
			}
			next += b.n
			select {
			case batches <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return batches, failed
}
