//go:build !linux

package bench

import "syscall"

// childAttributes are the usual ones.
func childAttributes() *syscall.SysProcAttr { return nil }

// signal sends a signal to a server.
func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// pause lets a server run on: nobody can be stopped everywhere.
func (p *process) pause() error { return nil }

func (p *process) resume() error { return nil }
