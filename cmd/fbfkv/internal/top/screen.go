package top

import (
	"fmt"
	"math"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/info"
)

const (
	maxSlow   = 8     // slow batches shown
	enoughIDs = 10000 // for memory per id to mean something: a small filter is mostly empty
)

// screen draws samples as lines of text.
type screen struct {
	addr          string
	width, height int // 0: no bound
	unicode       bool
}

// lines draws a sample; before is the one before it, nil if there is none, and problem why
// the server has not answered since, nil if it has.
func (sc *screen) lines(s, before *sample, problem error) []string {
	list := []string{sc.title(s, problem), ""}
	list = append(list, figures(s, before)...)
	list = append(list, "")
	list = append(list, sc.tables(s, before)...)
	if s.fields["cluster_enabled"] == "1" {
		list = append(append(list, "", "CLUSTER"), shard(s.fields)...)
	}
	list = append(list, "", "SLOW OPERATIONS")
	list = append(list, slow(s)...)
	return sc.fit(list)
}

// title says which server it is and whether all is well.
func (sc *screen) title(s *sample, problem error) string {
	f, state := s.fields, "ready"
	switch {
	case problem != nil:
		state = "NO ANSWER: " + problem.Error()
	case f["aof_last_write_status"] != "ok":
		state = "FROZEN: writes are refused until a restart"
	case f.Number("disk_full") == 1:
		state = "DISK FULL: writes are refused"
	}
	return fmt.Sprintf("%s: %s (fbfkv %s, up %s, appendfsync %s)", sc.addr, state, f["fbfkv_version"],
		duration(time.Duration(f.Number("uptime_in_seconds"))*time.Second), f["appendfsync"])
}

// figures are the lines about the whole server.
func figures(s, before *sample) []string {
	f := s.fields
	ids, of := 0.0, ""
	for _, t := range s.tables {
		ids += t.Number("ids")
	}
	memory := f.Number("filter_bytes") + f.Number("used_memory_recent_records")
	if ids >= enoughIDs {
		of = fmt.Sprintf(", %.1f B each", memory/ids)
	}
	limit := ""
	if n := f.Number("filter_maxmemory"); n > 0 {
		limit = " of " + bytes(n)
	}
	backup := "never"
	if at := f.Number("backup_last_success_time"); at > 0 {
		backup = duration(max(s.at.Sub(time.Unix(int64(at), 0)), time.Second)) + " ago"
	}
	loading := ""
	if n := f.Number("loading_hot_counters"); n > 0 {
		loading = fmt.Sprintf(", %s still to be read into memory", count(n))
	}
	return []string{
		fmt.Sprintf("operations  %s/s applied, %s/s duplicates, %s/s stale, %s/s refused",
			count(s.rate(before, "operations_applied")),
			count(s.rate(before, "operations_duplicate")), count(s.rate(before, "operations_stale")),
			count(s.rate(before, "operations_refused"))),
		fmt.Sprintf("in all      %s applied, %.0f duplicates absorbed", count(f.Number("operations_applied")),
			f.Number("operations_duplicate")),
		fmt.Sprintf("latency     half within %s, 99 %% within %s, fsync %s", latency(s.waited(before, 0.5)),
			latency(s.waited(before, 0.99)), fsync(s, before)),
		fmt.Sprintf("ids         %s remembered in %s of memory%s", count(ids), bytes(memory), of),
		fmt.Sprintf("memory      %s, filters %s%s", bytes(f.Number("used_memory")),
			bytes(f.Number("filter_bytes")), limit),
		fmt.Sprintf("disk        %s, %s free, last backup %s", bytes(f.Number("disk_bytes")),
			bytes(f.Number("disk_free_bytes")), backup),
		fmt.Sprintf("keys        %s%s, clients %s", count(f.Pairs("db0").Number("keys")), loading,
			count(f.Number("connected_clients"))),
	}
}

// fsync is how long one took in the mean.
func fsync(s, before *sample) string {
	n := s.rate(before, "oplog_fsyncs")
	if !(n > 0) {
		return "-"
	}
	return latency(s.rate(before, "oplog_fsync_usec") / n)
}

// tables draws a line for each table: its window as its generations, each as high as the
// share of its bits that are set, the newest first.
func (sc *screen) tables(s, before *sample) []string {
	rows := [][]string{{"TABLE", "APPLIED/s", "DUPL/s", "IDS", "FILL", "ERROR", "WANTED", "MEMORY", "B/ID",
		"WINDOW", "MODE", "STALE", "REFUSED"}}
	for _, t := range s.tables {
		each := "-"
		if n := t.Number("ids"); n >= enoughIDs {
			each = fmt.Sprintf("%.1f", t.Number("memory")/n)
		}
		rows = append(rows, []string{clean(t.name), count(s.tableRate(before, t, "applied")),
			count(s.tableRate(before, t, "duplicates")),
			count(t.Number("ids")), sc.bars(t.Info["fills"]), fmt.Sprintf("%.2g", t.Number("effective_fpp")),
			fmt.Sprintf("%.2g", t.Number("target_fpp")),
			bytes(t.Number("memory")), each,
			duration(time.Duration(t.Number("window_ms")) * time.Millisecond), t.Info["mode"],
			count(t.Number("stale")), count(t.Number("refused"))})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var list []string
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			if sc.width > 0 && utf8.RuneCountInString(line)+widths[i] > sc.width {
				break // whole columns only
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 || i == 4 { // texts to the left, numbers to the right
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		list = append(list, strings.TrimRight(line, " "))
	}
	return list
}

// bars draws shares, such as 0.5/0.3, as one character each.
func (sc *screen) bars(shares string) string {
	levels := []rune("123456789")
	if sc.unicode {
		levels = []rune("▁▂▃▄▅▆▇█")
	}
	var b strings.Builder
	for part := range strings.SplitSeq(shares, "/") {
		var share float64
		if _, err := fmt.Sscanf(part, "%g", &share); err != nil || math.IsNaN(share) {
			continue
		}
		share = min(max(share, 0), 0.5) * 2 // a Bloom filter is full when half its bits are set
		b.WriteRune(levels[int(share*float64(len(levels)-1)+0.5)])
	}
	return b.String()
}

// shard draws what a node of a cluster says of its shard: a leader knows the others.
func shard(f info.Info) []string {
	role := "leads"
	if f["role"] != "master" {
		role = "follows " + net.JoinHostPort(f["master_host"], f["master_port"]) + ", link " +
			f["master_link_status"]
	}
	list := []string{fmt.Sprintf("this node %s; term %s, the leader changed %s times; %s entries "+
		"committed, %s applied",
		role, f["shard_term"], f["shard_leader_changes"], f["shard_commit_index"], f["shard_applied_index"])}
	ms := func(n float64) string { return latency(n * 1e3) }
	for i := 0; ; i++ {
		r := f.Pairs(fmt.Sprint("shard_replica", i))
		if len(r) == 0 {
			return list
		}
		if r.Number("last_contact_ms") < 0 {
			list = append(list, fmt.Sprintf("%-21s  has not answered since this node leads", r["address"]))
			continue
		}
		list = append(list, fmt.Sprintf("%-21s  %s entries behind, %s; heard of %s ago", r["address"],
			r["lag_entries"], ms(r.Number("lag_ms")), ms(r.Number("last_contact_ms"))))
	}
}

// slow draws the slow batches.
func slow(s *sample) (list []string) {
	switch {
	case s.slowErr != nil:
		return []string{"not known: " + s.slowErr.Error()}
	case len(s.slow) == 0:
		return []string{"none"}
	}
	for _, e := range s.slow {
		list = append(list, fmt.Sprintf("%s  %8s  %s  %s", e.at.Format(time.TimeOnly),
			latency(float64(e.took.Microseconds())), strings.Join(e.args, " "), e.client))
	}
	return list
}

// fit makes the lines harmless and cuts what the terminal has no room for.
func (sc *screen) fit(list []string) []string {
	if sc.height > 0 && len(list) > sc.height {
		hidden := len(list) - sc.height + 1
		list = append(list[:sc.height-1:sc.height-1], fmt.Sprintf("(%d more lines)", hidden))
	}
	for i, line := range list {
		line = clean(line)
		if runes := []rune(line); sc.width > 0 && len(runes) > sc.width {
			line = string(runes[:sc.width])
		}
		list[i] = line
	}
	return list
}

// clean replaces what a terminal would obey: names and arguments are clients'.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
