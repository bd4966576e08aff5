//go:build unix

package cluster

import "syscall"

// apart keeps a terminal's Ctrl-C from a server that we start: we stop it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
