//go:build !unix

package observe

import "time"

// infoCPU reports nothing where the system does not tell.
func infoCPU(*View, *Lines) {}

// CPUTime is unknown here.
func CPUTime() (user, system time.Duration) { return 0, 0 }
