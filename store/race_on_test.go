//go:build race

package store

// slowdown divides what tests try where the race detector slows them down.
const slowdown = 10
