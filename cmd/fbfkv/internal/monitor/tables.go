package monitor

import (
	"slices"

	"github.com/fbfkv/fbfkv/store"
)

// tableFigures are the figures of one table. There are at most store.MaxTables.
var tableFigures = []figure[store.TableInfo]{
	gauge("table_window_seconds", "For how long an id is recognised at least (WINDOW).",
		func(t *store.TableInfo) float64 { return t.TableOptions.Window.Seconds() }, "table"),
	gauge("table_skew_seconds", "How far the clocks of clients and server may differ (SKEW).",
		func(t *store.TableInfo) float64 { return t.TableOptions.Skew.Seconds() }, "table"),
	gauge("table_exact", "Whether the table confirms positives by records (MODE EXACT).",
		func(t *store.TableInfo) float64 { return bool01(t.Mode == store.Exact) }, "table"),
	gauge("table_fpp_target_ratio", "Highest false positive probability that the filter may have (ERROR).",
		func(t *store.TableInfo) float64 { return t.Error }, "table"),
	gauge("table_fpp_ratio", "Present false positive probability of the filter.",
		func(t *store.TableInfo) float64 { return t.Filter.EffectiveFPP }, "table"),
	gauge("table_generations", "Live generations of the filter.",
		func(t *store.TableInfo) float64 { return float64(t.Filter.Generations) }, "table"),
	gauge("table_segments", "Segments of the filter; more than one per partition while it grows.",
		func(t *store.TableInfo) float64 { return float64(t.Filter.Segments) }, "table"),
	gauge("table_fill_ratio", "Share of bits that are set in the fullest generation.",
		func(t *store.TableInfo) float64 {
			if len(t.Filter.Fill) == 0 {
				return 0
			}
			return slices.Max(t.Filter.Fill)
		}, "table"),
	gauge("table_refresh_period_seconds", "Time between two refreshes of the filter at the latest.",
		func(t *store.TableInfo) float64 { return t.Filter.RefreshPeriod.Seconds() }, "table"),
	counter("table_refreshes_total", "Refreshes of the filter since it was made.",
		func(t *store.TableInfo) float64 { return float64(t.Filter.Refreshes) }, "table"),
	counter("table_segments_opened_total", "Segments that the filter has opened since it was made: its "+
		"first ones, resizes and changes of policy.",
		func(t *store.TableInfo) float64 { return float64(t.Filter.Opened) }, "table"),
	gauge("table_ids_remembered", "Operation ids that the filter remembers.",
		func(t *store.TableInfo) float64 { return float64(t.Filter.Items) }, "table"),
	gauge("table_filter_bytes", "Memory of the filter.",
		func(t *store.TableInfo) float64 { return float64(t.Filter.Bytes) }, "table"),
	gauge("table_filter_limit_bytes", "Memory that it and open holds may use (MAXMEMORY); 0: no limit of its own.",
		func(t *store.TableInfo) float64 { return float64(t.MaxMemory) }, "table"),
	gauge("table_records", "Records kept to confirm duplicates.",
		func(t *store.TableInfo) float64 { return float64(t.Records) }, "table"),
	gauge("table_record_bytes", "Disk space of the records in runs.",
		func(t *store.TableInfo) float64 { return float64(t.RecordBytes) }, "table"),
	gauge("table_runs", "Sorted runs of records.",
		func(t *store.TableInfo) float64 { return float64(t.Runs) }, "table"),
	gauge("table_open_holds", "Holds that are open.",
		func(t *store.TableInfo) float64 { return float64(t.Holds) }, "table"),
	gauge("table_open_hold_bytes", "Memory of these holds.",
		func(t *store.TableInfo) float64 { return float64(t.HoldBytes) }, "table"),
	counter("table_applied_total", "Operations applied.",
		func(t *store.TableInfo) float64 { return float64(t.Applied) }, "table"),
	counter("table_duplicates_total", "Duplicates absorbed.",
		func(t *store.TableInfo) float64 { return float64(t.Duplicates) }, "table"),
	counter("table_confirmed_total", "Duplicates that a record confirmed.",
		func(t *store.TableInfo) float64 { return float64(t.Confirmed) }, "table"),
	counter("table_dismissed_total", "Positives of the filter without a record: new operations after all.",
		func(t *store.TableInfo) float64 { return float64(t.Dismissed) }, "table"),
	counter("table_stale_total", "Operations refused as STALE.",
		func(t *store.TableInfo) float64 { return float64(t.Stale) }, "table"),
	counter("table_refused_total", "Operations refused for lack of memory (OOM).",
		func(t *store.TableInfo) float64 { return float64(t.Refused) }, "table"),
}
