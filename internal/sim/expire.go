package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// fleetingPrefix is what the names of counters begin with that expire and are deleted. Their
// operations are remembered all the same: one that is sent again gets its first answer, and brings
// no counter back.
const fleetingPrefix = "fleeting"

const fleetingCounters = 6

// expire increments a counter that lives for a while, or ends one.
func (u *user) expire() {
	key := fmt.Sprint(fleetingPrefix, u.rng.IntN(fleetingCounters), u.Suffix)
	life := strconv.Itoa(1 + u.rng.IntN(3000))
	switch u.rng.IntN(8) {
	case 0:
		u.Do(u, key, time.Second, "DEL", key)
	case 1:
		u.Do(u, key, time.Second, "PEXPIRE", key, life)
	default:
		o := u.History.Send(key, u.id())
		if u.rng.IntN(2) == 0 {
			o.options = []string{"PX", life}
		}
		u.request(o)
	}
}

// keepFleeting lets no counter expire any more.
func (l *Workload) keepFleeting(s Sender) {
	for _, f := range l.History.facts() {
		if key := f.Query[1]; strings.HasPrefix(key, fleetingPrefix) {
			l.mustEnd("PERSIST "+key, func() bool {
				_, _, ok := l.Do(s, key, time.Second, "PERSIST", key)
				return ok
			})
		}
	}
}
