package cluster

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// virtual runs a test on virtual time: timers fire when every goroutine waits, however busy the
// machine is. It does so in a process of its own, since Pebble keeps channels in package variables,
// and a channel belongs to one bubble of synctest. The process ends with the test, whatever its
// goroutines do.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	const variable = "FBFKV_TEST_ON_VIRTUAL_TIME"
	if os.Getenv(variable) == t.Name() {
		failed := make(chan bool)
		go func() { // outside the bubble
			if <-failed {
				os.Exit(1)
			}
			os.Exit(0)
		}()
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if why := recover(); why != nil {
					panic(why)
				}
				for failed <- t.Failed(); ; time.Sleep(time.Hour) {
					// Were all goroutines blocked before the process ends, synctest would say so.
				}
			}()
			test(t)
		})
		return
	}
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	var names []string
	for name := range strings.SplitSeq(t.Name(), "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	// of real time: a goroutine that waits for a lock for ever stops the clock of a bubble
	limit := 30 * time.Minute
	if end, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(end)-5*time.Second)
	}
	child := exec.Command(self, "-test.run", strings.Join(names, "/"), "-test.v", "-test.timeout",
		limit.String())
	child.Env = append(os.Environ(), variable+"="+t.Name())
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
