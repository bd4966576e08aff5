//go:build unix

package commands

import (
	"fmt"
	"syscall"
)

// infoCPU reports the processor time that this process used.
func infoCPU(_ *infoView, b *infoLines) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return
	}
	b.add("used_cpu_sys", seconds(u.Stime))
	b.add("used_cpu_user", seconds(u.Utime))
	var children syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children) != nil {
		return
	}
	b.add("used_cpu_sys_children", seconds(children.Stime))
	b.add("used_cpu_user_children", seconds(children.Utime))
}

// seconds renders a time with six decimals.
func seconds(t syscall.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }
