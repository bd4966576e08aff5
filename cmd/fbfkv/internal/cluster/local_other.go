//go:build !unix

package cluster

import "syscall"

// apart changes nothing here.
func apart() *syscall.SysProcAttr { return nil }
