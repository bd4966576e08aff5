package stream

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// record is a line of the input, or, in CSV, all lines that a quoted field goes over.
type record struct {
	text   string // without the end of the last line
	lines  int64
	header bool  // it names the columns
	long   bool  // a line is longer than maxLine: it is passed over
	print  int64 // fingerprint of the last line
	end    int64 // bytes read so far
}

// errQuotes: CSV goes on and on.
var errQuotes = errors.New("a quoted field begins there, and does not end before the input does, or " +
	"within 1 MiB")

// read calls fn with each record behind the committed lines, until that returns false.
func (in *input) read(r io.Reader, fn func(l *record) bool) error {
	src := bufio.NewReaderSize(r, maxLine+len("\r\n"))
	if mark, err := src.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		src.Discard(len(byteOrderMark))
	}
	var open *record // in CSV, what a quoted field goes on behind
	begins, end := int64(0), int64(0)
	for n := int64(1); ; n++ {
		l, err := readLine(src)
		if err != nil && err != io.EOF {
			return err
		}
		if l == nil {
			return in.ended(n-1, begins, open)
		}
		end += l.end
		l.end = end
		if err := in.compare(n, l.print); err != nil {
			return err
		}
		if n == 1 && in.header {
			if in.columns, err = csv.NewReader(strings.NewReader(l.text)).Read(); err != nil {
				return fmt.Errorf("the first line names no columns: %w", err)
			}
			l.header = true
		}
		if n <= in.committed.lines {
			continue
		}
		if open == nil {
			begins = n
		}
		if in.csv && !l.long && !l.header {
			quoted := inQuotes(l.text, open != nil)
			if l, err = l.behind(open); err != nil {
				return fmt.Errorf("line %d: %w", begins, err)
			}
			if open = nil; quoted {
				open = l
				continue
			}
		} else if open != nil {
			return fmt.Errorf("line %d: %w", begins, errQuotes)
		}
		if !fn(l) {
			return nil
		}
	}
}

// ended judges an input that has so many lines.
func (in *input) ended(lines, begins int64, open *record) error {
	switch {
	case lines < in.committed.lines:
		return in.refuse(fmt.Sprintf("it ends behind line %d", lines))
	case open != nil:
		return fmt.Errorf("line %d: %w", begins, errQuotes)
	}
	return nil
}

// compare refuses an input of which other lines were committed.
func (in *input) compare(n, print int64) error {
	if n == 1 {
		in.line1 = print
	}
	if at := in.committed; at.lines > 0 &&
		(n == 1 && print != at.first || n == at.lines && print != at.last) {
		return in.refuse(fmt.Sprintf("its line %d is another one", n))
	}
	return nil
}

// fingerprint makes a fingerprint of a hash: a counter, also in a table with MIN 0 or a small SCALE.
func fingerprint(hash uint64) int64 { return int64(hash >> 24) }

// readLine reads a line; nil: there is none.
func readLine(src *bufio.Reader) (*record, error) {
	text, err := src.ReadSlice('\n')
	l := &record{lines: 1, end: int64(len(text))}
	if len(text) == 0 {
		return nil, err
	}
	if err == nil || err == io.EOF {
		l.text = strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
		l.long, l.print = len(l.text) > maxLine, fingerprint(xxhash.Sum64String(l.text))
		return l, nil
	}
	l.long = true
	for sum := xxhash.New(); ; {
		sum.Write(text)
		l.print = fingerprint(sum.Sum64())
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		text, err = src.ReadSlice('\n')
		l.end += int64(len(text))
	}
	if err == io.EOF {
		err = nil
	}
	return l, err
}

// behind appends the line to a record that it goes on.
func (l *record) behind(open *record) (*record, error) {
	if open == nil {
		return l, nil
	}
	if len(open.text)+1+len(l.text) > maxLine {
		return nil, errQuotes
	}
	l.text, l.lines = open.text+"\n"+l.text, open.lines+1
	return l, nil
}

// inQuotes reports whether a line of CSV ends within a quoted field, which it may begin in.
func inQuotes(line string, quoted bool) bool {
	begins := !quoted // of a field
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '"' && i+1 < len(line) && line[i+1] == '"':
			i++
		case quoted && c == '"':
			quoted = false
		case quoted:
		case begins && c == '"':
			quoted, begins = true, false
		default:
			begins = c == ','
		}
	}
	return quoted
}
