//go:build !race

package raced

// On is true if the race detector is there.
const On = false

// Slowdown divides what a test tries that does one thing after another.
const Slowdown = 1

// Step is the distance between the seeds, or cases, that such a test tries.
const Step = 1
