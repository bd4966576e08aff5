package commands

import (
	"fmt"
	"strings"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/store"
)

// infoFBF reports on the filters: all together, then a line per table.
func infoFBF(v *observe.View, b *observe.Lines) {
	s := &v.Stats
	b.Add("filter_bytes", s.FilterBytes)
	b.Add("filter_keys", s.Objects[store.TypeFilter])
	b.Add("recent_records", s.RecentRecords)
	b.Add("record_runs", s.Runs)
	b.Add("record_bytes", s.RunBytes)
	b.Add("positives_confirmed", s.Confirmed)
	b.Add("positives_dismissed", s.Dismissed)
	for _, o := range v.Store.Tables() {
		t, err := v.Store.TableInfo(o.Name)
		if err != nil {
			continue // dropped meanwhile
		}
		fmt.Fprintf(b, "table_%s:mode=%s,window_ms=%d,guaranteed_ms=%d,target_fpp=%g,effective_fpp=%g,generations=%d,"+
			"fill=%.4f,refresh_ms=%d,refreshes=%d,ids=%d,memory=%d,applied=%d,duplicates=%d,looked_up=%d,confirmed=%d,"+
			"stale=%d,refused=%d\r\n",
			lineSafe(t.Name), wordAt(modeWords, uint8(t.Mode)), t.TableOptions.Window.Milliseconds(),
			t.Filter.Window.Milliseconds(), t.Error, t.Filter.EffectiveFPP, t.Filter.Generations, newestFill(t.Filter.Fill),
			t.Filter.RefreshPeriod.Milliseconds(), t.Filter.Refreshes, t.Filter.Items, t.Filter.Bytes, t.Applied,
			t.Duplicates, t.Confirmed+t.Dismissed, t.Confirmed, t.Stale, t.Refused)
	}
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
