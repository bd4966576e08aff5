package persistence

import "testing"

// TestWarmth: a part is read ahead once, when the second record was found in it.
func TestWarmth(t *testing.T) {
	w := newWarmth(2*warmPart + 1)
	for i, c := range []struct {
		off  uint64
		want bool
	}{
		{0, false}, {warmPart, false}, {warmPart - 1, true}, {0, false}, {5, false},
		{2 * warmPart, false}, {2 * warmPart, true}, {2*warmPart - 1, true}, {3 * warmPart, false}, {3 * warmPart, false},
	} {
		if got := w.found(c.off); got != c.want {
			t.Errorf("%d: at %d %v, not %v", i, c.off, got, c.want)
		}
	}
	if newWarmth(0).found(0) {
		t.Error("an empty file is read ahead")
	}
}
