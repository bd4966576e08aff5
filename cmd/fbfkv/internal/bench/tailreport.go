package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

func p999(r *Result) float64 { return r.Latency.P999 }

// results are those of the side's rounds.
func (side *tailSide) results() (all []*Result) {
	for _, r := range side.rounds {
		all = append(all, r.Result)
	}
	return all
}

// figures are one figure of each round.
func (side *tailSide) figures(of func(*Result) float64) []float64 { return figures(side.results(), of) }

// writeTails writes what was measured: latencies over time and per round, the
// picture, the profiles, and the comparison into the document.
func (s *sweeper) writeTails(sides []*tailSide, rate float64, points []profiled) error {
	series := [][]string{{"second", "round", "server", "operations", "p50_ms", "p99_ms", "p99.9_ms", "max_ms", "others_percent"}}
	rounds := [][]string{{"round", "server", "operations_per_second", "p50_ms", "p99_ms", "p99.9_ms", "max_ms", "others_percent", "elsewhere_percent",
		"ids_at_begin", "ids_at_end", "snapshots", "refreshes", "resizes", "flushes", "compactions", "server_processors"}}
	c := chart{title: "Latency over time at half the full load, pipeline 16", x: "time measured, s", y: "latency, ms", logY: true}
	for _, side := range sides {
		slow, usual := line{name: "p99.9, " + side.name}, line{name: "p50, " + side.name}
		began := 0.0
		for i, r := range side.rounds {
			round, others := fmt.Sprint(i+1), number(100*r.Steal)
			for _, at := range r.Series {
				if at.Second > s.tail.Seconds() {
					continue // the last replies, of an interval that had just begun
				}
				series = append(series, []string{number(began + at.Second), round, side.name, fmt.Sprint(at.Operations), number(at.P50 * 1e3),
					number(at.P99 * 1e3), number(at.P999 * 1e3), number(at.Max * 1e3), others})
				slow.x, slow.y = append(slow.x, began+at.Second), append(slow.y, at.P999*1e3)
				usual.x, usual.y = append(usual.x, began+at.Second), append(usual.y, at.P50*1e3)
			}
			began += s.tail.Seconds()
			l, d := r.Latency, r.did
			row := []string{round, side.name}
			for _, v := range []float64{r.Throughput, l.P50 * 1e3, l.P99 * 1e3, l.P999 * 1e3, l.Max * 1e3, 100 * r.Steal, 100 * r.elsewhere,
				r.from, d.ids, d.snapshots, d.refreshes, d.resizes, d.flushes, d.compactions, r.serverCPU} {
				row = append(row, number(v))
			}
			rounds = append(rounds, row)
		}
		c.lines = append(c.lines, slow, usual)
	}
	text := tailMarkdown(sides[0], sides[1], rate, s.tail.Seconds())
	fmt.Fprintf(s.stdout, "\n%s", text)
	err := errors.Join(s.write(tailName, series, c), s.writeRows(tailName+"-rounds", rounds))
	if len(points) > 0 {
		err = errors.Join(err, s.writeSpentFiles(tailName, "pipeline", points))
		text += "\n" + spentMarkdown("pipeline", points)
	}
	if s.into == "" {
		return err
	}
	return errors.Join(err, rewrite(s.into, tailName, text))
}

// writeSpentFiles writes what profiles say as a table and as a picture.
func (s *sweeper) writeSpentFiles(name, x string, points []profiled) error {
	rows := [][]string{spentHeader(x)}
	for _, p := range points {
		rows = append(rows, p.row())
	}
	return errors.Join(s.writeRows(name+"-profile", rows),
		writeBars(filepath.Join(s.out, name+"-profile.svg"), "What the processors do: "+name, x, points))
}

// tailMarkdown compares the two sides, with what both did while they were measured.
func tailMarkdown(busy, quiet *tailSide, rate, seconds float64) string {
	var b strings.Builder
	r := ratio(busy.results(), quiet.results(), p999)
	verdict := "met"
	if r.Ratio > tailGoal {
		verdict = "**missed**"
	}
	fmt.Fprintf(&b, "%d rounds of %.0f s in turn, %s operations a second, half of the full rate. The p99.9 of the busy server is %.2f times that of the quiet one\n"+
		"(medians; in single rounds %.2f to %.2f); the goal, at most %d times, is %s.\n\n", len(busy.rounds), seconds, thousands(rate), r.Ratio, r.Lowest, r.Most, tailGoal, verdict)
	b.WriteString("| server | p99.9 of each round, ms | median | longest | ids remembered | snapshots | refreshes | resizes | flushes | compactions | others had | elsewhere |\n" +
		"| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, side := range []*tailSide{busy, quiet} {
		var each []string
		var sum activity
		least, most := 0.0, 0.0
		longest, others, elsewhere := 0.0, 0.0, 0.0
		for i, r := range side.rounds {
			each = append(each, fmt.Sprintf("%.1f", r.Latency.P999*1e3))
			if i == 0 || r.from < least {
				least = r.from
			}
			most = max(most, r.from, r.did.ids)
			longest, others, elsewhere = max(longest, r.Latency.Max), max(others, r.Steal), max(elsewhere, r.elsewhere)
			sum.snapshots += r.did.snapshots
			sum.refreshes += r.did.refreshes
			sum.resizes += r.did.resizes
			sum.flushes += r.did.flushes
			sum.compactions += r.did.compactions
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.0f | %.1f to %.1f million | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f %% | %.0f %% |\n", side.name, strings.Join(each, ", "),
			median(side.figures(p999))*1e3, longest*1e3, least/1e6, most/1e6, sum.snapshots, sum.refreshes, sum.resizes, sum.flushes, sum.compactions, 100*others, 100*elsewhere)
	}
	return b.String()
}
