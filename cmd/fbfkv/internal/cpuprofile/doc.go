// Package cpuprofile says what a server's processor time is spent on: it takes
// a CPU profile from the server's metrics-addr and sorts its samples into kinds
// of work.
//
// A sample is a stack of functions. Its kind is that of the innermost frame
// that the table of kinds (kinds.go) knows: what a library function does, it
// does for whom it was called by. Go's profiles have no frames of the kernel;
// the time of a system call is that of the function that makes it, so the
// caller says which kind of kernel work it is. A page fault counts for the
// instruction that touched the page.
package cpuprofile
