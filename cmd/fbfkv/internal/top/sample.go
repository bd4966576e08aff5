package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/info"
)

// sections are the sections of INFO that are shown.
const sections = "server clients memory persistence stats replication cluster keyspace fbf"

// sample is what the server said at a time.
type sample struct {
	at      time.Time
	fields  info.Info
	tables  []table // by name
	slow    []slowBatch
	slowErr error // why there are no slow ones
}

// slowBatch is an entry of the slow log.
type slowBatch struct {
	at     time.Time
	took   time.Duration
	args   []string
	client string // HOST:PORT
}

// table is what INFO says of a table.
type table struct {
	name string
	info.Info
}

// take asks the server.
func take(ctx context.Context, c *connect.Client) (*sample, error) {
	args := []any{"INFO"}
	for _, s := range strings.Fields(sections) {
		args = append(args, s)
	}
	text, err := c.Do(ctx, args...).Text()
	if err != nil {
		return nil, err
	}
	s := parse(text, time.Now())
	slow, err := c.Do(ctx, "SLOWLOG", "GET", maxSlow).List()
	for i := 0; i < len(slow) && err == nil; i++ {
		var b slowBatch
		b, err = parseSlow(slow[i])
		s.slow = append(s.slow, b)
	}
	if s.slowErr = err; err != nil && !connect.IsReply(err) {
		return nil, err // the connection failed
	}
	return s, nil
}

// parseSlow reads an element of SLOWLOG GET's answer: a number, when, how many microseconds, the
// arguments, the client's address, its name.
func parseSlow(r connect.Reply) (b slowBatch, err error) {
	parts, err := r.List()
	if err != nil || len(parts) < 5 {
		return b, cmp.Or(err, errors.New("SLOWLOG GET was not answered as expected"))
	}
	var errs [4]error
	var at, usec int64
	at, errs[0] = parts[1].Int()
	usec, errs[1] = parts[2].Int()
	b.args, errs[2] = parts[3].Texts()
	b.client, errs[3] = parts[4].Text()
	b.at, b.took = time.Unix(at, 0), time.Duration(usec)*time.Microsecond
	return b, errors.Join(errs[:]...)
}

// parse reads what INFO answered.
func parse(text string, at time.Time) *sample {
	s := &sample{at: at, fields: info.Parse(text)}
	for name := range s.fields {
		if short, ok := strings.CutPrefix(name, "table_"); ok {
			s.tables = append(s.tables, table{short, s.fields.Pairs(name)})
		}
	}
	slices.SortFunc(s.tables, func(a, b table) int { return strings.Compare(a.name, b.name) })
	return s
}

// follows reports whether two samples are of the same process, one after the other, so
// that rates can be told.
func (s *sample) follows(before *sample) bool {
	return before != nil && before.fields["run_id"] == s.fields["run_id"] && s.at.After(before.at)
}

// rate is how much a figure grew in a second; NaN if that is not known.
func (s *sample) rate(before *sample, name string) float64 {
	if !s.follows(before) {
		return math.NaN()
	}
	return perSecond(s.fields.Number(name)-before.fields.Number(name), s.at.Sub(before.at))
}

// tableRate is the same of a table.
func (s *sample) tableRate(before *sample, t table, name string) float64 {
	if !s.follows(before) {
		return math.NaN()
	}
	for _, was := range before.tables {
		if was.name == t.name {
			return perSecond(t.Number(name)-was.Number(name), s.at.Sub(before.at))
		}
	}
	return math.NaN()
}

// perSecond divides; a figure that went back was reset.
func perSecond(grown float64, in time.Duration) float64 {
	if grown < 0 {
		return math.NaN()
	}
	return grown / in.Seconds()
}

// waited is within how many microseconds a share of the commands between two samples was
// answered; NaN if there were none. Within a bucket all count as evenly spread.
func (s *sample) waited(before *sample, share float64) float64 {
	if !s.follows(before) {
		return math.NaN()
	}
	now, was := s.fields.Pairs("waits_usec"), before.fields.Pairs("waits_usec")
	type bucket struct{ end, n float64 }
	var buckets []bucket
	for text := range now {
		end, err := strconv.ParseFloat(text, 64) // "inf" too
		if err == nil {
			buckets = append(buckets, bucket{end, now.Number(text) - was.Number(text)})
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.end, b.end) })
	if len(buckets) == 0 || buckets[len(buckets)-1].n <= 0 {
		return math.NaN()
	}
	wanted := share * buckets[len(buckets)-1].n
	start, below := 0.0, 0.0
	for _, b := range buckets {
		if b.n >= wanted {
			if math.IsInf(b.end, 1) {
				break
			}
			return start + (b.end-start)*(wanted-below)/max(b.n-below, 1)
		}
		start, below = b.end, b.n
	}
	return start
}

// Numbers as people read them.

func count(n float64) string {
	if math.IsNaN(n) {
		return "-"
	}
	if n < 10 {
		return strconv.FormatFloat(math.Round(n*10)/10, 'g', -1, 64)
	}
	return scaled(math.Round(n), "", " k", " M", " G", " T")
}

func bytes(n float64) string { return scaled(n, " B", " kB", " MB", " GB", " TB") }

// scaled renders a number with three digits or so and a unit, each 1000 of the one before.
func scaled(n float64, units ...string) string {
	i := 0
	for ; n >= 999.5 && i < len(units)-1; i++ {
		n /= 1000
	}
	digits := 2
	switch {
	case i == 0 || n >= 100:
		digits = 0
	case n >= 10:
		digits = 1
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + units[i]
}

func latency(usec float64) string {
	switch {
	case math.IsNaN(usec):
		return "-"
	case usec < 1e3:
		return fmt.Sprintf("%.0f us", usec)
	case usec < 1e6:
		return fmt.Sprintf("%.3g ms", usec/1e3)
	}
	return fmt.Sprintf("%.3g s", usec/1e6)
}

func duration(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d >= 2*u.size || d >= u.size && d%u.size == 0 {
			return fmt.Sprintf("%d %s", d/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
