package integration

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPipelines sends random pipelines of mixed commands on several connections
// and compares every reply, in order, with a model: reads see earlier writes of
// their pipeline, errors in the middle disturb nothing, and a restart or crash
// in between changes nothing.
func TestPipelines(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "everysec")
	models := make([]*model, 6)
	for i := range models {
		models[i] = newModel(fmt.Sprintf("m%d:", i), uint64(i))
	}
	for round := range 6 {
		var clients sync.WaitGroup
		for _, m := range models {
			c := s.dial()
			clients.Go(func() {
				for range 8 {
					m.pipeline(t, c, 150)
				}
			})
		}
		clients.Wait()
		if t.Failed() {
			return
		}
		if round%2 == 0 {
			s.crash()
		} else {
			s.restart()
		}
	}
}

// model is what a server with EXACT tables must answer about the counters with
// one prefix.
type model struct {
	prefix string
	rand   *rand.Rand
	values map[string]int64
	seen   map[string][2]int64 // by key and opid: delta and result
	ids    int
}

func newModel(prefix string, seed uint64) *model {
	return &model{prefix: prefix, rand: rand.New(rand.NewPCG(seed, 1)), values: map[string]int64{},
		seen: map[string][2]int64{}}
}

// pipeline sends n commands at once and checks their replies.
func (m *model) pipeline(t *testing.T, c *rawConn, n int) {
	var commands [][]string
	var replies []string
	var raw strings.Builder
	for range n {
		command, reply := m.next()
		commands = append(commands, command)
		replies = append(replies, reply)
		raw.WriteString(frame(command...))
	}
	c.SetDeadline(time.Now().Add(patience))
	go c.Write([]byte(raw.String()))
	for i, want := range replies {
		got, err := readReply(c.r)
		if err != nil {
			t.Errorf("reply %d: %v", i, err)
			return
		}
		if got != want {
			t.Errorf("%q, number %d of a pipeline:\n got %s\nwant %s", commands[i], i, got, want)
			return
		}
	}
}

// next draws a command and its reply.
func (m *model) next() (command []string, reply string) {
	key := m.prefix + strconv.Itoa(m.rand.IntN(5))
	value, exists := m.values[key]
	switch m.rand.IntN(14) {
	case 0, 1, 2, 3:
		return m.increment(key)
	case 4:
		return m.retry(key)
	case 5:
		return []string{"GET", key}, orNull(strconv.Quote(strconv.FormatInt(value, 10)), exists)
	case 6:
		return []string{"CGET", key}, orNull(fmt.Sprintf(":%d", value), exists)
	case 7:
		m.values[key]++
		return []string{"INCR", key}, fmt.Sprintf(":%d", m.values[key])
	case 8:
		m.values[key] = m.rand.Int64N(100)
		return []string{"SET", key, strconv.FormatInt(m.values[key], 10)}, "+OK"
	case 9:
		delete(m.values, key)
		return []string{"DEL", key, key}, map[bool]string{true: ":1", false: ":0"}[exists]
	case 10:
		return []string{"CINCRBY", key, "id", "x"}, "-ERR value is not an integer or out of range"
	case 11:
		return []string{"PING", key}, strconv.Quote(key)
	case 12:
		return m.multi(key)
	default:
		return []string{"GET"}, "-ERR wrong number of arguments for 'get' command"
	}
}

// orNull is the reply, or a null if there is nothing to reply.
func orNull(reply string, exists bool) string {
	if exists {
		return reply
	}
	return "$-1"
}

// newID returns an opid that was not used before.
func (m *model) newID() string {
	m.ids++
	return "id-" + strconv.Itoa(m.ids)
}

// increment is a new operation.
func (m *model) increment(key string) ([]string, string) {
	id, delta := m.newID(), m.rand.Int64N(2001)-1000
	m.values[key] += delta
	m.seen[key+" "+id] = [2]int64{delta, m.values[key]}
	return []string{"CINCRBY", key, id, strconv.FormatInt(delta, 10), "WITHSTATUS"},
		fmt.Sprintf("[:%d :1]", m.values[key])
}

// retry repeats any operation on the key, or is refused for another delta.
func (m *model) retry(key string) ([]string, string) {
	if m.ids == 0 {
		return m.increment(key)
	}
	id := "id-" + strconv.Itoa(m.rand.IntN(m.ids)+1)
	was, ok := m.seen[key+" "+id]
	if !ok {
		return []string{"CSEEN", key, id}, "$-1"
	}
	if m.rand.IntN(4) == 0 {
		return []string{"CDECRBY", key, id, strconv.FormatInt(was[0], 10)},
			mismatchUnless(was[0] == 0, was[1])
	}
	return []string{"CINCRBY", key, id, strconv.FormatInt(was[0], 10)}, fmt.Sprintf(":%d", was[1])
}

// mismatchUnless is the reply to a retry with another delta, unless it is the
// same after all.
func mismatchUnless(same bool, result int64) string {
	if same {
		return fmt.Sprintf(":%d", result)
	}
	return "-MISMATCH opid was used with another delta"
}

// multi increments two counters at once.
func (m *model) multi(key string) ([]string, string) {
	id, other := m.newID(), m.prefix+"other"
	m.values[key]++
	m.values[other] += 2
	m.seen[key+" "+id], m.seen[other+" "+id] = [2]int64{1, m.values[key]}, [2]int64{2, m.values[other]}
	return []string{"CMINCRBY", id, "2", key, "1", other, "2"},
		fmt.Sprintf("[:%d :%d]", m.values[key], m.values[other])
}

// TestLongPipeline sends a pipeline far longer than one batch before it reads
// the first reply; all are answered, in order.
func TestLongPipeline(t *testing.T) {
	t.Parallel()
	const n = 20000
	s := startServer(t, "--appendfsync", "everysec")
	c := s.dial()
	c.SetDeadline(time.Now().Add(patience))
	go func() {
		w := bufio.NewWriterSize(c, 1<<16)
		for i := range n {
			w.WriteString(frame("CINCRBY", "counter", strconv.Itoa(i), "1"))
		}
		w.Flush()
	}()
	for i := range n {
		if got, want := c.reply(), fmt.Sprintf(":%d", i+1); got != want {
			t.Fatalf("reply %d is %s", i, got)
		}
	}
}
