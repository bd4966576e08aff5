package paper

// Controller is Algorithm 3, dynamic resizing: when the false positive
// probability is above the target, double the number of constituents and shorten the refresh
// period by a step; when it is below, take one constituent away and lengthen the period.
//
// It does not bound the probability at a sustained load: at the same period more
// constituents make it worse in steady state. It keeps lengthening the
// period at low load so that no refresh ever fires, and scaling down shortens
// the window. It is here to be compared with.
type Controller struct {
	Target     float64 // highest false positive probability wanted
	Filters    int     // constituents, future and present included; at least 3
	MaxFilters int     // 0: no bound but MaxPast + 2
	Period     int64   // refresh period
	Step       int64   // by how much Period changes; the paper's is 1 s. Period stays at least one Step
}

// Adapt takes one decision on the present probability and reports whether anything changed.
func (c *Controller) Adapt(fpp float64) bool {
	filters, period := c.Filters, c.Period
	if fpp > c.Target {
		c.Filters = min(2*c.Filters, c.limit())
		c.Period = max(c.Step, c.Period-c.Step)
	} else {
		c.Filters = max(3, c.Filters-1)
		c.Period += c.Step
	}
	return filters != c.Filters || period != c.Period
}

func (c *Controller) limit() int {
	if c.MaxFilters > 0 {
		return min(c.MaxFilters, MaxPast+2)
	}
	return MaxPast + 2
}
