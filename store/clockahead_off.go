//go:build !killpoints

package store

// clockAhead is how far the machine's clock is ahead of what it should show, ms. Tests set it; without
// the tag killpoints it is nothing.
const clockAhead = 0
