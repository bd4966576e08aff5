package main

import (
	"strings"
	"testing"
	"time"
)

// TestQuiet: what was disturbed is measured again, and the least disturbed counts.
func TestQuiet(t *testing.T) {
	for _, tc := range []struct {
		name    string
		steals  []float64 // of the measurements in turn
		retries int
		want    int64 // which counts
		taken   int   // of them
		again   int
		loud    int
	}{
		{"quiet", []float64{0.01}, 4, 0, 1, 0, 0},
		{"at the limit", []float64{0.03}, 4, 0, 1, 0, 0},
		{"quiet later", []float64{0.5, 0.2, 0}, 4, 2, 3, 1, 0},
		{"never", []float64{0.5, 0.2, 0.3}, 2, 1, 3, 1, 1},
		{"no retries", []float64{0.5}, 0, 0, 1, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := newQuiet()
			q.retries, q.patience = tc.retries, time.Millisecond
			n := 0
			got := takeQuiet(t.Context(), &q, func() *Result {
				n++
				return &Result{Sent: int64(n - 1), Steal: tc.steals[n-1]}
			})
			if got.Sent != tc.want || n != tc.taken || q.repeated != tc.again || q.loud != tc.loud || q.taken != 1 || tc.again > 0 && q.patience != 0 {
				t.Errorf("measurement %d of %d counts, %+v", got.Sent, n, q)
			}
			var said strings.Builder
			if q.print(&said); (said.Len() == 0) != (tc.again == 0 && tc.loud == 0) {
				t.Errorf("says %q", said.String())
			}
		})
	}
}
