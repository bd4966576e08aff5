package sim

import (
	"slices"
	"strings"
	"time"
)

// Fault is one kind of fault.
type Fault struct {
	Name   string
	Weight int // how often it strikes, against the others; 0: never
	Strike func(w *World, target *Machine)
}

// Nemesis lets faults strike at random.
type Nemesis struct {
	World  *World
	Faults []Fault
	// Every is the mean time between two faults.
	Every time.Duration
	// Target chooses the machine that a fault strikes.
	Target func() *Machine

	Struck int // how many have struck
}

// Only leaves the faults with these names, separated by commas. Empty: all.
func (n *Nemesis) Only(names string) {
	var some []Fault
	for _, f := range n.Faults {
		if names == "" || strings.Contains(","+names+",", ","+f.Name+",") {
			some = append(some, f)
		}
	}
	n.Faults = some
}

// Swarm leaves a third of the kinds of faults: a mix of all kinds hides what a few of them do together.
func (n *Nemesis) Swarm() {
	n.Faults = slices.DeleteFunc(n.Faults, func(f Fault) bool { return f.Weight == 0 })
	keep := (len(n.Faults) + 2) / 3
	for len(n.Faults) > keep {
		i := n.World.Intn(len(n.Faults))
		n.Faults = append(n.Faults[:i:i], n.Faults[i+1:]...)
	}
}

// Names returns the names of the faults.
func (n *Nemesis) Names() string {
	var names []string
	for _, f := range n.Faults {
		names = append(names, f.Name)
	}
	return strings.Join(names, ",")
}

// Strike lets one fault strike, after a while.
func (n *Nemesis) Strike() {
	w, sum := n.World, 0
	time.Sleep(w.Mean(n.Every))
	for _, f := range n.Faults {
		sum += f.Weight
	}
	if sum == 0 {
		w.Fail("no fault can strike")
		return
	}
	at := w.Intn(sum)
	for _, f := range n.Faults {
		if at -= f.Weight; at >= 0 {
			continue
		}
		target := n.Target()
		w.Say("fault %d: %s at machine %d", n.Struck, f.Name, target.Index())
		n.Struck++
		f.Strike(w, target)
		return
	}
}

// crash ends the process of a machine in one of the ways in which processes end unasked, and starts
// another later.
func crash(m *Machine, later time.Duration) {
	w, l := m.World, m.Life()
	ended := false
	if w.Chance(0.4) {
		ended = m.Kill(l)
	} else {
		ended = m.PowerOff(l, w.Intn(3)*50)
	}
	if ended {
		m.StartAfter(later)
	}
}

// Others returns the other machines.
func (m *Machine) Others() (others []*Machine) {
	for _, o := range m.World.Machines() {
		if o != m {
			others = append(others, o)
		}
	}
	return others
}

// Other returns another machine, at random.
func (m *Machine) Other() *Machine {
	others := m.Others()
	return others[m.World.Intn(len(others))]
}

// MachineFaults are the faults that any machine may meet.
var MachineFaults = []Fault{
	{"crash", 4, func(w *World, m *Machine) { crash(m, w.Mean(time.Second)) }},
	{"crash-at-operation", 4, func(w *World, m *Machine) { m.Disk.CrashAfter(1 + w.Intn(60)) }},
	{"crash-all", 1, func(w *World, m *Machine) {
		for _, m := range w.Machines() {
			crash(m, w.Mean(time.Second))
			time.Sleep(w.Between(0, 2*time.Millisecond))
		}
	}},
	{"crash-two", 2, func(w *World, m *Machine) {
		crash(m, w.Mean(time.Second))
		crash(m.Other(), w.Mean(time.Second))
	}},
	{"crash-while-starting", 2, func(w *World, m *Machine) {
		crash(m, w.Mean(100*time.Millisecond))
		w.Undo(w.Mean(100*time.Millisecond), func() {
			m.Disk.CrashAfter(1 + w.Intn(300))
			m.Start()
		})
	}},
	{"killed-then-dark", 2, func(w *World, m *Machine) { // what the page cache held is gone after all
		if m.Kill(m.Life()) {
			m.StartAfter(w.Mean(200 * time.Millisecond))
			w.Undo(w.Mean(time.Second), func() {
				if m.PowerOff(m.Life(), w.Intn(3)*50) {
					m.StartAfter(w.Mean(500 * time.Millisecond))
				}
			})
		}
	}},
	{"isolated", 4, func(w *World, m *Machine) { cutOff(m, true, true) }},
	{"deaf", 2, func(w *World, m *Machine) { cutOff(m, true, false) }},
	{"mute", 2, func(w *World, m *Machine) { cutOff(m, false, true) }},
	{"one-way", 4, func(w *World, m *Machine) {
		from, to := m, m.Other()
		if w.Chance(0.5) {
			from, to = to, from
		}
		w.Network.Cut(from, to)
		w.Undo(w.Mean(time.Second), func() { w.Network.Heal(from, to) })
	}},
	{"slow-link", 3, func(w *World, m *Machine) {
		o := m.Other()
		w.Network.Slow(m, o, w.Mean(100*time.Millisecond))
		w.Undo(w.Mean(time.Second), func() { w.Network.Slow(m, o, 0) })
	}},
	{"reset", 4, func(w *World, m *Machine) { w.Network.Reset(m, m.Other()) }},
	{"frozen", 3, func(w *World, m *Machine) {
		w.Network.Freeze(m)
		w.Undo(w.Mean(1500*time.Millisecond), func() { w.Network.Thaw(m) })
	}},
	{"failing-disk", 1, func(w *World, m *Machine) {
		m.Disk.Break(!m.Powered)
		w.Undo(w.Mean(300*time.Millisecond), func() { m.Disk.Break(false) })
	}},
	{"slow-disk", 3, func(w *World, m *Machine) {
		m.Disk.Slow(w.Mean(300 * time.Millisecond))
		w.Undo(w.Mean(2*time.Second), func() { m.Disk.Slow(0) })
	}},
	{"full-disk", 2, func(w *World, m *Machine) {
		if l := m.Life(); l != nil {
			l.Hurt()
			m.Disk.Fill(int64(w.Intn(6 << 20)))
			w.Undo(w.Mean(2*time.Second), func() { m.Disk.Fill(-1) })
		}
	}},
	{"clock", 2, func(w *World, m *Machine) { m.TurnClock(w.Between(-2*time.Minute, 2*time.Minute)) }},
}

// cutOff cuts the links to a machine, from it, or both, for a while.
func cutOff(m *Machine, to, from bool) {
	w := m.World
	each := func(do func(from, to *Machine)) {
		for _, o := range m.Others() {
			if to {
				do(o, m)
			}
			if from {
				do(m, o)
			}
		}
	}
	each(w.Network.Cut)
	w.Undo(w.Mean(time.Second), func() { each(w.Network.Heal) })
}
