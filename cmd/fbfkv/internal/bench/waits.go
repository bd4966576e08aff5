package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// What the machine's idle processors wait for, as far as it shows from outside at
// one moment: what the server's threads are in, and whether others run.
const (
	waitServer  = iota // a thread of the server runs, and there is no work for another
	waitFsync          // none runs, and one is in fsync
	waitClients        // none runs or is in fsync, others run: the generator's turn
	waitFiles          // nobody runs, and a thread of the server reads or writes a file
	waitWaking         // nobody runs or waits for the disk: a message or a timer has yet to wake somebody
	waitKinds
)

// waitNames go on after "waiting:".
var waitNames = [waitKinds]string{
	waitServer: "for one thread of the server", waitFsync: "for fsync", waitClients: "for clients",
	waitFiles: "for reads and writes of files", waitWaking: "for wake-ups",
}

// waits are shares of the machine's idle time by what it waits for; all zero if
// nothing is known.
type waits [waitKinds]float64

// showWait is the share of the idle time from which on a reason is named.
const showWait = 0.05

// String names the reasons, the largest first.
func (w waits) String() string {
	kinds := make([]int, 0, waitKinds)
	for k, share := range w {
		if share >= showWait {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return "waiting (for what, a profile of processor time does not tell)"
	}
	slices.SortStableFunc(kinds, func(a, b int) int { return cmp.Compare(w[b], w[a]) })
	var text []string
	for _, k := range kinds {
		text = append(text, fmt.Sprintf("%s %.0f %%", waitNames[k], 100*w[k]))
	}
	return "waiting: " + strings.Join(text, ", ")
}

// threadState is what a thread does at a moment.
type threadState int

const (
	threadWaits threadState = iota // for a request, a lock, a timer
	threadRuns                     // or could, and waits for a processor
	threadSyncs
	threadFiles
)

// reasonFor says what idle processors wait for, by what the server's threads do
// and whether anything else runs.
func reasonFor(threads []threadState, others bool) int {
	switch {
	case slices.Contains(threads, threadRuns):
		return waitServer
	case slices.Contains(threads, threadSyncs):
		return waitFsync
	case others:
		return waitClients
	case slices.Contains(threads, threadFiles):
		return waitFiles
	}
	return waitWaking
}
