//go:build !unix

package top

import "os"

// notifyResize would send on c when the terminal has another size, if the system said so:
// the next answer finds it.
func notifyResize(chan<- os.Signal) {}
