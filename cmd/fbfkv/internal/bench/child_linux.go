package bench

import "syscall"

// childAttributes put a server into a process group of its own, with what it
// forks, and end it with the thread that started it, so that it does not outlive
// this program.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// signal sends a signal to a server and what it forked.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// pause stops a server, and what it does in the background, until resume.
func (p *process) pause() error { return p.signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }
