//go:build unix

package observe

import (
	"fmt"
	"syscall"
	"time"
)

// infoCPU reports the processor time that this process used.
func infoCPU(_ *View, b *Lines) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return
	}
	b.Add("used_cpu_sys", seconds(u.Stime))
	b.Add("used_cpu_user", seconds(u.Utime))
	var children syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children) != nil {
		return
	}
	b.Add("used_cpu_sys_children", seconds(children.Stime))
	b.Add("used_cpu_user_children", seconds(children.Utime))
}

// CPUTime is the processor time that this process has used so far, its own and the system's for it.
func CPUTime() (user, system time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// seconds renders a time with six decimals.
func seconds(t syscall.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }
