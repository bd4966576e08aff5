package paper

import "fmt"

const (
	black = iota
	orange
	blue
	green
	gray
)

func thousands(n uint64) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
