//go:build unix

package observe

import (
	"fmt"
	"syscall"
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

// seconds renders a time with six decimals.
func seconds(t syscall.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }
