package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// activity counts what a server did in the background since it started.
type activity struct {
	snapshots   float64 // SAVE, BGSAVE and those of the setting save
	refreshes   float64 // generations that filters sealed, of all partitions
	resizes     float64 // segments that filters opened, of all partitions
	flushes     float64 // of Pebble's memtables
	compactions float64 // Pebble's
	ids         float64 // remembered now
}

// since is what was done since an earlier time; what there is now stays.
func (a activity) since(b activity) activity {
	a.snapshots -= b.snapshots
	a.refreshes -= b.refreshes
	a.resizes -= b.resizes
	a.flushes -= b.flushes
	a.compactions -= b.compactions
	return a
}

// String says what was done, in words.
func (a activity) String() string {
	return fmt.Sprintf("%.0f snapshots, %.0f refreshes, %.0f resizes, %.0f flushes, %.0f compactions", a.snapshots, a.refreshes, a.resizes, a.flushes, a.compactions)
}

// activity asks the server what it has done.
func (p *process) activity(ctx context.Context) (a activity, err error) {
	m, err := p.metrics(ctx)
	if err != nil {
		return a, err
	}
	if a.snapshots, err = p.info(ctx, "rdb_saves"); err != nil {
		return a, err
	}
	for _, of := range []struct {
		name string
		to   *float64
	}{
		{"fbfkv_table_refreshes_total", &a.refreshes}, {"fbfkv_table_segments_opened_total", &a.resizes},
		{"fbfkv_pebble_flushes_total", &a.flushes}, {"fbfkv_pebble_compactions_total", &a.compactions},
		{"fbfkv_table_ids_remembered", &a.ids},
	} {
		v, ok := m[of.name]
		if !ok {
			return a, fmt.Errorf("the metrics of %s have no %s", p.name, of.name)
		}
		*of.to = v
	}
	return a, nil
}

// maxMetrics bounds what is read of a page of metrics, bytes.
const maxMetrics = 4 << 20

// metrics reads the server's page of metrics.
func (p *process) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.web+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", p.name, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: %s", p.name, answer.Status)
	}
	return parseMetrics(io.LimitReader(answer.Body, maxMetrics))
}

// parseMetrics reads Prometheus' text format. What a name counts with different
// labels is added up.
func parseMetrics(in io.Reader) (map[string]float64, error) {
	all := map[string]float64{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("metrics: %q is no figure", line)
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		name, _, _ := strings.Cut(line[:at], "{")
		all[name] += v
	}
	return all, lines.Err()
}
