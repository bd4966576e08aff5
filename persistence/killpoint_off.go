//go:build !killpoints

package persistence

// KillPoint marks an instant at which a test may kill the process. In a build
// without the tag killpoints it is nothing.
func KillPoint(string) {}
