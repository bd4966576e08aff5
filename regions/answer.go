package regions

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// ErrAnswer: what should answer REGION.PULL does not.
var ErrAnswer = errors.New("this is no answer of a region")

const (
	answerHead  = 2 // the clock, and the version of the members
	answerParts = 3
	maxLine     = 1024          // bytes of a line of an answer
	maxSection  = 1<<30 + 1<<20 // by as much an answer may exceed what was asked for: a section of the op log
)

func isGap(err error) bool { return errors.Is(err, store.ErrGap) }

// answer is what a source says of a range of which something follows.
type answer struct {
	first  uint16 // slot
	newest uint64 // last sequence in the source
	data   []byte // for Store.Take; nil: there was no room
	upTo   uint64 // what it tells of; who asks does not hear that
	err    string // an error reply in its place
}

func (a *answer) write(w *resp.Writer) {
	w.Int(int64(a.first))
	w.BulkString(strconv.FormatUint(a.newest, 10)) // an integer of RESP has 63 bits
	switch {
	case a.err != "":
		w.Error(a.err)
	case a.data == nil:
		w.Null()
	default:
		w.Bulk(a.data)
	}
}

// answerReader reads answers from a connection. Its memory grows with the bytes that have arrived.
type answerReader struct {
	r     *bufio.Reader
	bytes uint64 // of all answers
}

// status reads the reply of AUTH.
func (r *answerReader) status() error {
	kind, rest, err := r.line()
	switch {
	case err != nil:
		return err
	case kind == '-':
		return errorOf(rest)
	case kind != '+':
		return ErrAnswer
	}
	return nil
}

// head is what an answer begins with.
type head struct {
	clock   int64  // of the source, unix ms
	version uint64 // of the members, as the source knows them
}

// read reads the answer to a request.
func (r *answerReader) read(q *Request) (h head, answers []answer, err error) {
	kind, rest, err := r.line()
	switch {
	case err != nil:
		return h, nil, err
	case kind == '-':
		return h, nil, errorOf(rest)
	case kind == '*':
		return r.array(rest, q)
	case kind != '$':
		return h, nil, ErrAnswer
	}
	b, err := r.body(rest, q.Most+maxSection)
	if err != nil {
		return h, nil, err
	}
	if b, err = store.Unpack(nil, b); err != nil {
		return h, nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	whole := bytes.NewReader(b)
	plain := answerReader{r: bufio.NewReader(whole)}
	if kind, rest, err = plain.line(); err == nil && kind == '*' {
		h, answers, err = plain.array(rest, q)
	}
	if err != nil || kind != '*' || whole.Len()+plain.r.Buffered() > 0 {
		return h, nil, fmt.Errorf("%w: what is packed (%w)", ErrAnswer, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return h, answers, nil
}

// array reads the rest of an answer that is an array.
func (r *answerReader) array(rest string, q *Request) (h head, answers []answer, err error) {
	n, err := number(rest, uint64(answerHead+answerParts*len(q.Ranges)))
	if err != nil || n%answerParts != answerHead {
		return h, nil, ErrAnswer
	}
	if h.clock, err = r.int(1 << 53); err != nil {
		return h, nil, err
	}
	version, err := r.int(store.MaxRegionVersion)
	if h.version = uint64(version); err != nil {
		return h, nil, err
	}
	asked := make(map[uint16]bool, len(q.Ranges))
	for _, p := range q.Ranges {
		asked[p.First] = true
	}
	left := q.Most + maxSection
	for range n / answerParts {
		var a answer
		if a, err = r.answer(left); err != nil {
			return h, nil, err
		}
		if left -= len(a.data); !asked[a.first] {
			return h, nil, fmt.Errorf("%w: slot %d was not asked for", ErrAnswer, a.first)
		}
		delete(asked, a.first)
		answers = append(answers, a)
	}
	return h, answers, nil
}

func (r *answerReader) answer(most int) (a answer, err error) {
	first, err := r.int(slots - 1)
	if err != nil {
		return a, err
	}
	a.first = uint16(first)
	newest, _, err := r.bulk(20)
	if err != nil {
		return a, err
	}
	if a.newest, err = number(string(newest), 1<<64-1); err != nil {
		return a, err
	}
	a.data, a.err, err = r.bulk(most)
	return a, err
}

// members reads the answer to REGION.PULL MEMBERS.
func (r *answerReader) members() (store.RegionSet, error) {
	b, failed, err := r.bulk(store.MaxRegionSet)
	switch {
	case err != nil:
		return store.RegionSet{}, err
	case failed != "":
		return store.RegionSet{}, errorOf(failed)
	}
	set, err := store.DecodeRegionSet(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return set, err
}

// line reads a line: its first byte, and the rest.
func (r *answerReader) line() (kind byte, rest string, err error) {
	line, err := r.r.ReadSlice('\n')
	r.bytes += uint64(len(line))
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return 0, "", fmt.Errorf("%w: a line without end", ErrAnswer)
	case err != nil:
		return 0, "", err
	case len(line) < 3 || len(line) > maxLine || line[len(line)-2] != '\r':
		return 0, "", ErrAnswer
	}
	return line[0], string(line[1 : len(line)-2]), nil
}

func (r *answerReader) int(most uint64) (int64, error) {
	kind, rest, err := r.line()
	if err != nil {
		return 0, err
	}
	n, err := number(rest, most)
	if kind != ':' || err != nil {
		return 0, ErrAnswer
	}
	return int64(n), nil
}

// bulk reads a string, nil if it is null, or the error in its place.
func (r *answerReader) bulk(most int) (b []byte, failed string, err error) {
	kind, rest, err := r.line()
	switch {
	case err != nil:
		return nil, "", err
	case kind == '-':
		return nil, rest, nil
	case kind != '$':
		return nil, "", ErrAnswer
	case rest == "-1":
		return nil, "", nil
	}
	b, err = r.body(rest, most)
	return b, "", err
}

// body reads the rest of a string that has a length.
func (r *answerReader) body(length string, most int) ([]byte, error) {
	n, err := number(length, uint64(max(most, 0)))
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	got, err := io.CopyN(&buf, r.r, int64(n)+2)
	r.bytes += uint64(got)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	b, ok := bytes.CutSuffix(buf.Bytes(), []byte("\r\n"))
	if !ok {
		return nil, ErrAnswer
	}
	return b, nil
}

// number reads a number that is written in the one way there is.
func number(s string, most uint64) (uint64, error) {
	a := numbers{rest: [][]byte{[]byte(s)}}
	if n := a.next("", 0, most); a.err == nil {
		return n, nil
	}
	return 0, fmt.Errorf("%w: %.20q", ErrAnswer, s)
}
