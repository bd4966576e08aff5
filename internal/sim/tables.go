package sim

import (
	"fmt"
	"strings"
	"time"
)

// Tables of the workload, beside the default one, whose window is longer than any world. The keys
// of a table begin with its name and a colon.
const (
	approxTable = "approx" // its window is as long, and it is so seldom wrong that its counters are exact
	shortTable  = "short"  // its window is shortWindow
	roughTable  = "rough"  // the same, and its operations are not recorded
	shortWindow = time.Minute
	// retryFor is for how long an operation in a short window is sent again after it was sent
	// first. Requests under way then have until the window's end to arrive.
	retryFor = 30 * time.Second
	// tableCounters is how many counters each of them has.
	tableCounters = 8
)

// prepare are the commands that make the tables. They may be sent again.
var prepare = [][]string{
	{"CTABLE", "ALTER", "default", "WINDOW", "1d"},
	{"CTABLE", "CREATE", approxTable, "PREFIX", approxTable + ":", "MODE", "APPROX", "WINDOW", "1d", "ERROR",
		"0.000000001"},
	{"CTABLE", "CREATE", shortTable, "PREFIX", shortTable + ":", "WINDOW", "1m"},
	{"CTABLE", "CREATE", briefKey, "PREFIX", briefKey + ":", "WINDOW", briefWindow.String()},
	{"CTABLE", "CREATE", boundedKey, "PREFIX", boundedKey + ":", "MIN", "-5", "MAX", "40", "WINDOW", "1d"},
	{"CTABLE", "CREATE", roughTable, "PREFIX", roughTable + ":", "MODE", "APPROX", "WINDOW", "1m", "ERROR",
		"0.000000001"},
}

// Prepare makes the tables, before any client runs.
func (l *Workload) Prepare() {
	s, all := l.Connect(), prepare
	if l.Suffix == "" { // regions do not share them
		all = append(all[:len(all):len(all)], []string{"CTABLE", "CREATE", "vault", "PREFIX", vault, "MIN", "0",
			"MAX", stockLimit, "WINDOW", "1d"})
	}
	for _, words := range all {
		l.mustEnd(strings.Join(words, " "), func() bool {
			_, _, ok := l.Do(s, words[2], time.Minute, words...)
			return ok
		})
	}
}

// approximately increments a counter of the table that keeps no records.
func (u *user) approximately() { u.request(u.History.Send(u.tableKey(approxTable), u.id())) }

func (u *user) tableKey(table string) string {
	key := fmt.Sprint(table, ":", u.rng.IntN(tableCounters))
	if table == shortTable {
		key += u.Suffix
	}
	return key
}

// briefly increments a counter of a table with a short window, or sends again what it has sent lately.
func (u *user) briefly() {
	now := time.Now()
	for len(u.lately) > 0 && now.Sub(u.lately[0].began) > retryFor {
		u.lately = u.lately[1:]
	}
	if n := len(u.lately); n > 0 && u.rng.IntN(2) == 0 {
		u.lately[u.rng.IntN(n)].op.send(u.Workload, u, u.patience())
		return
	}
	table := shortTable
	if u.rng.IntN(2) == 0 {
		table = roughTable
	}
	b := briefOp{now, u.History.Send(u.tableKey(table), u.id())}
	u.lately = append(u.lately, b)
	for !u.over() && time.Since(b.began) < retryFor && !b.op.send(u.Workload, u, u.patience()) {
		u.rest()
	}
}

// briefOp is an operation in a short window.
type briefOp struct {
	began time.Time
	op    *Op
}

// tableChanges are done to the tables while clients work. None of them makes an operation forgotten
// before its time: keys that change their table are still looked up in the former one.
var tableChanges = []string{
	"ALTER default WINDOW 2d", "ALTER default WINDOW 1d", "ALTER default ERROR 0.01",
	"ALTER default ERROR 0.001",
	"CREATE ones PREFIX k1 WINDOW 1d", "DROP ones", "ALTER ones ERROR 0.01",
	"CREATE tens PREFIX k10 WINDOW 1d", "DROP tens",
	"CREATE groups PREFIX {g WINDOW 1d", "DROP groups", "CREATE hots PREFIX hot WINDOW 1d", "DROP hots",
	"ALTER hots ERROR 0.01",
	"CREATE lost PREFIX nothing MODE APPROX", "DROP lost", "ALTER lost WINDOW 3m",
	"CREATE few PREFIX short:1 WINDOW 1m", "DROP few",
	"CREATE purse PREFIX {purse1 WINDOW 1d", "DROP purse", "CREATE half PREFIX {purse0}1 WINDOW 1d", "DROP half",
	"CREATE stock PREFIX {stock2 WINDOW 1d", "DROP stock", "ALTER vault ERROR 0.01",
	"CREATE tanks PREFIX tank1 WINDOW 1d", "DROP tanks", "CREATE rates PREFIX rate WINDOW 1d", "DROP rates",
	"CREATE blooms PREFIX bf1 WINDOW 1d", "DROP blooms", "CREATE cells PREFIX {cms1 WINDOW 1d", "DROP cells",
}

// changeTables changes a table, or tries to.
func (u *user) changeTables() {
	u.changeTable(append([]string{"CTABLE"}, strings.Split(tableChanges[u.rng.IntN(len(tableChanges))], " ")...))
}

func (u *user) changeTable(words []string) {
	replies, from, _ := u.Send(words[2], 3*time.Second, words)
	if len(replies) == 0 {
		return
	}
	// whoever asks again may be late
	for _, known := range []string{"table or prefix exists", "no such table", "too many tables",
		"SCALE cannot change"} {
		if strings.Contains(fmt.Sprint(replies[0]), known) {
			return
		}
	}
	u.settled(words, replies[0], from)
	u.World.Say("%q: %v", words, replies[0])
}
