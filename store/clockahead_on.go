//go:build killpoints

package store

import (
	"fmt"
	"os"
	"strconv"
)

// ClockVariable names the environment variable that sets the machine's clock: FBFKV_CLOCK_AHEAD=-60000 is a
// minute behind.
const ClockVariable = "FBFKV_CLOCK_AHEAD"

// clockAhead is how far the machine's clock is ahead of what it should show, ms.
var clockAhead = readClockAhead(os.Getenv(ClockVariable))

func readClockAhead(setting string) int64 {
	n, err := strconv.ParseInt(setting, 10, 64)
	if setting != "" && err != nil {
		panic(fmt.Sprintf("%s: %v", ClockVariable, err))
	}
	return n
}
