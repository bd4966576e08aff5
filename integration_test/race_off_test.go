//go:build !race

package integration

// raceDetector is true if the tests, and so the program, run with it.
const raceDetector = false
