//go:build !linux

package bench

// watchWaits would tell what a process waits for; only Linux shows it.
func watchWaits(int) func() waits { return func() waits { return waits{} } }
