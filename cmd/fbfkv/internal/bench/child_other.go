//go:build !linux

package bench

import "syscall"

// childAttributes are the usual ones.
func childAttributes() *syscall.SysProcAttr { return nil }
