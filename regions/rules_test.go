package regions

import (
	"bufio"
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// ask lets a region read a source that answers each of its requests with a text.
func ask(t *testing.T, change func(*Options), text func(args [][]byte) string) (r *region,
	asked *atomic.Int64) {
	asked = new(atomic.Int64)
	address := fakeSource(t, func(args [][]byte) string {
		asked.Add(1)
		return text(args)
	})
	all := newRegions(t, 4, 4)
	all[1].start(map[part.Region]string{0: address}, change)
	return all[1], asked
}

// TestUseless: an answer that brings nothing on ends the session, and is not asked for again at once.
func TestUseless(t *testing.T) {
	source := newRegions(t, 4, 4)[0]
	source.once("k", "x", 1)
	for name, text := range map[string]string{
		"no room for anything": "*5\r\n:1\r\n:0\r\n:0\r\n$1\r\n9\r\n$-1\r\n",
		"nobody asked for it":  "*5\r\n:1\r\n:0\r\n:5\r\n$1\r\n9\r\n$-1\r\n",
		"told twice":           "*8\r\n:1\r\n:0\r\n:0\r\n$1\r\n9\r\n$1\r\nx\r\n:0\r\n$1\r\n9\r\n$1\r\nx\r\n",
		"no array":             ":1\r\n",
		"half an answer":       "*4\r\n:1\r\n:0\r\n:0\r\n$1\r\n9\r\n",
		"no clock":             "*2\r\n$1\r\n1\r\n:0\r\n",
		"a number with a sign": "*2\r\n:+1\r\n:0\r\n",
		"a line without end":   "*2\r\n:" + strings.Repeat("1", 2000) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r, asked := ask(t, func(o *Options) { o.FirstRetry, o.LastRetry = time.Hour, time.Hour },
				func([][]byte) string { return text })
			for n := int64(1); n <= 3; n++ {
				eventually(t, "it is an error", func() bool {
					s := r.of(0)
					return s.Failing && strings.Contains(s.LastError, ErrAnswer.Error())
				})
				if asked.Load() != n {
					t.Fatalf("asked %d times, and not %d", asked.Load(), n)
				}
				r.mesh.Resume(0)
				eventually(t, "it is asked again", func() bool { return asked.Load() > n })
			}
		})
	}
}

// TestDoesNotWait: a source that says at once that there is nothing is asked again only after a while.
func TestDoesNotWait(t *testing.T) {
	r, asked := ask(t, func(o *Options) { o.FirstRetry, o.LastRetry = time.Hour, time.Hour },
		func([][]byte) string { return "*2\r\n:1\r\n:0\r\n" })
	for range 3 {
		before := asked.Load()
		r.mesh.Resume(0)
		eventually(t, "it is asked", func() bool { return asked.Load() > before })
	}
	// A reader that did not wait would ask anew with each round trip.
	for i := range 300 {
		r.once("k", strconv.Itoa(i), 1)
	}
	if n := asked.Load(); n > 30 {
		t.Fatalf("asked %d times", n)
	}
}

// TestEraIsAskedSoon: a region that has not followed a flush takes nothing that comes behind it,
// and asks again soon, however often it has failed: it follows when it learns of the flush, which
// these answers do not tell.
func TestEraIsAskedSoon(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b := all[0], all[1]
	b.start(map[part.Region]string{0: a.server.address()}, func(o *Options) { o.LastRetry = time.Hour })
	flushed := func(self int) store.RegionSet {
		set := setOf(all, self)
		set.Version, set.Era = 1, 1
		return set
	}
	a.once("k", "a", 5)
	eventually(t, "b has read it", func() bool { return b.value("k") == 5 })
	must(t, a.s.SetRegions(flushed(0)))
	a.once("k", "a", 7)
	eventually(t, "b has met the new era", func() bool {
		return strings.Contains(b.of(0).LastError, store.ErrEra.Error())
	})
	for range 20 { // each wait twice as long as the one before would take longer than the test may
		at := b.of(0).LastErrorAt
		eventually(t, "b asks again", func() bool { return b.of(0).LastErrorAt != at })
	}
	if v := b.value("k"); v != 5 {
		t.Errorf("before it follows it shows %d", v)
	}
	must(t, b.s.SetRegions(flushed(1)))
	eventually(t, "b has followed", func() bool { return b.value("k") == 7 })
}

// TestAcknowledge: operations that could not be compared are an ill until an operator knows of so many.
func TestAcknowledge(t *testing.T) {
	all := joined(t, 1, 1)
	a, b := all[0], all[1]
	mode := store.Approx
	must(t, b.s.AlterTable(store.DefaultTable, store.TableChange{Mode: &mode}))
	eventually(t, "it says that tables differ", func() bool { return len(b.node.Status().Ills) == 1 })
	for _, id := range []string{"x", "y"} {
		b.once("k", id, 1)
		a.once("k", id, 1)
		eventually(t, "it says that one may count twice", func() bool {
			ills := b.node.Status().Ills
			return len(ills) == 2 && strings.Contains(ills[0], ": up to 1;")
		})
		b.node.Acknowledge(1 << 60)
		if st := b.node.Status(); len(st.Ills) != 1 || st.Acknowledged != st.Operations.Unchecked {
			t.Errorf("acknowledged: %+v", st)
		}
	}
}

// TestGapIsOneLine: ranges that cannot be taken wait, each by itself, and are one line of the log
// however many there are and however often the region asks; and so are ranges whose log does not
// reach back.
func TestGapIsOneLine(t *testing.T) {
	r, asked := ask(t, nil, func(args [][]byte) string {
		q, err := ParseRequest(args[1:])
		if err != nil { // for a state
			return "-ERR no state\r\n"
		}
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n:1\r\n:0\r\n", answerHead+answerParts*len(q.Ranges))
		for _, p := range q.Ranges {
			fmt.Fprintf(&b, ":%d\r\n$1\r\n9\r\n-GAP the state is needed\r\n", p.First)
		}
		return b.String()
	})
	eventually(t, "it is asked often, and says of all ranges why they wait", func() bool {
		s := r.of(0)
		return asked.Load() > 5 && s.Failing && len(s.Ranges) == 4 &&
			!slices.ContainsFunc(s.Ranges, func(p RangeStatus) bool {
				return !strings.Contains(p.Error, "no state")
			})
	})
	if n := r.logged("level=WARN"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// aRequest asks for two ranges.
func aRequest() *Request {
	return &Request{
		Group: 1<<64 - 1, By: 3, Incarnation: 7, Most: 1000, Block: 10 * time.Millisecond,
		Ranges: []Range{{Partition: 0, First: 0, Last: 8191, After: 9, Acked: 0},
			{Partition: 1, First: 8192, Last: slots - 1, After: 1<<64 - 1, Acked: 1<<64 - 1}},
	}
}

// argsOf are the arguments behind the name of what a request is written as.
func argsOf(t testing.TB, q interface{ write(w *resp.Writer) }) (args [][]byte) {
	var w resp.Writer
	q.write(&w)
	rd := resp.NewReader(bytes.NewReader(w.Bytes()), resp.DefaultLimits)
	_, err := rd.Fill()
	must(t, err)
	all, ok, err := rd.Next()
	if must(t, err); !ok || string(all[0]) != Command {
		t.Fatalf("%q", all)
	}
	for _, a := range all[1:] {
		args = append(args, bytes.Clone(a))
	}
	return args
}

// TestOneSpelling: a number has one spelling, and a malformed request changes nothing.
func TestOneSpelling(t *testing.T) {
	args := argsOf(t, aRequest())
	if _, err := ParseRequest(args); err != nil {
		t.Fatal(err)
	}
	try := func(i int, text string) {
		t.Helper()
		bad := append([][]byte(nil), args...)
		bad[i] = []byte(text)
		if q, err := ParseRequest(bad); err == nil {
			t.Errorf("argument %d is %q: %+v", i, text, q)
		}
	}
	for i := range args {
		if i == 3 || i == 5 {
			try(i, "X")
			continue
		}
		for _, text := range []string{"", "+1", "-1", "-0", "00", "01", " 1", "1 ", "1_0", "0x1", "1e1",
			"18446744073709551616", strings.Repeat("1", 21), "٣"} {
			try(i, text)
		}
	}
	try(1, "16")             // no region
	try(4, "0")              // no bytes
	try(4, "67108865")       // too many
	try(6, "60001")          // too long
	try(headArgs, "16384")   // no slot
	try(headArgs+2, "16384") // …
	try(headArgs+1, "8192")  // behind the last one, and asked for twice
	try(headArgs+5, "10")    // not taken yet
	try(headArgs+6+1, "0")   // asked for twice
	for n := range args {
		if _, err := ParseRequest(args[:n]); err == nil && n != headArgs+rangeArgs {
			t.Errorf("%d arguments are a request", n)
		}
	}
	if _, err := ParseRequest(nil); err == nil {
		t.Error("nothing is a request")
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(bytes.Join(argsOf(f, aRequest()), []byte{0}))
	for _, n := range []*next{{}, {block: maxBlock, every: maxEvery, acked: []uint64{0, 1<<64 - 1}}} {
		f.Add(bytes.Join(argsOf(f, n), []byte{0}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		args := bytes.Split(b, []byte{0})
		var q interface{ write(w *resp.Writer) }
		var err error
		words := []int{3, 5}
		if isWord(args, wordNext) {
			q, err = parseNext(args[1:])
			words = []int{0, 1, 3}
		} else {
			q, err = ParseRequest(args)
		}
		if err != nil {
			return
		}
		for i, a := range argsOf(t, q) {
			if !bytes.EqualFold(a, args[i]) || !slices.Contains(words, i) && !bytes.Equal(a, args[i]) {
				t.Fatalf("%q is written as %q", args[i], a)
			}
		}
	})
}

// read reads an answer to a request from bytes.
func read(q *Request, b []byte) ([]answer, error) {
	r := answerReader{r: bufio.NewReaderSize(bytes.NewReader(b), 64<<10)}
	_, all, err := r.read(q)
	return all, err
}

// TestAnswerMemory: an answer that says that it is long takes no memory before it is.
func TestAnswerMemory(t *testing.T) {
	q := aRequest()
	q.Most = maxMost
	for _, text := range []string{
		"*5\r\n:1\r\n:0\r\n:0\r\n$1\r\n9\r\n$1000000000\r\nabc", // not whole
		"*5\r\n:1\r\n:0\r\n:0\r\n$1\r\n9\r\n$9000000000\r\nabc", // more than there can be
		"*5\r\n:1\r\n:0\r\n:0\r\n$1000000000\r\n9",
		"*9000000000\r\n:1\r\n:0\r\n",
		"$7\r\n\x02\xff\xff\xff\x7f\x00a\r\n", // packed, it says
		"$2000000000\r\n\x02",
		"$16\r\n*2\r\n:1\r\n:0\r\n:0\r\n\r\n", // something behind it
		"$4\r\n$-1\r\n\r\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(q, []byte(text))
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; err == nil || taken > 4<<20 {
			t.Errorf("%.60q: %d bytes, %v", text, taken, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	q := aRequest()
	var w resp.Writer
	w.Array(answerHead + answerParts*2)
	w.Int(5)
	w.Int(0)
	for _, a := range []answer{{first: 0, newest: 9, data: []byte("x")},
		{first: 8192, newest: 1<<64 - 1, err: "GAP no"}} {
		a.write(&w)
	}
	f.Add(w.Bytes())
	for _, plain := range [][]byte{w.Bytes(), bytes.Repeat(w.Bytes(), 2), []byte("*2\r\n:1\r\n:0\r\n")} {
		var packed resp.Writer
		packed.Bulk(store.Pack(plain))
		f.Add(packed.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := read(q, b)
		if err != nil {
			return
		}
		size, seen := 0, make(map[uint16]bool)
		for _, a := range all {
			size += len(a.data) + len(a.err)
			if seen[a.first] || a.first != 0 && a.first != 8192 {
				t.Fatalf("slot %d", a.first)
			}
			seen[a.first] = true
		}
		if size > len(b) && (b[0] == '*' || size > 64*len(b)) {
			t.Fatalf("%d bytes of %d", size, len(b))
		}
	})
}
