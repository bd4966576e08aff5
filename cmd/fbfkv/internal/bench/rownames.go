package bench

import (
	"fmt"
	"slices"
	"strings"
)

// depths are the pipeline depths of rows.
var depths = []int{1, 16, 64}

// atDepths are the names of a row for some pipeline depths.
func atDepths(name string, depths ...int) (names []string) {
	for _, d := range depths {
		names = append(names, fmt.Sprintf("%s-%d", name, d))
	}
	return names
}

// everysecRows are the rows of the comparison with everysec, in the order of the table.
func everysecRows() []string {
	return slices.Concat(atDepths("lua-everysec", depths...), atDepths("incrby-everysec", depths...), []string{"p99"},
		atDepths("sadd", setDepths...), atDepths("bfadd", setDepths...), []string{"hot-everysec"}, atDepths("ping", depths...), atDepths("ping-incrby", depths...),
		atDepths("approx", depths...), atDepths("approx-p99", depths...), duplicateRows())
}

// alwaysRows are those with always.
func alwaysRows() []string {
	return slices.Concat(atDepths("lua-always", depths...), atDepths("incrby-always", depths...), []string{"hot-always"})
}

// begins reports whether a row's name begins as was asked for. Numbers are not cut
// short: ping-1 is not the beginning of ping-16.
func begins(name, asked string) bool {
	rest, ok := strings.CutPrefix(name, asked)
	return ok && (rest == "" || asked == "" || !isDigit(rest[0]) || !isDigit(asked[len(asked)-1]))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// wantsRow reports whether one row is asked for.
func (t *table) wantsRow(name string) bool {
	return len(t.rows) == 0 || slices.ContainsFunc(t.rows, func(asked string) bool { return begins(name, asked) })
}

// wantsAny reports whether any of some rows is asked for.
func (t *table) wantsAny(names ...string) bool { return slices.ContainsFunc(names, t.wantsRow) }

// wants reports whether any row of an experiment is asked for.
func (t *table) wants(e experiment) bool {
	if len(t.rows) == 0 {
		return t.all || !e.slow
	}
	return t.wantsAny(e.rows...)
}

// choose returns the experiments of the rows asked for.
func (t *table) choose() (chosen []experiment, err error) {
	var names []string
	for _, e := range experiments() {
		names = append(names, e.rows...)
		if t.wants(e) {
			chosen = append(chosen, e)
		}
	}
	for _, asked := range t.rows {
		if !slices.ContainsFunc(names, func(name string) bool { return begins(name, asked) }) {
			return nil, fmt.Errorf("--rows: no row begins with %q; there are %s", asked, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}
