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
	w = newWarmth(3 * warmPart)
	for i, want := range []bool{false, true, true} {
		if w.found(uint64(i) * warmPart); !w.found(uint64(i)*warmPart) || w.asked() != want {
			t.Errorf("%d of 3 parts were read ahead: asked %v, not %v", i+1, !want, want)
		}
	}
	if newWarmth(0).asked() {
		t.Error("an empty file was asked for")
	}
}
