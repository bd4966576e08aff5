package bench

import (
	"encoding/json"
	"fmt"
	"io"
)

// Row is one goal and how it was met.
type Row struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	Measured float64 `json:"measured"`
	Lowest   float64 `json:"min"` // of one round
	Most     float64 `json:"max"`
	Goal     float64 `json:"goal"`
	AtMost   bool    `json:"at_most"` // the goal is an upper bound
	OK       bool    `json:"ok"`
	Note     string  `json:"note,omitempty"` // what the figure is made of
}

// atLeast is a row whose figure must reach a goal.
func atLeast(name, what string, goal float64, r Ratio, note string) Row {
	return Row{Name: name, What: what, Measured: r.Ratio, Lowest: r.Lowest, Most: r.Most, Goal: goal, OK: r.Ratio >= goal, Note: note}
}

// atMost is a row whose figure must not exceed a goal.
func atMost(name, what string, goal float64, r Ratio, note string) Row {
	row := atLeast(name, what, goal, r, note)
	row.AtMost, row.OK = true, r.Ratio <= goal
	return row
}

// rowFormat are the columns of the printed table.
const rowFormat = "%-21s %-69s %-22s %-8s %-6s %s\n"

// print writes the row for people or, as a line of JSON, for programs.
func (r Row) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	sign, verdict := ">=", "ok"
	if r.AtMost {
		sign = "<="
	}
	if !r.OK {
		verdict = "MISSED"
	}
	measured := fmt.Sprintf("%.2f (%.2f to %.2f)", r.Measured, r.Lowest, r.Most)
	_, err := fmt.Fprintf(out, rowFormat, r.Name, r.What, measured, fmt.Sprintf("%s %.4g", sign, r.Goal), verdict, r.Note)
	return err
}
