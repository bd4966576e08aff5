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
// A mutant is an edit of one file, in mutants.txt, which reads like a diff:
//
//	mutant G1: a generation is dropped one refresh early
//	file: fbf/segment.go
//	packages: ./fbf ./store
//	tests: TestModel|TestWindow
//	-	return s.lanes[l].expire <= now
//	+	return s.lanes[l].expire <= now+1000
//
// First come the guarantee and a name that no other mutant has, then the packages to test, a regular
// expression of the tests that must fail, and, if they need any, arguments for them (args:). Behind "-"
// is a whole line that goes, behind "+" one that comes, and behind a space one that stays. Those that go
// and stay follow each other in the file, exactly once: lines that stay are needed where the others alone
// would occur more often. An empty line ends a mutant. When code moves, the list has to follow:
//
//	go -C tools run ./mutants -check        says in a second which texts are no longer where they should be
//	go -C tools run ./mutants -check -move  names the files that have them now, if one does
//
// The tree is copied to a temporary directory, the edit is made there, and the tests run under a strict
// limit of time, after which they count as failed: a server that hangs is noticed. A text that has gone, or
// an edit that does not compile, is an error. The command prints a table and exits with 1
// if a mutant survives.
package main
