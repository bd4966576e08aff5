package bench

import "syscall"

// childAttributes end a server with the thread that started it, so that it
// does not outlive this program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
