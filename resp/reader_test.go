package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// pieces is a source that hands out its bytes at most size at a time.
type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.data)
	p.data = p.data[n:]
	return n, nil
}

// readAll reads every frame of input, fed in pieces of the given size. The
// frames between two calls of Fill are copied only right before the second, so
// that an argument overwritten too early shows.
func readAll(t testing.TB, input string, size int, l Limits) (frames [][]string, err error) {
	t.Helper()
	r := NewReader(&pieces{[]byte(input), size}, l)
	for {
		if _, err := r.Fill(); err != nil {
			if err != io.EOF {
				t.Fatalf("Fill: %v", err)
			}
			return frames, nil
		}
		var round [][][]byte
		var protocol error
		for {
			args, ok, err := r.Next()
			if err != nil || !ok {
				protocol = err
				break
			}
			round = append(round, args)
		}
		for _, args := range round {
			var frame []string
			for _, a := range args {
				frame = append(frame, string(a))
			}
			frames = append(frames, frame)
		}
		if protocol != nil {
			if _, _, again := r.Next(); again != protocol {
				t.Fatalf("Next after %v: %v, want the same error", protocol, again)
			}
			return frames, protocol
		}
	}
}

func TestReaderFrames(t *testing.T) {
	tests := []struct {
		name, in string
		want     string // %q of the frames
	}{
		{"array", "*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", `[["ECHO" "hi"]]`},
		{"empty argument", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", `[["ECHO" ""]]`},
		{"binary argument", "*1\r\n$4\r\n\r\n\x00*\r\n", `[["\r\n\x00*"]]`},
		{"pipeline", "*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n", `[["PING"] ["PING"] ["QUIT"]]`},
		{"no arguments", "*0\r\n*-1\r\n*-5\r\nPING\r\n", `[["PING"]]`},
		{"blank lines", "\r\n\n  \t\r\nPING\r\n", `[["PING"]]`},
		{"inline, LF only", "PING\n", `[["PING"]]`},
		{"inline, white space", "  a \t b\rc\r\n", `[["a" "b" "c"]]`},
		{"inline, double quotes", `e "a b" "\x41\n\r\t\b\a\q\"\\" "\xzz" ""` + "\r\n",
			`[["e" "a b" "A\n\r\t\b\aq\"\\" "xzz" ""]]`},
		{"inline, single quotes", `e 'a b' '\x41\'b' ''` + "\r\n", `[["e" "a b" "\\x41'b" ""]]`},
		{"inline, quote within a word", `e a"b c"` + "\n", `[["e" "ab c"]]`},
		{"inline, backslash unquoted", `e \x41` + "\n", `[["e" "\\x41"]]`},
		{"incomplete", "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPIN", `[["PING"]]`},
	}
	for _, tt := range tests {
		for size := 1; size <= len(tt.in); size++ {
			frames, err := readAll(t, tt.in, size, Limits{})
			if got := fmt.Sprintf("%q", frames); err != nil || got != tt.want {
				t.Errorf("%s in pieces of %d: %s, %v, want %s", tt.name, size, got, err, tt.want)
			}
		}
	}
}

// TestReaderProtocolErrors holds the errors, in Redis' words, and that requests
// before the bad one are still handed out.
func TestReaderProtocolErrors(t *testing.T) {
	long := strings.Repeat("1", 70000)
	small := Limits{MaxArgs: 3, MaxBulk: 10, MaxInline: 20, MaxRequest: 40}
	tests := []struct {
		in     string
		limits Limits
		want   string
	}{
		{"*1\r\n$9223372036854775807\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$9223372036854775808\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$-9223372036854775808\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$-1\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$a\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$04\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$-0\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$ 4\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$4\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$1048577\r\n", Limits{}, "invalid bulk length"},
		{"*1\r\n$11\r\n", small, "invalid bulk length"},
		{"*1\r\n$4\r\nPINGxx", Limits{}, "invalid bulk length"},
		{"*1\r\n$4\r\nPING\rx", Limits{}, "invalid bulk length"},
		{"*1\r\nxabc\r\n", Limits{}, "expected '$', got 'x'"},
		{"*1\r\n:5\r\n", Limits{}, "expected '$', got ':'"},
		{"*9223372036854775807\r\n", Limits{}, "invalid multibulk length"},
		{"*99999999999999999999999999\r\n", Limits{}, "invalid multibulk length"},
		{"*2147483648\r\n", Limits{}, "invalid multibulk length"},
		{"*1048577\r\n", Limits{}, "invalid multibulk length"},
		{"*4\r\n", small, "invalid multibulk length"},
		{"a b c d\r\n", small, "invalid multibulk length"},
		{"*a\r\n", Limits{}, "invalid multibulk length"},
		{"*\r\n", Limits{}, "invalid multibulk length"},
		{"*+1\r\n", Limits{}, "invalid multibulk length"},
		{"*01\r\n", Limits{}, "invalid multibulk length"},
		{"*-0\r\n", Limits{}, "invalid multibulk length"},
		{"*1x\r\n", Limits{}, "invalid multibulk length"},
		{"*1\n", Limits{}, "invalid multibulk length"},
		{"*" + long, Limits{}, "too big mbulk count string"},
		{"*1\r\n$" + long, Limits{}, "too big bulk count string"},
		{long, Limits{}, "too big inline request"},
		{"echo abcdefghijklmno\r\n", small, "too big inline request"},
		{"*3\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n$9\r\n", small, "too big request"},
		{"PING 'abc\r\n", Limits{}, "unbalanced quotes in request"},
		{"PING \"abc\r\n", Limits{}, "unbalanced quotes in request"},
		{"PING \"abc\"d\r\n", Limits{}, "unbalanced quotes in request"},
		{"PING \"abc\\\r\n", Limits{}, "unbalanced quotes in request"},
		{"POST / HTTP/1.1\r\n", Limits{}, "this is not an HTTP server"},
		{"host: localhost:6379\r\n", Limits{}, "this is not an HTTP server"},
		{"*11\r\n", UnauthenticatedLimits, "unauthenticated multibulk length"},
		{"*1\r\n$16385\r\n", UnauthenticatedLimits, "unauthenticated bulk length"},
		{"*1\r\n$-1\r\n", UnauthenticatedLimits, "invalid bulk length"},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 3, 7, 64, 1 << 20} {
			frames, err := readAll(t, "a b\r\n*1\r\n$1\r\nc\r\n"+tt.in, size, tt.limits)
			if got := fmt.Sprintf("%q", frames); got != `[["a" "b"] ["c"]]` {
				t.Errorf("%.40q in pieces of %d: frames %s", tt.in, size, got)
			}
			var protocol *ProtocolError
			if !errors.As(err, &protocol) || protocol.Text != "ERR Protocol error: "+tt.want {
				t.Errorf("%.40q in pieces of %d: %v, want %s", tt.in, size, err, tt.want)
			}
		}
	}
}

func TestReaderAtTheLimits(t *testing.T) {
	l := Limits{MaxArgs: 3, MaxBulk: 10, MaxInline: 20, MaxRequest: 38}
	for _, in := range []string{
		"*2\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n",
		"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
		"echo abcdefghijklm\r\n",
	} {
		for size := 1; size <= len(in); size++ {
			frames, err := readAll(t, in, size, l)
			if err != nil || len(frames) != 1 {
				t.Errorf("%q in pieces of %d: %q, %v", in, size, frames, err)
			}
		}
	}
}

// TestReaderSetLimits lifts the limits in the middle of a buffer, as AUTH at the
// start of a pipeline does.
func TestReaderSetLimits(t *testing.T) {
	in := "AUTH x\r\n*11\r\n" + strings.Repeat("$1\r\na\r\n", 11)
	r := NewReader(strings.NewReader(in), UnauthenticatedLimits)
	if _, err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	if args, ok, err := r.Next(); !ok || err != nil || len(args) != 2 {
		t.Fatalf("AUTH: %q, %v, %v", args, ok, err)
	}
	r.SetLimits(Limits{})
	if args, ok, err := r.Next(); !ok || err != nil || len(args) != 11 {
		t.Fatalf("after AUTH: %q, %v, %v", args, ok, err)
	}
}

// randomFrames returns n well-formed requests as bytes. Few of them are inline
// and simple, since redcon differs from Redis in the finer points of quoting.
func randomFrames(rnd *rand.Rand, n int) string {
	var b []byte
	for range n {
		if rnd.IntN(8) == 0 {
			b = fmt.Appendf(b, "word%d  'quoted %d'\r\n", rnd.IntN(1000), rnd.IntN(10))
			continue
		}
		args := 1 + rnd.IntN(6)
		b = redcon.AppendArray(b, args)
		for range args {
			arg := make([]byte, rnd.IntN(1+rnd.IntN(300)))
			for i := range arg {
				arg[i] = "\r\n*$ab0"[rnd.IntN(7)]
			}
			b = redcon.AppendBulk(b, arg)
		}
	}
	return string(b)
}

// redconFrames parses input with redcon.
func redconFrames(t testing.TB, input string) (frames [][]string) {
	t.Helper()
	rest := []byte(input)
	for len(rest) > 0 {
		complete, args, _, leftover, err := redcon.ReadNextCommand(rest, nil)
		if err != nil || !complete {
			t.Fatalf("redcon: complete %v, %v", complete, err)
		}
		var frame []string
		for _, a := range args {
			frame = append(frame, string(a))
		}
		if len(frame) > 0 {
			frames = append(frames, frame)
		}
		rest = leftover
	}
	return frames
}

// TestReaderAgainstRedcon holds the reader to redcon's parser on well-formed
// input, fed in pieces of every size up to a few pages.
func TestReaderAgainstRedcon(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	sizes := []int{4095, 4096, 4097, 10000, 1 << 20}
	for size := 1; size <= 300; size++ {
		sizes = append(sizes, size)
	}
	for _, size := range sizes {
		input := randomFrames(rnd, 60)
		want := redconFrames(t, input)
		got, err := readAll(t, input, size, Limits{})
		if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("pieces of %d: %v\n got %q\nwant %q", size, err, got, want)
		}
	}
}

// TestReaderDoesNotRescan feeds large requests byte by byte. A reader that
// parses a partial request from its start each time takes minutes for it.
func TestReaderDoesNotRescan(t *testing.T) {
	const n = 100_000
	frame := fmt.Sprintf("*%d\r\n", n) + strings.Repeat("$1\r\na\r\n", n)
	begin := time.Now()
	frames, err := readAll(t, frame, 1, Limits{})
	if err != nil || len(frames) != 1 || len(frames[0]) != n {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	if took := time.Since(begin); took > testwait.Limit {
		t.Errorf("%d bytes one by one took %v", len(frame), took)
	}
}

// TestReaderAllocatesForArrivedBytesOnly announces much and sends little.
func TestReaderAllocatesForArrivedBytesOnly(t *testing.T) {
	for _, in := range []string{"*1048576\r\n", "*1048576\r\n$1\r\na\r\n", "*1\r\n$1048576\r\nabc"} {
		r := NewReader(strings.NewReader(in), Limits{})
		if _, err := r.Fill(); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := r.Next(); ok || err != nil {
			t.Fatalf("%q: %v, %v", in, ok, err)
		}
		if r.Cap() > minBuffer || cap(r.spans) > 16 || cap(r.args) > 16 {
			t.Errorf("%q: buffer %d, spans %d, args %d", in, r.Cap(), cap(r.spans), cap(r.args))
		}
	}
}

// TestReaderShrinks sends large requests, then small ones.
func TestReaderShrinks(t *testing.T) {
	large := string(redcon.AppendBulk([]byte("*1\r\n"), make([]byte, 1<<20)))
	wide := "*100000\r\n" + strings.Repeat("$1\r\na\r\n", 100000)
	small := "PING\r\n"
	src := &pieces{[]byte(large + wide), 1 << 20}
	r := NewReader(src, Limits{})
	drain := func() (frames int) {
		for {
			if _, err := r.Fill(); err == io.EOF {
				return frames
			}
			for {
				_, ok, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				frames++
			}
		}
	}
	if n := drain(); n != 2 {
		t.Fatalf("%d frames", n)
	}
	if r.Cap() > maxBuffer || cap(r.args) > maxKeptArgs || cap(r.spans) > maxKeptArgs {
		t.Errorf("after large requests: buffer %d, args %d, spans %d", r.Cap(), cap(r.args), cap(r.spans))
	}
	src.size = len(small)
	src.data = []byte(strings.Repeat(small, 2*slackRounds))
	drain()
	if r.Cap() != minBuffer {
		t.Errorf("after small requests: buffer %d, want %d", r.Cap(), minBuffer)
	}
}

// endless is a source that repeats its bytes, one whole round per Read.
type endless []byte

func (e endless) Read(b []byte) (int, error) { return copy(b, e), nil }

// pipeline is n requests as clients send them.
func pipeline(n int) []byte {
	var b []byte
	for i := range n {
		b = redcon.AppendArray(b, 4)
		b = redcon.AppendBulkString(b, "CINCRBY")
		b = redcon.AppendBulkString(b, fmt.Sprintf("counter:%06d", i))
		b = redcon.AppendBulkString(b, "018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f")
		b = redcon.AppendBulkString(b, "1")
	}
	return b
}

func TestReaderSteadyStateDoesNotAllocate(t *testing.T) {
	input := pipeline(64)
	r := NewReader(endless(input), Limits{})
	round := func() {
		for n := 0; n < 64; {
			if _, err := r.Fill(); err != nil {
				t.Fatal(err)
			}
			for {
				_, ok, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				n++
			}
		}
	}
	// The source is only in step with the frames once the buffer holds a round.
	r.buf = make([]byte, 0, 4*minBuffer)
	for range 2 * slackRounds {
		round()
	}
	if allocs := testing.AllocsPerRun(1000, round); allocs != 0 {
		t.Errorf("%v allocations per pipeline of 64", allocs)
	}
}

func BenchmarkReader(b *testing.B) {
	for _, depth := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("pipeline=%d", depth), func(b *testing.B) {
			input := pipeline(depth)
			r := NewReader(endless(input), Limits{})
			r.buf = make([]byte, 0, 4*minBuffer)
			b.SetBytes(int64(len(input) / depth))
			b.ReportAllocs()
			for n := 0; n < b.N; {
				if _, err := r.Fill(); err != nil {
					b.Fatal(err)
				}
				for {
					_, ok, err := r.Next()
					if err != nil {
						b.Fatal(err)
					}
					if !ok {
						break
					}
					n++
				}
			}
		})
	}
}

// FuzzReader holds that how a stream is cut into reads does not change what it
// says, and that redcon understands what was read as arrays the same way.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", "PING 'a b' \"\\x41\"\r\n", "*0\r\n*-1\r\n",
		"*1\r\n$9223372036854775807\r\n", "*1048576\r\n$1\r\n", "*1\r\n$1\r\nab\r\n", "\r\n \n*1\r\nx",
	} {
		f.Add([]byte(seed), uint8(1))
	}
	l := Limits{MaxArgs: 100, MaxBulk: 200, MaxInline: 150, MaxRequest: 1000}
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		whole, wholeErr := readAll(t, string(data), max(1, len(data)), l)
		cut, cutErr := readAll(t, string(data), int(size)+1, l)
		if fmt.Sprint(wholeErr) != fmt.Sprint(cutErr) || !slices.EqualFunc(whole, cut, slices.Equal) {
			t.Fatalf("whole: %q, %v\n cut: %q, %v", whole, wholeErr, cut, cutErr)
		}
		var again bytes.Buffer
		for _, frame := range whole {
			b := redcon.AppendArray(nil, len(frame))
			for _, arg := range frame {
				b = redcon.AppendBulkString(b, arg)
			}
			again.Write(b)
		}
		if want := redconFrames(t, again.String()); !slices.EqualFunc(whole, want, slices.Equal) {
			t.Fatalf("%q, redcon %q", whole, want)
		}
	})
}

// TestChunk: one command may have longer arguments than others, but for its name.
func TestChunk(t *testing.T) {
	l := Limits{MaxArgs: 3, MaxBulk: 10, MaxRequest: 200, Chunk: "load", MaxChunk: 50}
	read := func(words ...string) error {
		in := fmt.Sprintf("*%d\r\n", len(words))
		for _, w := range words {
			in += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		r := NewReader(strings.NewReader(in), l)
		r.Fill()
		args, ok, err := r.Next()
		if err == nil && (!ok || string(args[len(args)-1]) != words[len(words)-1]) {
			t.Errorf("%q came as %q", words, args)
		}
		return err
	}
	long := strings.Repeat("x", 50)
	for _, words := range [][]string{{"LOAD", "k", long}, {"load", long}} {
		if err := read(words...); err != nil {
			t.Error(words, err)
		}
	}
	for _, words := range [][]string{{"LOAD", "k", long + "x"}, {"save", long}, {"save", "load",
		long}, {long}} {
		if err := read(words...); err == nil {
			t.Error(words, "are accepted")
		}
	}
}
