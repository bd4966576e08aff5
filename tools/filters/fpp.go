package compare

import "gonum.org/v1/gonum/stat/distuv"

// FPP is a measured false positive probability.
type FPP struct {
	Hits, Probes uint64
	Low, High    float64 // 95% confidence bounds
}

// Rate is the estimate.
func (f FPP) Rate() float64 { return float64(f.Hits) / float64(f.Probes) }

// MeasureFPP fills a window of so many ids and looks for ids never inserted at
// moments spread over one window, so that every phase of a period is met.
func MeasureFPP(c Contestant, ids, probes uint64) (FPP, error) {
	w, err := c.New(ids)
	if err != nil {
		return FPP{}, err
	}
	defer w.Release()
	s := NewStream(w, ids)
	s.Fill(2)
	const moments = 50
	var f FPP
	for f.Probes < probes {
		n := min(probes/moments+1, probes-f.Probes)
		f.Hits += s.Unknown(f.Probes, n)
		f.Probes += n
		s.Fill(1.0 / moments)
	}
	f.Low, f.High = bounds(f.Hits, f.Probes)
	return f, nil
}

// bounds are the exact (Clopper-Pearson) 95% bounds of a binomial proportion.
func bounds(hits, n uint64) (low, high float64) {
	x, high := float64(hits), 1.0
	if hits > 0 {
		low = distuv.Beta{Alpha: x, Beta: float64(n) - x + 1}.Quantile(0.025)
	}
	if hits < n {
		high = distuv.Beta{Alpha: x + 1, Beta: float64(n) - x}.Quantile(0.975)
	}
	return low, high
}
