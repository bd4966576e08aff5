package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// echoAsk is what the tests' verb takes.
type echoAsk struct {
	Text string `json:"text"`
	Fail string `json:"fail,omitempty"`
}

var errTest = &Refusal{"test", "as the test wants it"}

// connect returns a connection to a server that answers echo.
func connect(t *testing.T, admits func() error) net.Conn {
	here, there := net.Pipe()
	s := &Server{}
	s.Handle("echo", Answer(10, func(c *Call, q echoAsk) (any, []byte, error) {
		switch q.Fail {
		case "code":
			return nil, nil, fmt.Errorf("wrapped: %w", errTest)
		case "text":
			return nil, nil, errors.New("no code")
		}
		return echoAsk{Text: q.Text + " of " + c.From}, append(c.Buffer(0), c.Bytes...), nil
	}))
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(there, "me", admits) })
	t.Cleanup(func() {
		here.Close()
		serving.Wait()
	})
	return here
}

func admitAll() error { return nil }

func TestAsk(t *testing.T) {
	c := NewCaller(t.Context(), connect(t, admitAll))
	for n := range 3 {
		var a echoAsk
		b, err := c.Do(Ask{Verb: "echo", Ask: echoAsk{Text: fmt.Sprint(n)}, Bytes: []byte("bytes"), Answer: &a,
			Limit: 5, Within: time.Minute})
		if err != nil || a.Text != fmt.Sprint(n, " of me") || string(b) != "bytes" {
			t.Fatal(a, string(b), err)
		}
		if _, err := c.Do(Ask{Verb: "echo", Ask: echoAsk{Fail: "code"}, Within: time.Minute}); !errors.Is(err,
			errTest) || !strings.Contains(err.Error(), "wrapped: as the test wants it") {
			t.Error(err)
		}
		for verb, want := range map[string]string{"echo": "no code", "other": "at present"} {
			_, err := c.Do(Ask{Verb: verb, Ask: echoAsk{Fail: "text"}, Within: time.Minute})
			if refused := (*Refusal)(nil); !errors.As(err, &refused) || errors.Is(err, errTest) ||
				!strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		}
	}
}

// TestLimits: neither end takes more than it has said, or what it cannot read.
func TestLimits(t *testing.T) {
	for name, a := range map[string]Ask{
		"too many bytes":  {Verb: "echo", Ask: echoAsk{}, Bytes: make([]byte, 11), Limit: 11},
		"a long line":     {Verb: "echo", Ask: echoAsk{Text: strings.Repeat("x", maxLine)}},
		"a field":         {Verb: "echo", Ask: map[string]int{"more": 1}},
		"a long answer":   {Verb: "echo", Ask: echoAsk{}, Bytes: make([]byte, 10), Limit: 9},
		"another answer":  {Verb: "echo", Ask: echoAsk{}, Answer: new(int)},
		"no answer comes": {Verb: "none", Ask: echoAsk{}, Bytes: []byte("bytes"), Answer: new(int)},
	} {
		c := NewCaller(t.Context(), connect(t, admitAll))
		if a.Within = time.Minute; a.Limit == 0 {
			a.Limit = 100
		}
		if b, err := c.Do(a); err == nil {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
}

// TestAdmits: a node that is not admitted any more is not answered.
func TestAdmits(t *testing.T) {
	admitted := 2
	c := NewCaller(t.Context(), connect(t, func() error {
		if admitted--; admitted < 0 {
			return errTest
		}
		return nil
	}))
	for n := range 3 {
		if _, err := c.Do(Ask{Verb: "echo", Ask: echoAsk{}, Answer: new(echoAsk),
			Within: time.Minute}); (err == nil) != (n < 2) {
			t.Errorf("question %d: %v", n, err)
		}
	}
}

// TestQuietEnds: a connection on which nothing comes, or only a part of a question, ends.
func TestQuietEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for begun, want := range map[string]time.Duration{"": idleTime, "{": restTime} {
			c, began := connect(t, admitAll), time.Now()
			if _, err := io.WriteString(c, begun); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("it is answered")
			}
			if took := time.Since(began); took != want {
				t.Errorf("%q: it ends after %v", begun, took)
			}
		}
	})
}

// TestPace: all who are given files together get so many bytes a second.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := Pace{Rate: 1000}, time.Now()
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for range 5 {
					p.Wait(500)
				}
			})
		}
		readers.Wait()
		if took := time.Since(began); took != 9500*time.Millisecond { // the last 500 are sent then
			t.Errorf("10000 bytes took %v", took)
		}
	})
}

// FuzzWire: whatever comes over a connection, from either end, ends in an error or in an answer
// within the limits.
func FuzzWire(f *testing.F) {
	mem := vfs.NewMem()
	if w, err := mem.Create("META", vfs.WriteCategoryUnspecified); err != nil {
		f.Fatal(err)
	} else if _, err := w.Write([]byte("meta")); err != nil {
		f.Fatal(err)
	}
	files := NewFileServer(mem, 1<<40)
	sum, err := files.Sum("", "META", func(int) {})
	if err != nil {
		f.Fatal(err)
	}
	offer := Offer{ID: strings.Repeat("01", 16), Files: []File{sum}}
	files.Offer(offer, "", func(int) {})
	var s Server
	s.Handle(VerbRead, files.Verb())
	f.Add([]byte(`{"verb":"read","ask":{"offer":"` + offer.ID + `","file":0,"at":1,"bytes":3}}` + "\n"))
	f.Add([]byte(`{"answer":{"text":"x"},"bytes":3}` + "\nabc"))
	f.Add([]byte(`{"code":"gone","error":"x","bytes":1000000000000}` + "\n"))
	f.Add([]byte(`{"bytes":-1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, serves := range []bool{true, false} {
			here, there := net.Pipe()
			var done sync.WaitGroup
			done.Go(func() {
				if serves {
					s.Serve(there, "me", admitAll)
					return
				}
				c := NewCaller(t.Context(), there)
				defer c.Close()
				if got, err := c.Do(Ask{Verb: "v", Limit: 100, Answer: new(echoAsk),
					Within: time.Minute}); err == nil && len(got) > 100 {
					t.Errorf("an answer of %d bytes", len(got))
				}
			})
			done.Go(func() { _, _ = io.Copy(io.Discard, here) })
			_, _ = here.Write(b)
			here.Close()
			done.Wait()
		}
	})
}
