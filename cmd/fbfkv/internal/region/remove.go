package region

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
	"github.com/fbfkv/fbfkv/regions"
)

func removeCommand() operate.Subcommand {
	var heir string
	var lost bool
	return operate.Subcommand{
		Use:   "remove HOST:PORT NAME [NAME ...] --heir NAME [--lost] [--yes]",
		Short: "remove regions that are lost or no longer needed",
		Long: `Removes the regions NAME. HOST:PORT is a region that stays. Operations of a removed region that
another one has read still count; the heir, a region that stays, looks after them from then on.
A removed region joins again only with an empty directory.

A region that answers this command refuses writes first (READONLY), and is removed when all that
stay have its operations: so nothing is lost, unless one of its shards gets another leader just
then, which learns of the removal within a moment. If this takes too long, the region serves
again. If it does not answer, or with --lost, operations that it has not shared are lost.

The command shows its progress, and ends when the heir has all that the others know of the
removed regions. A region that cannot be reached holds that up: if it is lost as well, remove
it too. You need not wait: the regions go on by themselves.

The first region of those that stay decides. If regions are removed because all but one are
lost, name them all.`,
		Args: cobra.MinimumNArgs(2),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&heir, "heir", "", "the region that looks after their counts (required)")
			cmd.Flags().BoolVar(&lost, "lost", false, "remove regions that answer at once too: operations "+
				"that they have not shared are lost")
		},
		Run: run(func(o *operator, args []string) error { return o.remove(args[0], heir, args[1:], lost) }),
	}
}

func (o *operator) remove(addr, heir string, names []string, lost bool) error {
	s, st, err := o.region(addr)
	switch {
	case heir == "":
		return fmt.Errorf("--heir is missing: the region that looks after the counts of %s",
			strings.Join(names, ", "))
	case err != nil:
		return err
	case st.Removed:
		return removed(addr, &st)
	case slices.Contains(names, st.Name):
		return fmt.Errorf("%s is the region %s itself: name a server of a region that stays", addr, st.Name)
	}
	if err := removable(addr, &st, heir, names); err != nil {
		return err
	}
	var d *drain
	if !lost && !st.Restored {
		if d, err = o.drain(addr, &st, names); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return removal(&st, name) == nil }) {
		if err := o.Confirm(removes(&st, heir, names, d)...); err != nil {
			return err
		}
	}
	args := []any{"REMOVE", heir}
	for _, name := range names {
		args = append(args, name)
	}
	if err := d.drained(func() error { _, _, err := o.decide(s, args...); return err }); err != nil {
		return err
	}
	for _, name := range names {
		o.Say("%s: is removed", name)
	}
	return o.inherit(addr, names)
}

// removable refuses a removal that the regions would refuse, before anything is asked.
func removable(addr string, st *regions.NodeStatus, heir string, names []string) error {
	for i, name := range append([]string{heir}, names...) {
		r := removal(st, name)
		switch {
		case i == 0 && name != st.Name && peer(st, name) == nil:
			return fmt.Errorf("%s: there is no region %q to be the heir", addr, name)
		case i > 0 && name == heir:
			return fmt.Errorf("the region %s cannot be its own heir", name)
		case i > 0 && r == nil && peer(st, name) == nil:
			return fmt.Errorf("%s: there is no region %q", addr, name)
		case i > 0 && r != nil && r.Heir != heir && !slices.Contains(names, r.Heir):
			return fmt.Errorf("the region %s was removed before, and its heir is %s: to change the heir, "+
				"remove %[2]s as well", name, r.Heir)
		}
	}
	return nil
}

// peer is how another region is read; nil: there is none of that name.
func peer(st *regions.NodeStatus, name string) *regions.PeerStatus {
	for i := range st.Peers {
		if st.Peers[i].Name == name {
			return &st.Peers[i]
		}
	}
	return nil
}

// removes says what a removal will do.
func removes(st *regions.NodeStatus, heir string, names []string, d *drain) []string {
	lines := []string{fmt.Sprintf("Removed for ever, with %s as the heir: %s.", heir,
		strings.Join(names, ", "))}
	for _, name := range names {
		switch p := peer(st, name); {
		case p == nil: // it was removed before
		case d.leaves(name):
			lines = append(lines, fmt.Sprintf("The region %s refuses writes from now on, and is removed "+
				"when the others have all its operations.", name))
		case p.Connected:
			lines = append(lines, fmt.Sprintf("The region %s is not lost, %s reads it: its operations "+
				"from now on are lost.", name, st.Name))
		default:
			lines = append(lines, fmt.Sprintf("Operations of the region %s that no other region has read "+
				"are lost.", name))
		}
	}
	if p := peer(st, heir); p != nil && !p.Connected {
		lines = append(lines, fmt.Sprintf("The heir %s is not read by %s now (%s). The removal waits "+
			"until it is back. If it is lost, name another heir.", heir, st.Name, p.State()))
	}
	if st.Restored {
		lines = append(lines, "This directory was restored from a backup: go on only if all other regions "+
			"are lost.")
	}
	return lines
}

// inherit waits until the heirs of removed regions have all that is known of them, as a region tells.
func (o *operator) inherit(addr string, names []string) error {
	said := make(map[string]string)
	return operate.Watch(o.Patience, func() (left error, moved bool, err error) {
		_, st, err := o.status(addr)
		if err != nil {
			return nil, false, err
		}
		var waits []string
		for _, name := range names {
			r := removal(&st, name)
			switch {
			case r == nil:
				waits = append(waits, "it has not heard that "+name+" was removed")
				continue
			case !r.Done:
				waits = append(waits, fmt.Sprintf("%s: %s", name, r.State))
			}
			if r.State == said[name] {
				continue
			}
			moved, said[name] = true, r.State
			if r.Done {
				o.Say("%s: looks after the counts of %s", r.Heir, name)
			} else {
				o.Say("%s: %s", name, r.State)
			}
		}
		if len(waits) == 0 {
			return nil, false, nil
		}
		return fmt.Errorf("%s: %s; it goes on by itself: see fbfkv region status %[1]s", addr,
			strings.Join(waits, "; ")), moved, nil
	})
}

// removal is how far the removal of a region is; nil: it was not removed, or there is another one of
// that name.
func removal(st *regions.NodeStatus, name string) (r *regions.RemovalStatus) {
	if peer(st, name) != nil {
		return nil
	}
	for i := range st.Removals { // the last one, of those that had the name
		if st.Removals[i].Name == name {
			r = &st.Removals[i]
		}
	}
	return r
}
