package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// pngDPI is the resolution of PNG plots.
const pngDPI = 110

// write writes a figure's plot and tables into dir.
func (res result) write(dir string, f figure, png bool) error {
	name := filepath.Join(dir, fmt.Sprintf("fig%02d", f.number))
	for _, t := range res.tables {
		path := name + ".csv"
		if t.suffix != "" {
			path = name + "-" + t.suffix + ".csv"
		}
		if err := t.write(path); err != nil {
			return err
		}
	}
	if err := res.writeSVG(name + ".svg"); err != nil {
		return err
	}
	if png {
		return res.writePNG(name + ".png")
	}
	return nil
}

// writeSVG writes the plot as SVG. Its letters are text in the font of the plot,
// or where that is missing in one of the same width.
func (res result) writeSVG(path string) error {
	c := vgsvg.New(plotWidth, res.height())
	if err := res.draw(draw.New(c)); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	text := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	return os.WriteFile(path, text, 0o644)
}

func (res result) writePNG(path string) error {
	c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, res.height()), vgimg.UseDPI(pngDPI))}
	if err := res.draw(draw.New(c)); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// write writes the table as CSV.
func (t table) write(path string) error {
	text, err := t.csv()
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// csv is the table as CSV. What could not be measured is an empty field.
func (t table) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	heading := t.columns
	if t.labels != nil {
		heading = append([]string{"what"}, heading...)
	}
	if err := w.Write(heading); err != nil {
		return nil, err
	}
	for i, row := range t.rows {
		var fields []string
		if t.labels != nil {
			fields = append(fields, t.labels[i])
		}
		for _, v := range row {
			fields = append(fields, number(v))
		}
		if err := w.Write(fields); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// number writes a value with six digits; "" if there is none.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// short writes a value for people; "-" if there is none.
func short(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// made is a figure with its result.
type made struct {
	figure
	result
}

// summary is the table of all findings.
func writeSummary(path string, all []made) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"figure", "what", "paper", "corrected_formula", "paper_scheme_measured", "fbfkv"}}
	for _, m := range all {
		for _, f := range m.findings {
			rows = append(rows, []string{strconv.Itoa(m.number), f.what, f.paper, number(f.model), number(f.got), number(f.product)})
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// printSummary writes the findings for people.
func printSummary(out io.Writer, all []made) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Fig.\twhat\tpaper\tformula\tmeasured\tfbfkv")
	for _, m := range all {
		for _, f := range m.findings {
			printed := f.paper
			if printed == "" {
				printed = "-"
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", m.number, f.what, printed, short(f.model), short(f.got), short(f.product))
		}
	}
	return w.Flush()
}

// thousands writes a number of at least a thousand with a comma.
func thousands(n uint64) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
