package process

import "syscall"

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// childAttributes put a server and its children into a process group of their own,
// and end it with the thread that started it, so that it does not outlive
// this program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// signal sends a signal to a server and what it forked.
func (p *Process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }
