package resp

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	tests := []struct {
		name         string
		write        func(w *Writer)
		resp2, resp3 string
	}{
		{"int", func(w *Writer) { w.Int(-42) }, ":-42\r\n", ":-42\r\n"},
		{"min int", func(w *Writer) { w.Int(math.MinInt64) }, ":-9223372036854775808\r\n",
			":-9223372036854775808\r\n"},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\nb")) }, "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
		{"empty bulk", func(w *Writer) { w.BulkString("") }, "$0\r\n\r\n", "$0\r\n\r\n"},
		{"status", func(w *Writer) { w.Status("OK") }, "+OK\r\n", "+OK\r\n"},
		{"error on one line", func(w *Writer) { w.Error("ERR a\r\nb") }, "-ERR a  b\r\n", "-ERR a  b\r\n"},
		{"null", func(w *Writer) { w.Null() }, "$-1\r\n", "_\r\n"},
		{"null array", func(w *Writer) { w.NullArray() }, "*-1\r\n", "_\r\n"},
		{"array", func(w *Writer) { w.Array(12) }, "*12\r\n", "*12\r\n"},
		{"map", func(w *Writer) { w.Map(2) }, "*4\r\n", "%2\r\n"},
		{"set", func(w *Writer) { w.Set(3) }, "*3\r\n", "~3\r\n"},
		{"pair", func(w *Writer) { w.Pair("a", "") }, "$1\r\na\r\n$0\r\n\r\n", "$1\r\na\r\n$0\r\n\r\n"},
		{"strings", func(w *Writer) { w.BulkStrings([]string{"a", "b"}) }, "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
			"*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
		{"true", func(w *Writer) { w.Bool(true) }, ":1\r\n", "#t\r\n"},
		{"false", func(w *Writer) { w.Bool(false) }, ":0\r\n", "#f\r\n"},
		{"double", func(w *Writer) { w.Double(0.1) }, "$3\r\n0.1\r\n", ",0.1\r\n"},
		{"whole double", func(w *Writer) { w.Double(-3) }, "$2\r\n-3\r\n", ",-3\r\n"},
		{"inf", func(w *Writer) { w.Double(math.Inf(1)) }, "$3\r\ninf\r\n", ",inf\r\n"},
		{"-inf", func(w *Writer) { w.Double(math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"nan", func(w *Writer) { w.Double(math.NaN()) }, "$3\r\nnan\r\n", ",nan\r\n"},
		{"verbatim", func(w *Writer) { w.Verbatim("hi\n") }, "$3\r\nhi\n\r\n", "=7\r\ntxt:hi\n\r\n"},
	}
	for _, tt := range tests {
		for proto, want := range map[int]string{0: tt.resp2, 2: tt.resp2, 3: tt.resp3} {
			w := Writer{Proto: proto}
			tt.write(&w)
			if got := string(w.Bytes()); got != want {
				t.Errorf("%s in RESP%d: %q, want %q", tt.name, proto, got, want)
			}
		}
	}
}

func TestWriterDoubleIsExact(t *testing.T) {
	for _, f := range []float64{1e-6, 1.0 / 3, 1e300, math.SmallestNonzeroFloat64, 123456789.125} {
		w := Writer{Proto: 3}
		w.Double(f)
		text := strings.TrimSuffix(strings.TrimPrefix(string(w.Bytes()), ","), "\r\n")
		if back, err := strconv.ParseFloat(text, 64); err != nil || back != f {
			t.Errorf("%v written as %q, read as %v, %v", f, text, back, err)
		}
	}
}

func TestWriterTruncate(t *testing.T) {
	var w Writer
	w.Int(1)
	n := w.Len()
	w.Array(3)
	w.Truncate(n)
	w.Int(2)
	if got := string(w.Bytes()); got != ":1\r\n:2\r\n" {
		t.Errorf("%q", got)
	}
}

// TestWriterLimit holds that a reply beyond the limit costs no memory.
func TestWriterLimit(t *testing.T) {
	for _, proto := range []int{2, 3} {
		w := Writer{Proto: proto, Limit: 1000}
		w.Array(1 << 20)
		for range 1 << 20 {
			w.BulkString("0123456789")
			w.Verbatim("0123456789")
			w.Null()
			w.NullArray()
			w.Bool(true)
			w.Double(1.5)
			w.Map(1)
			w.Set(1)
			w.Status("OK")
			w.Error("ERR")
		}
		if !w.Overflowed() || w.Len() > 1000 || w.Cap() > 4000 {
			t.Errorf("RESP%d: overflowed %v, %d bytes of %d", proto, w.Overflowed(), w.Len(), w.Cap())
		}
		w.Reset()
		w.Int(1)
		if w.Overflowed() || string(w.Bytes()) != ":1\r\n" {
			t.Errorf("RESP%d after Reset: overflowed %v, %q", proto, w.Overflowed(), w.Bytes())
		}
	}
}

func TestWriterShrinks(t *testing.T) {
	var w Writer
	w.Bulk(make([]byte, 1<<20))
	w.Reset()
	if w.Cap() > maxBuffer {
		t.Errorf("after a large reply: %d bytes held", w.Cap())
	}
	for range 2 * slackRounds {
		w.Int(1)
		w.Reset()
	}
	if w.Cap() > minBuffer {
		t.Errorf("after small replies: %d bytes held", w.Cap())
	}
}

func TestWriterSteadyStateDoesNotAllocate(t *testing.T) {
	w := Writer{Proto: 3}
	round := func() {
		for i := range int64(64) {
			w.Array(2)
			w.Int(i * 1000)
			w.Double(0.25)
			w.Bool(true)
			w.Null()
			w.Verbatim("text")
			w.Status("OK")
		}
		w.Reset()
	}
	round()
	if allocs := testing.AllocsPerRun(1000, round); allocs != 0 {
		t.Errorf("%v allocations per pipeline of 64", allocs)
	}
}

func BenchmarkWriterInt(b *testing.B) {
	var w Writer
	b.ReportAllocs()
	for i := range b.N {
		w.Int(int64(i))
		if i%64 == 63 {
			w.Reset()
		}
	}
}
