//go:build killpoints

package persistence

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// KillPointVariable names the environment variable that arms one kill point:
// FBFKV_KILLPOINT=before-commit=120 kills the process as kill -9 does when it
// passes that point for the 120th time.
const KillPointVariable = "FBFKV_KILLPOINT"

// armedPoint is the point that kills, and how often it may still be passed.
type armedPoint struct {
	name string
	left atomic.Int64
}

var armed = arm(os.Getenv(KillPointVariable))

func arm(setting string) *armedPoint {
	name, count, _ := strings.Cut(setting, "=")
	k := &armedPoint{name: name}
	n, err := strconv.ParseInt(count, 10, 64)
	if name != "" && err != nil {
		panic(fmt.Sprintf("%s: %v", KillPointVariable, err))
	}
	k.left.Store(n)
	return k
}

// KillPoint kills the process at the instant that the environment variable
// names.
func KillPoint(name string) {
	if name == armed.name && armed.left.Add(-1) == 0 {
		fmt.Fprintln(os.Stderr, "killed at", name)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
