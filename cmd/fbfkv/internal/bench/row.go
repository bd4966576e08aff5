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
	NoGoal   bool    `json:"no_goal,omitempty"`
	OK       bool    `json:"ok"`
	// Steal is the largest share of the processors that the hypervisor gave to others
	// during a measurement that counts.
	Steal float64 `json:"steal"`
	Note  string  `json:"note,omitempty"` // what the figure is made of
}

// atLeast is a row whose figure must reach a goal.
func atLeast(name, what string, goal float64, r Ratio, note string) Row {
	return Row{Name: name, What: what, Measured: r.Ratio, Lowest: r.Lowest, Most: r.Most, Goal: goal, OK: r.Ratio >= goal, Steal: r.Steal, Note: note}
}

// atMost is a row whose figure must not exceed a goal.
func atMost(name, what string, goal float64, r Ratio, note string) Row {
	row := atLeast(name, what, goal, r, note)
	row.AtMost, row.OK = true, r.Ratio <= goal
	return row
}

// noGoal is a row that only says what is.
func noGoal(name, what string, r Ratio, note string) Row {
	row := atLeast(name, what, 0, r, note)
	row.NoGoal, row.OK = true, true
	return row
}

// rowFormat are the columns of the printed table.
const rowFormat = "%-21s %-75s %-22s %-8s %-6s %-6s %s\n"

// print writes the row for people or, as a line of JSON, for programs.
func (r Row) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	goal, verdict := fmt.Sprintf(">= %.4g", r.Goal), "ok"
	if r.AtMost {
		goal = fmt.Sprintf("<= %.4g", r.Goal)
	}
	switch {
	case r.NoGoal:
		goal, verdict = "—", ""
	case !r.OK:
		verdict = "MISSED"
	}
	measured := fmt.Sprintf("%.2f (%.2f to %.2f)", r.Measured, r.Lowest, r.Most)
	_, err := fmt.Fprintf(out, rowFormat, r.Name, r.What, measured, goal, verdict, fmt.Sprintf("%.0f %%", 100*r.Steal), r.Note)
	return err
}
