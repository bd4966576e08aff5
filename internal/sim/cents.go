package sim

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Decimals are counted in tables whose SCALE clients try to change. That can be done until one operation is
// remembered, so each table lives through creations, changes and drops, and then through refusals of them.
// An amount that the table of the moment does not take is refused.

const (
	centTables = 12
	centScale  = 3 // decimals of the amounts
)

// cents counts decimals, or changes a table of theirs.
func (u *user) cents() {
	table := fmt.Sprint("cent", u.rng.IntN(centTables))
	if u.rng.IntN(3) == 0 {
		scale := strconv.Itoa(2 + u.rng.IntN(3))
		u.changeTable([][]string{
			{"CTABLE", "CREATE", table, "PREFIX", table + ":", "WINDOW", "1d", "SCALE", scale},
			{"CTABLE", "ALTER", table, "SCALE", scale},
			{"CTABLE", "DROP", table},
		}[u.rng.IntN(3)])
		return
	}
	key, n := fmt.Sprint(table, ":", u.rng.IntN(2)), int64(1+u.rng.IntN(9999))
	d := &deal{key: key, adds: map[string]int64{key: n}, silent: true,
		command: []string{"INCREX", key, "BYFLOAT", thousandths(n), "OPID", u.id()}}
	if u.rng.IntN(2) == 0 {
		d.silent, d.command = false, []string{"CINCRBY", key, u.id(), thousandths(n), "WITHSTATUS"}
	}
	u.deal(d)
}

// thousandths writes a number of them as a decimal, without trailing zeros.
func thousandths(n int64) string {
	text := big.NewRat(n, 1000).FloatString(centScale)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// isNoCents reports whether a reply says that the key's table does not take an amount.
func isNoCents(reply string) bool {
	return strings.Contains(reply, "need a table with SCALE") || strings.Contains(reply, "at most 2 decimals") ||
		strings.Contains(reply, "in a table with SCALE it counts")
}
