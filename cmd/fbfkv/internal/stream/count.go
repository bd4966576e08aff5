package stream

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"
	"github.com/valyala/fastjson"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/store"
)

// count is `stream count`: each record is a CINCRBY, whose opid is the record's own, or the source's name
// with the number of the line. So a record that is sent again, by this run or by a later one, counts once
// as long as the server remembers it. The server must refuse a record that it may have forgotten, so each
// that may come again has a time (AT): the event's, that of a stream's entry, or that at which a line was
// first sent, which is noted beside the position before a batch is sent.

// counting is what the flags of `stream count` say.
type counting struct {
	key, by, id, time string
	idFirst, combined bool
	expire            string
	deadLetter        string

	openAt int64 // When lines up to openTo were first sent, Unix milliseconds.
	openTo int64
	sentAt int64     // when those behind them are
	server time.Time // The server's time at the beginning.
	began  time.Time

	parts    []part // of the key
	seconds  int64  // until a counter expires
	dead     io.Writer
	sync     func() error // of the file of dead letters
	unsynced bool

	refused  map[string]int64
	twice    int64 // records that had been counted before
	newest   time.Time
	examples int
	deadErr  error
}

// part is a piece of the key: text, or the name of a field.
type part struct {
	text  string
	field bool
}

// add declares the flags.
func (c *counting) add(r *run, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.key, "counter", "", "the counter, such as views:{page}:{day}: names in braces are fields")
	f.StringVar(&c.by, "by", "", "the field with the amount (default: 1 each)")
	f.StringVar(&c.id, "id", "", "the field with the operation id")
	f.BoolVar(&c.idFirst, "id-first", false, "a line is the operation id, a tab, and the record")
	f.StringVar(&r.source, "source", "", "the name of the input, under which the position is kept")
	f.StringVar(&c.time, "time", "", "the field with the event's time: Unix seconds or milliseconds, "+
		"RFC 3339, or as in access logs")
	f.StringVar(&c.expire, "expire", "", "how long a counter lives after the last count: 90d, 12h")
	f.StringVar(&c.deadLetter, "dead-letter", "", "the file to which lines that cannot be counted are appended")
	f.BoolVar(&r.csv, "csv", false, "records are CSV; fields are {1}, {2}, …")
	f.BoolVar(&r.header, "header", false, "with --csv: the first line names the fields")
	f.BoolVar(&c.combined, "combined", false, "lines are of an access log in the combined format: "+
		"{remote}, {user}, {method}, {path}, {status}, {bytes}, {referer}, {agent}")
}

// count prepares `stream count`.
func (r *run) count() (err error) {
	c := &r.counter
	if err := c.check(r); err != nil {
		return err
	}
	r.stage, r.whole, r.full = "counted", true, countLines
	if c.deadLetter != "" {
		f, err := os.OpenFile(c.deadLetter, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		c.dead, c.sync = f, func() error {
			if err := f.Sync(); !errors.Is(err, syscall.EINVAL) { // which says that it is a pipe
				return err
			}
			return nil
		}
	}
	add := r.countBatch
	r.handle = add
	if r.source == "" {
		return nil
	}
	counter := strings.NewReplacer("{", "(", "}", ")").Replace(c.key)
	progress := "progress:{" + r.source + "}:" + counter
	if err := r.resume(progress, ""); err != nil {
		return err
	}
	at, to := progress+":sent", progress+":sentto"
	if err := r.sentBefore(at, to); err != nil {
		return err
	}
	r.handle = func(ctx context.Context, b *batch) error {
		if c.sentAt = c.now(); b.first >= c.openTo {
			c.openAt = c.sentAt
		}
		end := max(c.openTo, b.first+b.n)
		if err := r.try(ctx, func() error {
			return r.client.Do(ctx, "MSET", at, c.openAt, to, end).Err()
		}); err != nil {
			return r.positionError(err)
		}
		if err := add(ctx, b); err != nil {
			return err
		}
		c.openTo = end
		return r.commit(ctx, progress, b)
	}
	return nil
}

// now returns the server's time, Unix milliseconds, or one that is a little earlier.
func (c *counting) now() int64 { return c.server.Add(time.Since(c.began)).UnixMilli() }

// sentBefore asks which lines behind the position an earlier run may have sent, and since when.
func (r *run) sentBefore(at, to string) error {
	c, ctx := &r.counter, context.Background()
	return r.try(ctx, func() error {
		c.began = time.Now()
		var replies []connect.Reply
		err := r.client.With(ctx, at, func(conn *connect.Conn) (err error) {
			if replies, err = conn.Pipeline([][]any{{"TIME"}, {"GET", at}, {"GET", to}}); err == nil {
				err = connect.FirstError(replies)
			}
			return err
		})
		if err != nil {
			return err
		}
		now, err := replies[0].Texts()
		if err != nil || len(now) != 2 {
			return cmp.Or(err, error(failure("TIME answers no time")))
		}
		seconds, err := strconv.ParseInt(now[0], 10, 64)
		micros, err2 := strconv.ParseInt(now[1], 10, 64)
		// Since began more time has passed than since the answer: so much is taken off.
		c.server = time.Unix(seconds, micros*1000).Add(-time.Since(c.began))
		for i, n := range []*int64{&c.openAt, &c.openTo} {
			if err = cmp.Or(err, err2); err == nil {
				*n, err = lines(replies[i+1])
			}
		}
		return err
	})
}

// check refuses flags that do not go together, and reads the others.
func (c *counting) check(r *run) (err error) {
	ids := 0
	for _, given := range []bool{c.id != "", c.idFirst, r.source != "", r.redis != ""} {
		if given {
			ids++
		}
	}
	switch {
	case c.key == "":
		return errors.New("name the counters: --counter 'views:{page}'")
	case ids > 1 && !(ids == 2 && r.redis != "" && c.id != ""):
		return errors.New("--id, --id-first, --source and --redis each say what the operation id is: " +
			"give one of them")
	case c.combined && r.csv:
		return errors.New("--combined and --csv are two formats: give one of them")
	case r.header && !r.csv:
		return errors.New("--header goes with --csv")
	case r.header && r.redis != "":
		return errors.New("--header goes with standard input")
	}
	if c.expire != "" {
		d, err := lifetime(c.expire)
		if err != nil {
			return err
		}
		c.seconds = int64(d / time.Second)
	}
	c.refused = make(map[string]int64)
	c.parts, err = template(c.key)
	return err
}

// lifetime reads a time such as 90d or 12h.
func lifetime(text string) (d time.Duration, err error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if d = time.Duration(n) * 24 * time.Hour; err == nil && d > 0 {
			return d, nil
		}
	} else if d, err = time.ParseDuration(text); err == nil && d >= time.Second {
		return d, nil
	}
	return 0, fmt.Errorf("--expire %s is no time of a second or more, such as 90d or 12h", text)
}

// template reads a key with fields in braces. Two braces, as in {{tag}}, are one that stays.
func template(key string) (parts []part, err error) {
	for rest := key; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		switch {
		case at < 0:
			return append(parts, part{text: rest}), nil
		case at+1 < len(rest) && rest[at+1] == rest[at]:
			parts = append(parts, part{text: rest[:at+1]})
			rest = rest[at+2:]
			continue
		case rest[at] == '}':
			return nil, fmt.Errorf("--counter %s: a brace is closed that was not opened; write }} for one "+
				"that stays", key)
		}
		end := strings.IndexByte(rest[at:], '}')
		if end < 2 {
			return nil, fmt.Errorf("--counter %s: no field's name and brace follow behind {", key)
		}
		parts = append(parts, part{text: rest[:at]}, part{text: rest[at+1 : at+end], field: true})
		rest = rest[at+end+1:]
	}
	return parts, nil
}

const (
	// countLines is when a batch is full, and countAtOnce how many connections send it.
	countLines  = 4096
	countAtOnce = 16
)

// share is a piece of a batch, which has a connection to itself.
type share struct {
	from, to int // items
	commands [][]any
	of       []int // the item of each command
	refused  map[int]error
	newest   time.Time
	replies  []connect.Reply // the last ones
	again    []bool          // whether a command was sent again
	err      error
}

// countBatch counts the records of a batch, but for those that cannot be counted.
func (r *run) countBatch(ctx context.Context, b *batch) error {
	c := &r.counter
	var shares []*share
	size := max(len(b.items)/countAtOnce, 64)
	for from := 0; from < len(b.items); from += size {
		to := min(from+size, len(b.items))
		shares = append(shares, &share{from: from, to: to, refused: make(map[int]error)})
	}
	var wg sync.WaitGroup
	for _, s := range shares {
		wg.Go(func() { s.count(ctx, r, b) })
	}
	wg.Wait()
	for _, s := range shares {
		if err := cmp.Or(s.err, s.judge(c)); err != nil {
			return err
		}
	}
	for _, s := range shares {
		for _, i := range slices.Sorted(maps.Keys(s.refused)) {
			c.reject(r, b, i, s.refused[i])
		}
		if s.newest.After(c.newest) {
			c.newest = s.newest
		}
	}
	if c.deadErr == nil && c.unsynced { // before the position passes them
		c.unsynced, c.deadErr = false, c.sync()
	}
	return c.deadErr
}

// count sends the share until the server has answered all of it.
func (s *share) count(ctx context.Context, r *run, b *batch) {
	var parser fastjson.Parser
	for i := s.from; i < s.to; i++ {
		command, at, err := r.counter.command(r, &parser, b, i)
		if err != nil {
			s.refused[i] = err
			continue
		}
		s.commands, s.of = append(s.commands, command), append(s.of, i)
		if at.After(s.newest) {
			s.newest = at
		}
	}
	if len(s.commands) == 0 {
		return
	}
	s.replies, s.again = make([]connect.Reply, len(s.commands)), make([]bool, len(s.commands))
	rest := make([]int, len(s.commands)) // the commands without a final reply
	for i := range rest {
		rest[i] = i
	}
	tries := 0
	s.err = r.try(ctx, func() error {
		commands := make([][]any, len(rest))
		for n, i := range rest {
			commands[n], s.again[i] = s.commands[i], tries > 0
		}
		tries++
		replies, err := r.client.Pipeline(ctx, commands)
		if err != nil {
			return err
		}
		var left []int
		for n, i := range rest {
			if s.replies[i] = replies[n]; connect.IsTransient(replies[n].Err()) {
				left, err = append(left, i), replies[n].Err()
			}
		}
		rest = left
		return err
	})
}

// recordErrors are the codes of errors that concern a record. All others end the run.
var recordErrors = []string{"STALE", "MISMATCH", "BOUND", "WRONGTYPE", "ERR"}

// judge looks at the replies: some say that a record cannot be counted, others that the run cannot go on.
func (s *share) judge(c *counting) error {
	for n, reply := range s.replies {
		status, err := reply.List() // the value, and whether it was applied
		if err == nil && len(status) == 2 {
			var applied int64
			if applied, err = status[1].Int(); applied == 0 && !s.again[n] {
				c.twice++
			}
		}
		if err == nil {
			continue
		}
		code, text, _ := strings.Cut(err.Error(), " ")
		if !connect.IsReply(err) || !slices.Contains(recordErrors, code) ||
			strings.HasPrefix(text, "unknown command") || c.sentAt > 0 && strings.Contains(text, "in the future") {
			return err // also if AT, which this run has chosen, is ahead of the server's clock
		}
		s.refused[s.of[n]] = err
	}
	return nil
}

// reject notes a record that cannot be counted.
func (c *counting) reject(r *run, b *batch, i int, why error) {
	code, _, _ := strings.Cut(why.Error(), " ")
	if !connect.IsReply(why) {
		code = "bad records"
	}
	c.refused[code]++
	if r.skipped++; c.examples < reported {
		c.examples++
		r.tells(fmt.Sprintf("line %d: %v", b.numbers[i], why))
	}
	if c.dead != nil {
		line := b.lines[i] + "\n"
		if b.ids != nil {
			line = b.ids[i] + "\t" + line // for --id-first
		}
		_, err := io.WriteString(c.dead, line)
		c.unsynced, c.deadErr = true, cmp.Or(c.deadErr, err)
	}
}

// command is the CINCRBY of a record.
func (c *counting) command(r *run, parser *fastjson.Parser, b *batch, i int) (
	command []any, at time.Time, err error) {
	text, opid := b.items[i], ""
	if c.idFirst {
		var ok bool
		if opid, text, ok = strings.Cut(text, "\t"); !ok || opid == "" {
			return nil, at, errors.New("no operation id and tab in front")
		}
	}
	rec, err := c.fieldsOf(r, parser, text)
	if err != nil {
		return nil, at, err
	}
	name := c.time
	if name == "" && c.combined {
		name = "time"
	}
	if name != "" {
		value, err := rec.get(name)
		if err != nil {
			return nil, at, err
		}
		if at, err = eventTime(value); err != nil {
			return nil, at, err
		}
	}
	rec.at = at
	var key strings.Builder
	for _, p := range c.parts {
		value := p.text
		if p.field {
			if value, err = rec.get(p.text); err != nil {
				return nil, at, err
			}
		}
		key.WriteString(value)
	}
	by := "1"
	if c.by != "" {
		if by, err = rec.get(c.by); err != nil {
			return nil, at, err
		}
	}
	switch {
	case c.id != "":
		opid, err = rec.get(c.id)
	case c.idFirst:
	case b.ids != nil:
		opid = b.ids[i]
	case r.source != "":
		// Two runs with the same lines may meet in one counter.
		opid = fmt.Sprintf("%s:%x:%x:%d", r.source, r.line1, xxhash.Sum64String(c.key), b.numbers[i])
	default:
		opid = fmt.Sprintf("%s:%d", r.runID, b.numbers[i])
	}
	if err != nil {
		return nil, at, err
	}
	if key.Len() > store.MaxKey || len(opid) > store.MaxOpID {
		return nil, at, fmt.Errorf("a key has at most %d bytes, and an operation id %d", store.MaxKey, store.MaxOpID)
	}
	command = []any{"CINCRBY", key.String(), opid, by, "WITHSTATUS"}
	switch {
	case r.source != "" && b.numbers[i] <= c.openTo:
		command = append(command, "AT", c.openAt)
	case r.source != "":
		command = append(command, "AT", c.sentAt)
	case c.time != "" && (c.id != "" || c.idFirst || b.ids != nil):
		command = append(command, "AT", at.UnixMilli())
	case b.again:
		ms, _, _ := strings.Cut(b.ids[i][len(r.name)+1:], "-")
		command = append(command, "AT", ms)
	}
	if c.seconds > 0 {
		command = append(command, "EX", c.seconds)
	}
	return command, at, nil
}

// fields has the fields of a record.
type fields struct {
	line  string
	words []string // of columns, or of what blanks separate
	named func(name string) (string, bool)
	at    time.Time // the event's; zero: unknown
}

// combinedLine matches a line of an access log in the combined format, or the common one, its beginning.
var combinedLine = regexp.MustCompile(`^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) ([^" ]+)[^"]*" (\d+) (\S+)` +
	`(?: "([^"]*)" "([^"]*)")?`)

// combinedNames are the fields of such a line.
var combinedNames = []string{"remote", "user", "time", "method", "path", "status", "bytes", "referer", "agent"}

// fieldsOf reads a record.
func (c *counting) fieldsOf(r *run, parser *fastjson.Parser, line string) (f fields, err error) {
	f.line = line
	switch {
	case c.combined:
		m := combinedLine.FindStringSubmatch(line)
		if m == nil {
			return f, errors.New("the line is not in the combined format")
		}
		f.named = column(combinedNames, m[1:])
	case r.csv:
		if f.words, err = csv.NewReader(strings.NewReader(line)).Read(); err != nil {
			return f, fmt.Errorf("the record is not CSV: %w", err)
		}
		f.named = column(r.columns, f.words)
	default:
		var object *fastjson.Value
		f.named = func(name string) (string, bool) {
			if object == nil {
				if object, err = parser.Parse(line); err != nil {
					return "", false
				}
			}
			return textAt(object, name)
		}
	}
	return f, nil
}

// column finds a value by the name of its column.
func column(names, values []string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		i := slices.Index(names, name)
		if i < 0 || i >= len(values) {
			return "", false
		}
		return values[i], true
	}
}

// layouts are pieces of the event's time, in UTC, that a key may name.
var layouts = map[string]string{"month": "2006-01", "day": "2006-01-02", "hour": "2006-01-02T15",
	"minute": "2006-01-02T15:04"}

// get returns a field of a record: the whole line, a column, a name, or a piece of the event's time.
func (f *fields) get(name string) (string, error) {
	if name == "line" {
		return f.line, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 {
		if f.words == nil {
			f.words = wordsOf(f.line)
		}
		if n <= len(f.words) {
			return f.words[n-1], nil
		}
	} else if value, ok := f.named(name); ok {
		return value, nil
	} else if layout, ok := layouts[name]; ok && !f.at.IsZero() {
		return f.at.UTC().Format(layout), nil
	}
	return "", fmt.Errorf("no field {%s}", name)
}

// eventTime reads a time: Unix seconds, with or without decimals, or milliseconds, RFC 3339, or as in an
// access log.
func eventTime(text string) (time.Time, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 && n < 1e14 {
		if n < 1e11 { // the year 5138 in seconds, 1973 in milliseconds
			n *= 1000
		}
		return time.UnixMilli(int64(n)), nil
	}
	for _, layout := range []string{time.RFC3339, "02/Jan/2006:15:04:05 -0700", time.DateTime} {
		if t, err := time.Parse(layout, text); err == nil && t.Unix() > 0 {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is no time", text)
}

// summary says how many records were not counted now, and why.
func (c *counting) summary() (text string) {
	if c.twice > 0 {
		text = fmt.Sprintf("; counted before: %d", c.twice)
	}
	for _, code := range slices.Sorted(maps.Keys(c.refused)) {
		text += fmt.Sprintf("; %s: %d", code, c.refused[code])
	}
	return text
}

// topShown is how many counters are shown that lead.
const topShown = 10

// leaders returns a line for each of the counters that lead, if their table has TOP.
func (r *run) leaders(ctx context.Context) (lines string) {
	text := ""
	for _, p := range r.counter.parts {
		if p.field {
			break
		}
		text += p.text
	}
	tables, err := r.client.Any(ctx, "CTABLE", "LIST").Texts()
	if err != nil && !connect.IsReply(err) {
		return fmt.Sprintf("the counters that lead are not known: %v\n", err)
	}
	name, prefix := "", ""
	for i := 1; i < len(tables); i += 2 {
		if p := tables[i]; strings.HasPrefix(text, p) && (name == "" || len(p) > len(prefix)) {
			name, prefix = tables[i-1], p
		}
	}
	info, _ := r.client.Any(ctx, "CTABLE", "INFO", name).List()
	for i := 1; i < len(info); i += 2 {
		if is, _ := info[i-1].Text(); is != "top" {
			continue
		}
		top, _ := info[i].Int()
		shards, _ := r.client.Each(ctx, "CTOP", prefix, min(top, topShown))
		lines += leading(shards)
	}
	return lines
}

// leading returns the lines of the counters that lead, of what the shards answer.
func leading(shards []connect.Reply) (lines string) {
	type counter struct {
		steps      int64
		value, key string
	}
	var all []counter
	for _, shard := range shards {
		list, _ := shard.Texts()
		for i := 1; i < len(list); i += 2 {
			steps, _ := strconv.ParseInt(strings.Replace(list[i], ".", "", 1), 10, 64) // of one SCALE
			all = append(all, counter{steps, list[i], list[i-1]})
		}
	}
	slices.SortStableFunc(all, func(a, b counter) int { return cmp.Compare(b.steps, a.steps) })
	for _, c := range all[:min(len(all), topShown)] {
		lines += fmt.Sprintf("%12s  %s\n", c.value, c.key)
	}
	return lines
}

// behind says how old the newest event is.
func (c *counting) behind() string {
	if c.newest.IsZero() {
		return ""
	}
	return fmt.Sprintf(", %v behind", time.Since(c.newest).Round(time.Second))
}
