//go:build !linux

package process

import "syscall"

// Elsewhere nobody is stopped, and servers that wait take processor time from the measured one.
const stopSignal, continueSignal = syscall.Signal(0), syscall.Signal(0)

func childAttributes() *syscall.SysProcAttr { return nil }

// signal sends a signal to a server.
func (p *Process) signal(s syscall.Signal) error {
	if s == 0 {
		return nil
	}
	return p.cmd.Process.Signal(s)
}
