//go:build !linux

package observe

import "runtime"

// residentMemory is unknown here.
func residentMemory() uint64 { return 0 }

// totalMemory is unknown here.
func totalMemory() uint64 { return 0 }

// systemName is the system's name.
func systemName() string { return runtime.GOOS + " " + runtime.GOARCH }
