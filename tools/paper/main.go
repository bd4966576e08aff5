// Command paper makes Figures 8, 9, 12 and 13 of the FBF paper again, with the numbers that the paper prints and with this
// project's own filter on the same operations.
//
//	Subramanyam, Gupta, Leslie, Wang: "Idempotent Distributed Counters Using a
//	Forgetful Bloom Filter".
//
// A figure is computed first (fig08.go to fig13.go) into a result, which is plain numbers: panels to draw, tables, and
// findings beside the paper's. Only then is it drawn and written. So the tests check numbers, and every point of a plot
// is also in a CSV file.
//
// The figures are simulations on logged time (simulate.go): the paper's filter of package fbf/paper, and the product's of
// package fbf, driven by the same operations. They are the same for the same seed.
package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"text/tabwriter"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// figures are the figures that can be made, in the paper's order.
var figures = []struct {
	number int
	make   func(*run) result
}{{8, figure8}, {9, figure9}, {12, figure12}, {13, figure13}}

func main() {
	out := flag.String("out", "fbfkv-paper", "`directory` to write figNN.svg and figNN.csv to")
	only := flag.String("figures", "", "only figures whose number matches this regular expression")
	quick := flag.Bool("quick", false, "a small part of the work, for a first look; not to be quoted")
	seed := flag.Uint64("seed", 1, "seed of the simulations")
	flag.Parse()
	if err := makeFigures(*out, *only, &run{seed: *seed, quick: *quick}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "paper:", err)
		os.Exit(1)
	}
}

// makeFigures makes figures, and writes them with a summary of their findings.
func makeFigures(dir, only string, r *run, stdout io.Writer) error {
	wanted, err := regexp.Compile("^(" + only + ")$")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		if only != "" && !wanted.MatchString(strconv.Itoa(f.number)) {
			continue
		}
		res := f.make(r)
		if err := res.write(filepath.Join(dir, fmt.Sprintf("fig%02d", f.number))); err != nil {
			return err
		}
		for _, found := range res.findings {
			fmt.Fprintf(w, "%d\t%s\t%s\t%.3g\t%.3g\t%.3g\n",
				f.number, found.what, found.paper, found.model, found.got, found.product)
		}
		w.Flush()
	}
	return nil
}

// run is what a figure's computation is given.
type run struct {
	seed  uint64
	quick bool // a hundredth of the work: for tests and a first look
}

// pick returns the full run's value, or the quick one's.
func pick[T any](r *run, full, quick T) T {
	if r.quick {
		return quick
	}
	return full
}

// result is a computed figure.
type result struct {
	panels   []chart.Panel // from top to bottom
	tables   []table       // at least one; the first holds every point drawn
	findings []finding     // beside the paper's numbers
}

// write writes a figure's plot and tables.
func (res result) write(name string) error {
	for _, t := range res.tables {
		if err := writeCSV(name+t.suffix+".csv", t.text()); err != nil {
			return err
		}
	}
	return chart.Write(name+".svg", res.panels...)
}

// table is a CSV file.
type table struct {
	suffix  string // of the file name; "" for the first
	columns []string
	rows    [][]float64
	labels  []string // optional first column, one per row, under the heading "what"
}

// add appends a row.
func (t *table) add(values ...float64) { t.rows = append(t.rows, values) }

// text is the table with its heading.
func (t table) text() [][]string {
	all := [][]string{t.columns}
	for _, row := range t.rows {
		var fields []string
		for _, v := range row {
			fields = append(fields, number(v))
		}
		all = append(all, fields)
	}
	for i, label := range append([]string{"what"}, t.labels...) {
		if t.labels != nil {
			all[i] = append([]string{label}, all[i]...)
		}
	}
	return all
}

func writeCSV(path string, rows [][]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close())
}

// number writes a value with six digits; "" if there is none.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case v == math.Trunc(v) && math.Abs(v) < 1e9:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// finding is one number of the paper beside ours.
type finding struct {
	what    string
	paper   string  // as printed; "" if the paper has no number
	model   float64 // the corrected formula, NaN if there is none
	got     float64 // the paper's scheme, measured; NaN if it does not apply
	product float64 // our filter on the same operations; NaN if it does not apply
}

// none marks a number that does not exist.
var none = math.NaN()
