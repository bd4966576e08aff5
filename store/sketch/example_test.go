package sketch_test

import (
	"fmt"

	"github.com/fbfkv/fbfkv/store/sketch"
)

// A sketch counts words. Each change would be written to a log before it is made.
func Example() {
	options := sketch.CountMinOptions{Width: 2000, Depth: 7}
	count, err := sketch.NewCountMin(options.Encode(), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	words := [][]byte{[]byte("to"), []byte("be"), []byte("or"), []byte("not"), []byte("to"), []byte("be")}
	deltas := []int64{1, 1, 1, 1, 1, 1}
	if !count.FitAll(deltas) {
		fmt.Println("a cell might overflow")
		return
	}
	change := count.AppendPairs(nil, words, deltas)
	for _, sequence := range []uint64{1, 1, 2} { // it has 1 already when that comes again
		if err := count.Redo(change, sequence); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(count.Estimate([]byte("be")), count.Estimate([]byte("question")), count.Info().Count)
	// Output: 4 0 12
}
