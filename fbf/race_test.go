//go:build race

package fbf

const raceEnabled = true
