package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/cpuprofile"
)

// What the machine's processors do besides the server's kinds of work.
const (
	spentGenerator = int(cpuprofile.Kinds) + iota
	spentElsewhere // by the kernel's own threads, other programs and the hypervisor
	spentIdle
	spentParts // how many parts there are
)

// spent says what the machine's processors did while a load ran.
type spent struct {
	// of holds the shares of the machine's processor time: the server's by
	// kinds of work, then the rest; together they are 1.
	of [spentParts]float64
	// faults is the part of the server's share that its profile cannot name:
	// in the kernel, but in no system call. It is contained in the kinds, and
	// mostly page faults.
	faults float64
	// steal is the share of the machine's processor time that the hypervisor gave to
	// others; it is contained in spentElsewhere.
	steal float64
	raw   []byte // the profile as it came, for go tool pprof
	// perOp is the server's processor time for one operation, in µs; 0: unknown.
	perOp float64
}

// server is the server's share.
func (s *spent) server() (share float64) {
	for _, kind := range s.of[:cpuprofile.Kinds] {
		share += kind
	}
	return share
}

// partName is the name of a part in tables and legends.
func partName(part int) string {
	switch part {
	case spentGenerator:
		return "generator"
	case spentElsewhere:
		return "elsewhere"
	case spentIdle:
		return "idle"
	}
	return cpuprofile.Kind(part).String()
}

// divideUsage divides what was used by the server as its profile says.
func divideUsage(u usage, p *cpuprofile.Shares) (s spent) {
	capacity := max(u.machine.all, u.server+u.generator)
	server := divide(u.server, capacity)
	for k, share := range p.Of {
		s.of[k] = share * server
	}
	s.faults = max(0, divide(u.kernel, capacity)-p.InSystemCalls*server)
	s.of[spentGenerator] = divide(u.generator, capacity)
	rest := max(0, 1-server-s.of[spentGenerator])
	s.of[spentIdle] = min(divide(u.machine.idle, capacity), rest)
	s.of[spentElsewhere] = rest - s.of[spentIdle]
	s.steal = divide(u.machine.steal, capacity)
	return s
}

// From these shares on something else than the server's and the generator's use
// of the processors holds the load back: that they wait, or that others have them.
const (
	waitsFrom = 0.1
	takenFrom = 0.3
)

// bound says in words what holds the load back, and what the server does most.
func (s spent) bound() string {
	kinds := make([]int, cpuprofile.Kinds)
	for k := range kinds {
		kinds[k] = k
	}
	slices.SortStableFunc(kinds, func(a, b int) int { return cmp.Compare(s.of[b], s.of[a]) })
	var most []string
	for _, k := range kinds[:3] {
		if s.of[k] >= 0.01 {
			most = append(most, partName(k))
		}
	}
	by := "processors"
	switch {
	case s.of[spentElsewhere] >= takenFrom:
		by = "other work on the machine"
	case s.of[spentIdle] >= waitsFrom:
		by = fmt.Sprintf("waiting, %.0f %% idle", 100*s.of[spentIdle])
	}
	return by + "; most: " + strings.Join(most, ", ")
}

// profiled is one measured point and what was spent on it.
type profiled struct {
	curve      string
	x          float64
	throughput float64
	spent
}

// spentHeader is the head of a CSV table of profiled points.
func spentHeader(x string) []string {
	row := []string{x, "curve", "operations_per_second", "server_us_per_operation"}
	for part := range spentParts {
		row = append(row, strings.ReplaceAll(strings.ToLower(partName(part)), " ", "_"))
	}
	return append(row, "kernel_outside_system_calls")
}

// row is a profiled point in a CSV table, shares in percent.
func (p profiled) row() []string {
	row := []string{fmt.Sprint(p.x), p.curve, number(p.throughput), number(p.perOp)}
	for _, share := range p.of {
		row = append(row, number(100*share))
	}
	return append(row, number(100*p.faults))
}

// spentMarkdown is a Markdown table of profiled points, in whole percent. It says
// so if the machine was too busy with other work for more than proportions.
func spentMarkdown(x string, points []profiled) string {
	var b strings.Builder
	elsewhere := 0.0
	for _, p := range points {
		elsewhere += p.of[spentElsewhere] / float64(len(points))
	}
	if elsewhere >= takenFrom {
		fmt.Fprintf(&b, "Taken while the machine did much else (%.0f %% on average): only the proportions of the server's shares say something.\n\n", 100*elsewhere)
	}
	fmt.Fprintf(&b, "| curve | %s | op/s | µs/op |", x)
	for part := range spentParts {
		fmt.Fprintf(&b, " %s |", partName(part))
	}
	b.WriteString(" *faults* | bound by |\n| --- | ---: | ---: | ---: |" + strings.Repeat(" ---: |", spentParts+1) + " --- |\n")
	for _, p := range points {
		fmt.Fprintf(&b, "| %s | %s | %.0fk | %.2f |", p.curve, tickLabel(p.x), p.throughput/1e3, p.perOp)
		for _, share := range p.of {
			fmt.Fprintf(&b, " %s |", percent(share))
		}
		fmt.Fprintf(&b, " *%s* | %s |\n", percent(p.faults), p.bound())
	}
	return b.String()
}

// percent writes a share in whole percent; nothing for less than a half.
func percent(share float64) string {
	if share < 0.005 {
		return "·"
	}
	return fmt.Sprintf("%.0f", 100*share)
}
