package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// maxLine is the longest line, bytes: what proto-max-bulk-len allows by default.
const maxLine = 1 << 20

// input is where records come from, and which part of them is the item.
type input struct {
	field int
	csv   bool
	path  string
	from  string
	group string

	first int64 // lines to pass over: an earlier run has counted them
	size  int64 // of the input, bytes; 0: nobody knows
}

// batch is lines with their items.
type batch struct {
	first   int64 // how many lines were before it
	n       int64 // how many lines it is made of, those without an item too
	lines   []string
	items   []string
	ids     []string     // of the entries of a stream
	done    func() error // to be called once all is done; may be nil
	skipped int64
	end     int64 // bytes read so far
}

// check refuses flags that do not go together.
func (in *input) check() error {
	switch {
	case in.field < 0:
		return errors.New("--field counts from 1")
	case in.path != "" && (in.csv || in.field > 0):
		return errors.New("--json goes with neither --csv nor --field")
	case (in.from == "") != (in.group == ""):
		return errors.New("--from and --group go together")
	}
	return nil
}

// item returns the item of a line; false if the line has none.
func (in *input) item(line string) (string, bool) {
	switch {
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
		words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
		if in.field > len(words) {
			return "", false
		}
		return words[in.field-1], true
	}
	return line, true
}

// itemAt returns the string or number at a path of a JSON object.
func itemAt(line, path string) (string, bool) {
	value := json.RawMessage(line)
	for _, name := range strings.Split(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil || object[name] == nil {
			return "", false
		}
		value = object[name]
	}
	if value[0] != '"' {
		text := string(bytes.TrimSpace(value))
		return text, text != "null" && text[0] != '{' && text[0] != '['
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// add puts a line into the batch.
func (b *batch) add(in *input, line string) bool {
	item, ok := in.item(line)
	if b.n++; !ok {
		b.skipped++
		return false
	}
	b.lines, b.items = append(b.lines, line), append(b.items, item)
	return true
}

// batches reads lines until the input ends or ctx does. Then failed says why it ended early,
// if it did.
func (in *input) batches(ctx context.Context, r io.Reader) (out <-chan *batch, failed *error) {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.size = info.Size()
		}
	}
	type line struct {
		text string
		end  int64
	}
	lines, batches := make(chan line, batchLines), make(chan *batch)
	failed = new(error)
	go func() {
		defer close(lines)
		src := bufio.NewReaderSize(r, maxLine)
		for n, end := int64(1), int64(0); ; n++ {
			text, err := src.ReadSlice('\n')
			if end += int64(len(text)); errors.Is(err, bufio.ErrBufferFull) {
				*failed = fmt.Errorf("line %d is longer than %d bytes", n, maxLine)
				return
			}
			if err != nil && err != io.EOF {
				*failed = err
				return
			}
			if len(text) > 0 && n > in.first {
				select {
				case lines <- line{strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), end}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(batches)
		next := in.first
		for more := true; more; {
			b := &batch{first: next}
			var l line
			if l, more = <-lines; !more {
				return
			}
			full := time.After(batchTime)
			for waiting := true; waiting; {
				b.add(in, l.text)
				b.end = l.end
				if b.n == batchLines {
					break
				}
				select {
				case l, more = <-lines:
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
