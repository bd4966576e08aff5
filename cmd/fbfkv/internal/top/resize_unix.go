//go:build unix

package top

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResize sends on c when the terminal has another size.
func notifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
