package seen

import (
	"slices"
	"testing"
)

// TestFreeListKeepsWhatIsNeeded: what is taken between two trims stays, what is not
// is dropped.
func TestFreeListKeepsWhatIsNeeded(t *testing.T) {
	var f freeList[int]
	take := func(n int) (taken []int) {
		for range n {
			if x, ok := f.get(); ok {
				taken = append(taken, x)
			}
		}
		return taken
	}
	give := func(n int) {
		for i := range n {
			f.put(i, 8)
		}
	}
	give(20)
	for _, tc := range []struct {
		what             string
		take, give, left int
	}{
		{"put since the last trim", 0, 0, 8},
		{"five are needed", 5, 5, 5},
		{"all are needed", 5, 5, 5},
		{"more are needed than there are", 7, 7, 7},
		{"three are not needed", 4, 1, 1},
		{"nothing is needed", 0, 0, 0},
		{"nothing is there", 3, 0, 0},
	} {
		taken := take(tc.take)
		give(tc.give)
		f.trim()
		if len(f.list) != tc.left || slices.Max(append(taken, 0)) > 20 {
			t.Fatalf("%s: %d are left, expected %d", tc.what, len(f.list), tc.left)
		}
	}
}

// TestTrimMemory: chunks and indexes that were given back stay for a load that
// needs them, and go once nobody does.
func TestTrimMemory(t *testing.T) {
	TrimMemory() // of other tests
	TrimMemory()
	const bits = minFreeBits + 1
	for range 3 { // a load
		c, x := newChunk(), newIndex(bits)
		recycleChunk(c)
		recycleIndex(x)
		if n := TrimMemory(); n != 0 {
			t.Fatalf("%d bytes that are in use again and again were dropped", n)
		}
	}
	if n := TrimMemory(); n != chunkSize+4<<bits {
		t.Errorf("%d bytes were dropped of a chunk and an index", n)
	}
	if n := TrimMemory(); n != 0 {
		t.Errorf("%d bytes were dropped again", n)
	}
}
