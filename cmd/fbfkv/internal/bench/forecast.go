package bench

import (
	"fmt"
	"time"
)

// forecast says how much longer work takes whose pieces' lengths are known
// roughly beforehand, from how long the pieces so far have taken.
type forecast struct {
	began       time.Time
	total, done float64 // seconds as foreseen
}

// newForecast begins work that is foreseen to take some seconds.
func newForecast(seconds float64) *forecast { return &forecast{began: time.Now(), total: seconds} }

// add notes that a piece is done that was foreseen to take some seconds.
func (f *forecast) add(seconds float64) { f.done += seconds }

// left is how much longer the work takes, in words.
func (f *forecast) left() string {
	left := max(0, f.total-f.done)
	if f.done > 0 {
		left *= time.Since(f.began).Seconds() / f.done
	}
	d := time.Duration(left * float64(time.Second))
	if d < 90*time.Second {
		return fmt.Sprintf("%.0f s left", d.Seconds())
	}
	return fmt.Sprintf("%.0f min left", d.Minutes())
}
