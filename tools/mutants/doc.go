// Command mutants proves that the tests guard the guarantees: it removes, one
// after another, each piece of code that upholds one, and shows that the tests
// named for it fail then.
//
//	go -C tools run ./mutants            all of them
//	go -C tools run ./mutants -run sync  those whose name matches
//
// Which of them seeds catch (package internal/sim); they need not catch all:
//
//	go -C tools run ./mutants -seeds 10m -files '^(cluster|regions)/'             each with worlds of ten minutes of CPU time
//	go -C tools run ./mutants -seeds 90s -files '^(cluster|regions)/' -sample 25  some of them
//
// A mutant is an edit of one file (list.go): a text that occurs exactly once,
// and what takes its place. The tree is copied to a temporary directory, the
// edit is made there, and the tests run under a strict limit of time, after
// which they count as failed: a server that hangs is noticed, too. A text that
// is no longer there, or an edit that does not compile, is an error: the list
// has to follow the code. The command prints a table and exits with 1 if a
// mutant survives.
package main
