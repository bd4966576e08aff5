package main

import "math/rand/v2"

// agedPeriod is t of the experiment below, ms.
const agedPeriod = 1000

// aged is what is found of ids between N t and (N+1) t old, which all must be: the
// guaranteed window is (N+1) t.
type aged struct {
	past            int
	ids             int
	text, asPrinted int // found by Algorithm 2 as its text describes it, and as it is printed
	product         int // found by our filter with the same window
}

// findAged inserts ids in the last quarter of a period and looks for them when each is N t to (N+1) t
// old. The filters are large, so that nothing is found by accident.
func findAged(rng *rand.Rand, past int) (aged, error) {
	a := aged{past: past, ids: 1000}
	theirs, err := newFleet(1, 1<<22, past, agedPeriod)
	if err != nil {
		return a, err
	}
	window := int64(past+1) * agedPeriod
	o := withinMemory(window, uint64(a.ids), 1<<20)
	o.Error = 1e-9
	ours, err := newProduct(o)
	if err != nil {
		return a, err
	}
	defer ours.Release()
	ids := make([]uint64, a.ids)
	begin := int64(agedPeriod * 3 / 4)
	for i := range ids {
		ids[i] = rng.Uint64()
		now := begin + int64(i)*agedPeriod/4/int64(a.ids)
		theirs.insert(ids[i], now)
		if err := ours.tick(now); err != nil {
			return a, err
		}
		ours.insert(ids[i], now)
	}
	// The last moment at which the oldest of them must be known.
	for now := int64(agedPeriod); now < begin+window; now++ {
		for _, s := range []subject{theirs, ours} {
			if err := s.tick(now); err != nil {
				return a, err
			}
		}
	}
	for _, h := range ids {
		a.text += one(theirs.of(h).Contains(h))
		a.asPrinted += one(theirs.of(h).ContainsAsPrinted(h))
		a.product += one(ours.contains(h))
	}
	return a, nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// asPrintedTable shows what Algorithm 2 as printed misses.
func asPrintedTable(rng *rand.Rand) (table, []finding, error) {
	t := table{suffix: "as-printed", columns: []string{"past_filters", "ids", "found_by_the_text", "found_as_printed", "found_by_fbfkv"}}
	var found []finding
	for _, past := range []int{1, 2, 4, 8} {
		a, err := findAged(rng, past)
		if err != nil {
			return t, nil, err
		}
		t.add(float64(past), float64(a.ids), float64(a.text), float64(a.asPrinted), float64(a.product))
		if past == 4 {
			found = []finding{
				{"retries of age N t to (N+1) t missed by Algorithm 2 as printed, N = 4", "", none, 1 - share(a.asPrinted, a.ids), 1 - share(a.product, a.ids)},
				{"... and as its text describes it", "", none, 1 - share(a.text, a.ids), none},
			}
		}
	}
	return t, found, nil
}
