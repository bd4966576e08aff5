package paper

import (
	"fmt"
	"testing"
	"time"
)

func TestExplore(t *testing.T) {
	for _, f := range figures()[:6] {
		b := time.Now()
		r := &run{seed: 1, quick: true, progress: func(float64) {}}
		res, err := f.make(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(f.number, time.Since(b))
		for _, x := range res.findings {
			fmt.Printf("   %+v\n", x)
		}
		if len(res.tables) > 1 {
			for i, row := range res.tables[1].rows {
				fmt.Println(res.tables[1].labels[i], row)
			}
		}
	}
}
