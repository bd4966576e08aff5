package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// sample is one row of speed.csv.
type sample struct {
	target string
	bytes  float64
	name   string
	round  string
	op     string
	ns     float64
}

// table is a CSV file without its header.
func table(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, fmt.Errorf("%s: no rows: %w", path, err)
	}
	return rows[1:], nil
}

func samples(path string) (out []sample, err error) {
	rows, err := table(path)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		s := sample{target: r[0], name: r[2], round: r[3], op: r[4]}
		s.bytes, _ = strconv.ParseFloat(r[1], 64)
		if s.ns, err = strconv.ParseFloat(r[5], 64); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// report writes the plot of everything measured, and prints the tables of the targets
// asked for: times of new ids and of duplicates, and memory.
func report(c config, out io.Writer) error {
	speeds, err := samples(c.path("speed.csv"))
	if err != nil {
		return err
	}
	memory, err := table(c.path("bits.csv"))
	if err != nil {
		return err
	}
	positives, err := table(c.path("fpp.csv"))
	if err != nil {
		return err
	}
	if err := graph(c.path("filters.svg"), speeds, memory, positives); err != nil {
		return err
	}
	wanted := func(target string) bool {
		x, err := strconv.ParseFloat(target, 64)
		return err == nil && slices.Contains(c.targets, x)
	}
	speeds = slices.DeleteFunc(speeds, func(s sample) bool { return !wanted(s.target) })
	memory = slices.DeleteFunc(memory, func(row []string) bool { return !wanted(row[0]) })
	_, err = fmt.Fprint(out, speedTable(speeds, "new"), "\n", speedTable(speeds, "duplicate"), "\n", bitsTable(memory, positives))
	return err
}

// distinct keeps the first of equal values, in order.
func distinct[S, T comparable](in []S, f func(S) T) (out []T) {
	for _, x := range in {
		if v := f(x); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	if n == 0 {
		return 0
	}
	return (x[(n-1)/2] + x[n/2]) / 2
}

// middle is the median time of a contestant, and the median over the rounds of
// its ratio to our single operation of the same round.
func middle(all []sample, target string, bytes float64, name, op string) (ns, ratio float64) {
	ours := map[string]float64{}
	pick := func(name string, f func(sample)) {
		for _, s := range all {
			if s.target == target && s.bytes == bytes && s.name == name && s.op == op {
				f(s)
			}
		}
	}
	pick("fbf", func(s sample) { ours[s.round] = s.ns })
	var times, ratios []float64
	pick(name, func(s sample) {
		times = append(times, s.ns)
		ratios = append(ratios, s.ns/ours[s.round])
	})
	return median(times), median(ratios)
}

func speedTable(all []sample, op string) string {
	var b strings.Builder
	sizes := distinct(all, func(s sample) float64 { return s.bytes })
	b.WriteString("| target | contestant |")
	for _, n := range sizes {
		fmt.Fprintf(&b, " %s |", bytesName(n))
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" ---: |", len(sizes)) + "\n")
	for _, target := range distinct(all, func(s sample) string { return s.target }) {
		for _, name := range distinct(all, func(s sample) string { return s.name }) {
			fmt.Fprintf(&b, "| %s | %s |", short(target), name)
			for _, n := range sizes {
				if ns, ratio := middle(all, target, n, name, op); ns == 0 {
					b.WriteString(" |")
				} else {
					fmt.Fprintf(&b, " %.0f (%.2gx) |", ns, ratio)
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// short writes a target as people do: 1e-06 as 1e-6.
func short(number string) string {
	x, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return number
	}
	return strings.Replace(strconv.FormatFloat(x, 'e', -1, 64), "e-0", "e-", 1)
}

// scientific writes a measured probability with so many digits after the point.
func scientific(x float64, digits int) string {
	if x == 0 {
		return "0"
	}
	return strings.Replace(strconv.FormatFloat(x, 'e', digits, 64), "e-0", "e-", 1)
}

func bytesName(n float64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.0f KB", n/1024)
	}
	return fmt.Sprintf("%.0f MB", n/(1<<20))
}

// bitsTable joins memory and measured false positives.
func bitsTable(memory, positives [][]string) string {
	var b strings.Builder
	b.WriteString("| target | contestant | bits per id | false positives / probes | measured FPP | 95% bounds |\n| --- | --- | ---: | ---: | ---: | --- |\n")
	for _, m := range memory {
		bits, _ := strconv.ParseFloat(m[3], 64)
		fmt.Fprintf(&b, "| %s | %s | %.1f |", short(m[0]), m[1], bits)
		for _, f := range positives {
			if f[0] == m[0] && f[1] == m[1] {
				hits, _ := strconv.ParseFloat(f[3], 64)
				probes, _ := strconv.ParseFloat(f[4], 64)
				low, _ := strconv.ParseFloat(f[5], 64)
				high, _ := strconv.ParseFloat(f[6], 64)
				fmt.Fprintf(&b, " %s / %s | %s | %s to %s |",
					f[3], strings.Replace(fmt.Sprintf("%.0e", probes), "e+0", "e", 1), scientific(hits/probes, 1), scientific(low, 2), scientific(high, 2))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
