package commands

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/store"
)

// infoFBF reports on the filters: all together, then a line per table.
func (srv *Server) infoFBF(v *observe.View, b *observe.Lines) {
	s := &v.Stats
	b.Add("filter_bytes", s.FilterBytes)
	b.Add("filter_keys", s.Objects[store.TypeFilter])
	b.Add("recent_records", s.RecentRecords)
	b.Add("record_runs", s.Runs)
	b.Add("record_bytes", s.RunBytes)
	b.Add("positives_confirmed", s.Confirmed)
	b.Add("positives_dismissed", s.Dismissed)
	infoWaits(srv, b)
	for _, o := range v.Store.Tables() {
		t, err := v.Store.TableInfo(o.Name)
		if err != nil {
			continue // dropped meanwhile
		}
		fmt.Fprintf(b, "table_%s:mode=%s,window_ms=%d,guaranteed_ms=%d,target_fpp=%g,effective_fpp=%g,generations=%d,"+
			"fill=%.4f,fills=%s,refresh_ms=%d,refreshes=%d,ids=%d,memory=%d,applied=%d,duplicates=%d,looked_up=%d,confirmed=%d,"+
			"stale=%d,refused=%d\r\n",
			lineSafe(t.Name), wordAt(modeWords, uint8(t.Mode)), t.TableOptions.Window.Milliseconds(),
			t.Filter.Window.Milliseconds(), t.Error, t.Filter.EffectiveFPP, t.Filter.Generations, newestFill(t.Filter.Fill), shares(t.Filter.Fill),
			t.Filter.RefreshPeriod.Milliseconds(), t.Filter.Refreshes, t.Filter.Items, t.Filter.Bytes, t.Applied,
			t.Duplicates, t.Confirmed+t.Dismissed, t.Confirmed, t.Stale, t.Refused)
	}
}

// infoWaits reports how long clients have waited for commands on keys: how often at most
// each of observe.LatencyBounds, in microseconds, and in all.
func infoWaits(srv *Server, b *observe.Lines) {
	counts := srv.Observer.Stats.Waits(func(command int) bool {
		return srv.Table.all[command].Flags&(Write|ReadOnly) != 0
	})
	var line []byte
	for i, bound := range observe.LatencyBounds {
		line = fmt.Appendf(line, "%d=%d,", bound.Microseconds(), counts[i])
	}
	b.Add("waits_usec", fmt.Sprintf("%sinf=%d", line, counts[len(counts)-1]))
}

// shares are the shares of bits set in the generations, the newest first.
func shares(of []float64) string {
	words := make([]string, len(of))
	for i, fill := range of {
		words[i] = strconv.FormatFloat(fill, 'f', 4, 64)
	}
	return strings.Join(words, "/")
}

// newestFill is the share of bits set in the newest generation.
func newestFill(fill []float64) float64 {
	if len(fill) == 0 {
		return 0
	}
	return fill[0]
}

// lineSafe keeps a table's name from breaking INFO's lines.
func lineSafe(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == ':' || r == ',' || r == '=' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
}
