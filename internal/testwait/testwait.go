// Package testwait lets tests wait for events, however busy the machine is. How long something takes is a
// matter for virtual time (testing/synctest).
package testwait

import (
	"testing"
	"time"
)

// Limit is how long a test waits for an event that must come. It only ends a test that hangs: a machine with
// a load of 30, or the race detector, is not too slow for it.
const Limit = 3 * time.Minute

// Until waits until holds reports true, which another goroutine or process brings about. It fails the test
// after Limit.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
