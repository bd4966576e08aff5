//go:build race

package raced

// On is true if the race detector is there.
const On = true

// Slowdown divides what a test tries that does one thing after another: the detector, and Pebble,
// which checks more beside it, slow such a test down about so much.
const Slowdown = 10

// Step is the distance between the seeds, or cases, that such a test tries.
const Step = 5
