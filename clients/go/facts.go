package fbfkv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// refreshEvery is how often the server is asked again for its time and windows.
	refreshEvery = time.Minute
	// assumedWindow is the WINDOW if the server does not tell (CTABLE is not permitted to
	// the user): the default. Should it be less, the time that each operation carries
	// still has late retries refused.
	assumedWindow = 2 * time.Minute
)

// facts is what the server told us of itself.
type facts struct {
	mu         sync.Mutex
	known      bool
	refreshing bool
	asked      time.Time // when we had its time, by the monotonic clock of this machine
	server     time.Time // that time. It was a little later there, so we are never ahead
	tables     []table   // the longest prefix first
}

// table is a table of the server. Its window is 0 until it is needed.
type table struct {
	name, prefix string
	window       time.Duration
}

// forget has the server asked again.
func (f *facts) forget() {
	f.mu.Lock()
	f.known = false
	f.mu.Unlock()
}

// get returns the server's time and the window of a key's table, if they are known, and
// whether the caller is to ask for them again in the background.
func (f *facts) get(key string) (now time.Time, window time.Duration, refresh bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return now, 0, false
	}
	age := time.Since(f.asked)
	refresh = age > refreshEvery && !f.refreshing
	f.refreshing = f.refreshing || refresh
	if t := find(f.tables, key); t != nil {
		window = t.window
	}
	return f.server.Add(age), window, refresh
}

// find returns the table of a key, or nil.
func find(tables []table, key string) *table {
	i := slices.IndexFunc(tables, func(t table) bool { return strings.HasPrefix(key, t.prefix) })
	if i < 0 {
		return nil
	}
	return &tables[i]
}

// learn returns the server's time and the WINDOW of the table of one of an operation's keys. It
// asks the server if it must, until the deadline. Its errors are *Error.
func (c *Client) learn(ctx context.Context, o call, key string, deadline time.Time) (time.Time,
	time.Duration, error) {
	now, window, refresh := c.facts.get(key)
	if refresh {
		go func() {
			c.ask(context.WithoutCancel(ctx), key, true) // if this fails, what we know still holds
			c.facts.mu.Lock()
			c.facts.refreshing = false
			c.facts.mu.Unlock()
		}()
	}
	if window > 0 {
		return now, window, nil
	}
	trail := trail{begun: time.Now()}
	for {
		err := c.ask(ctx, key, false)
		if err == nil {
			now, window, _ = c.facts.get(key)
			return now, window, nil
		}
		v := judge(err)
		if v.lost {
			c.reload(ctx)
		}
		trail.note(err)
		if !v.again || !c.pause(ctx, trail.tries, deadline) {
			o.fresh = true // nothing was sent
			e := c.completed(failure(o, nil, err), &trail)
			if v.again {
				e.context = ctx.Err()
			}
			return now, 0, e
		}
	}
}

// ask asks the server for its time, its tables, and the window of a key's table; or, if
// all is set, of each table that was needed so far.
func (c *Client) ask(ctx context.Context, key string, all bool) error {
	server, err := within(ctx, c, func(ctx context.Context) (time.Time, error) {
		return c.rdb.Time(ctx).Result()
	})
	if err != nil {
		return err
	}
	asked := time.Now()
	tables, err := c.askTables(ctx, key, all)
	if _, refused := answerOf(err); refused && !judge(err).again {
		tables, err = []table{{window: assumedWindow}}, nil
	}
	if err != nil {
		return err
	}
	c.facts.mu.Lock()
	defer c.facts.mu.Unlock()
	c.facts.known, c.facts.asked, c.facts.server, c.facts.tables = true, asked, server, tables
	return nil
}

// askTables returns the server's tables, with the windows that are needed.
func (c *Client) askTables(ctx context.Context, key string, all bool) ([]table, error) {
	c.facts.mu.Lock()
	known := map[string]time.Duration{}
	for _, t := range c.facts.tables {
		known[t.name] = t.window
	}
	c.facts.mu.Unlock()
	list, err := c.pairs(ctx, "CTABLE", "LIST")
	if err != nil {
		return nil, err
	}
	var tables []table
	for name, prefix := range list {
		tables = append(tables, table{name, prefix, known[name]})
	}
	slices.SortFunc(tables, func(a, b table) int { return len(b.prefix) - len(a.prefix) })
	needed := find(tables, key)
	for i := range tables {
		t := &tables[i]
		if t != needed && (!all || t.window == 0) {
			continue
		}
		info, err := c.pairs(ctx, "CTABLE", "INFO", t.name)
		if err != nil {
			return nil, err
		}
		t.window = assumedWindow
		if ms, err := strconv.ParseInt(info["window"], 10, 64); err == nil && ms > 0 {
			t.window = time.Duration(ms) * time.Millisecond
		}
	}
	if needed == nil {
		tables = append(tables, table{window: assumedWindow})
	}
	return tables, nil
}

// pairs sends a command whose answer is names and values: a map, or a list of both in turn.
func (c *Client) pairs(ctx context.Context, args ...any) (map[string]string, error) {
	reply, err := within(ctx, c, func(ctx context.Context) (any, error) {
		return c.rdb.Do(ctx, args...).Result()
	})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			all[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			all[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return all, nil
}
