package bench

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// rawHeader is the head of the table of single measurements. Of a start there is only
// how long it took, of a load the rest.
var rawHeader = []string{"experiment", "what", "server", "workload", "pipeline", "keys", "round", "operations_per_second",
	"p50_ms", "p99_ms", "p99.9_ms", "max_ms", "start_seconds", "others_percent"}

// keep keeps a measurement that counts for the table of single ones.
func (t *table) keep(what string, round int, r *Result) {
	server := r.Target
	for _, p := range t.compared {
		if p.target.address == r.Target {
			server = p.name
		}
	}
	row := []string{t.stage, what, server, r.Workload, strconv.Itoa(r.Pipeline), r.Keys, strconv.Itoa(round + 1)}
	for _, v := range []float64{r.Throughput, r.Latency.P50 * 1e3, r.Latency.P99 * 1e3, r.Latency.P999 * 1e3, r.Latency.Max * 1e3} {
		row = append(row, number(v))
	}
	t.raw = append(t.raw, append(row, "", number(100*r.Steal)))
}

// keepStart keeps how long a start took.
func (t *table) keepStart(what string, round int, seconds, steal float64) {
	t.raw = append(t.raw, []string{t.stage, what, "fbfkv", "", "", "", strconv.Itoa(round + 1), "", "", "", "", "", number(seconds), number(100 * steal)})
}

// rawFile is where the single measurements of a document's table are written.
func rawFile(document string) string {
	return filepath.Join(filepath.Dir(document), "performance", "table.csv")
}

// writeRaw writes the single measurements beside the document.
func (t *table) writeRaw() error {
	if len(t.raw) == 0 {
		return nil
	}
	path := rawFile(t.into)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(append([][]string{rawHeader}, t.raw...)), f.Close())
}
