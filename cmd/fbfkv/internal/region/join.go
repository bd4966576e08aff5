package region

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

var createCommand = operate.Subcommand{
	Use:   "create HOST:PORT NAME [--yes]",
	Short: "make a server the first region",
	Long: `Makes the running server HOST:PORT the first region, with the name NAME and the counters that
it has. Others join it, and learn its counters.

HOST is where the other regions reach it; so it is not 127.0.0.1, unless all regions are
on this machine. The setting region-announce overrides it. To change the address later,
run create again with the new one. If the only region was restored from a backup, create makes
it go on.

The first region admits new ones. While it cannot be reached the others count on, and none
can join.`,
	Args: cobra.ExactArgs(2), Run: run(func(o *operator, args []string) error {
		return o.create(args[0], args[1])
	}),
}

var joinCommand = operate.Subcommand{
	Use:   "join NEW NAME EXISTING [--yes]",
	Short: "make a server another region",
	Long: `Makes the running server NEW a region with the name NAME, beside those to which the server
EXISTING belongs. NEW may have counters: counters with the same key are added up. So it must not begin with a copy of another region's data.

Until NEW has caught up with all others, it refuses operations with opids that it does not
know, since the others may know them. So no region joins while another one is down or paused.
EXISTING serves meanwhile.

NEW then reads the others' counters; the command shows that, and ends when NEW has caught up
with all of them. You need not wait: NEW goes on by itself. If the command was
interrupted before, run it again. Run again with another HOST:PORT it changes
the address at which the others reach NEW.`,
	Args: cobra.ExactArgs(3), Run: run(func(o *operator, args []string) error {
		return o.join(args[0], args[1], args[2])
	}),
}

func (o *operator) create(addr, name string) error {
	s, st, err := o.status(addr)
	if err == nil {
		err = removed(addr, &st)
	}
	if err != nil {
		return err
	}
	at := cmp.Or(st.Admission.Address, addr)
	admission := st.Admission
	admission.Name, admission.Address = name, at
	var known store.RegionSet // it has been admitted to
	if st.Member && !st.Restored {
		if known, err = o.members(s); err != nil {
			return err
		}
	}
	unfit := admission.Fits(known)
	switch {
	case st.Member && st.Name != name:
		return fmt.Errorf("%s is the region %s already", addr, st.Name)
	case unfit != nil:
		return fmt.Errorf("%s: %w", addr, unfit)
	case st.Restored && len(st.Peers) == 0:
		err = o.Confirm(fmt.Sprintf("The data of %s was restored from a backup; from now on it is the "+
			"region %s, and the only one.", addr, name),
			"If another region knows it, do not go on: remove it there, and join with an empty directory.")
	case st.Restored:
		return fmt.Errorf("%s: %w", addr, store.ErrRestored)
	case st.Member && st.Address == at:
		o.Say("%s is the region %s already", addr, name)
		return nil
	case st.Member:
		err = o.Confirm(fmt.Sprintf("The region %s has the address %s; from now on it is %s.", name,
			st.Address, at))
	default:
		err = o.Confirm(fmt.Sprintf("The %s becomes the region %s, the first one. Others will reach it at %s.", candidate(addr, &st), name, at))
	}
	if err != nil {
		return err
	}
	set, err := o.change(s, "CREATE", name, addr)
	if err != nil {
		return err
	}
	if len(st.Peers) > 0 {
		return o.announce(set)
	}
	o.Say("%s is the region %s; others join with: fbfkv region join HOST:PORT NAME %[1]s", addr, name)
	return nil
}

// removed is the error of a server that was a region.
func removed(addr string, st *regions.NodeStatus) error {
	if !st.Removed {
		return nil
	}
	return fmt.Errorf("%s: %w", addr, store.ErrRemoved)
}

// candidate is what becomes a region, if a server is named.
func candidate(addr string, st *regions.NodeStatus) string {
	if len(st.Shards) > 0 {
		return "cluster of " + addr
	}
	return "server " + addr
}

// announce tells the others that the region that decides has another address: they cannot read there
// that it has. One of them is enough, as each of them reads that one.
func (o *operator) announce(set store.RegionSet) error {
	own, _ := set.Member(set.Self)
	told := false
	var failed error
	for _, m := range set.Members {
		if m.Region == own.Region || m.Gone {
			continue
		}
		set.Self = m.Region
		s, err := o.Server(m.Address)
		if err == nil {
			_, err = s.Ask("REGION", "JOIN", set.Encode())
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		told = true
		o.Say("%s: knows that the region %s is at %s", m.Name, own.Name, own.Address)
	}
	if members(&set) > 1 && !told {
		return fmt.Errorf("no other region knows that %s is at %s: run fbfkv region join HOST:PORT NAME "+
			"%[2]s for one of them, with its own name: %[3]w", own.Name, own.Address, failed)
	}
	return nil
}

func (o *operator) join(addr, name, existing string) error {
	s, st, err := o.status(addr)
	if err != nil {
		return err
	}
	other, there, err := o.status(existing)
	switch {
	case err != nil:
		return err
	case !there.Member:
		return fmt.Errorf("%s is not a region: fbfkv region create %[1]s NAME makes it the first one",
			existing)
	case st.Member && st.Group != there.Group:
		return fmt.Errorf("%s belongs to other regions already: start a server with an empty directory", addr)
	case st.Member && st.Name != name:
		return fmt.Errorf("%s is the region %s already", addr, st.Name)
	case addr == existing:
		return fmt.Errorf("%s cannot join itself", addr)
	case st.Removed:
		return removed(addr, &st)
	case there.Removed:
		return removed(existing, &there)
	case st.Refuses != "": // before it is admitted, for a number is used for that
		return fmt.Errorf("%s: %s", addr, st.Refuses)
	}
	admission := st.Admission
	admission.Name, admission.Address = name, cmp.Or(admission.Address, addr)
	set, err := o.members(other)
	if err == nil {
		err = admission.Fits(set)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	if !st.Member {
		if err := o.ready(addr, existing, name); err != nil {
			return err
		}
	}
	if !st.Member || st.Address != admission.Address {
		if err := o.Confirm(o.plan(addr, &admission, &st, &there)...); err != nil {
			return err
		}
	}
	request, err := json.Marshal(admission)
	if err != nil {
		return err
	}
	set, err = o.change(other, "ADMIT", request)
	if err != nil {
		return err
	}
	if !st.Member {
		o.Say("%s: is admitted", addr)
	}
	if _, err := s.Ask("REGION", "JOIN", set.Encode()); err != nil {
		return fmt.Errorf("%w; %s is admitted and has not joined: run the command again", err, name)
	}
	o.Say("%s: is the region %s, one of %d", addr, name, members(&set))
	return o.follow(addr, set)
}

// settleTime is how long regions may need to read one that has just joined or come back.
const settleTime = 10 * time.Second

// ready refuses a join while regions do not read each other: the newcomer needs all of them to know
// it and to answer it, and would refuse operations until then.
func (o *operator) ready(addr, existing, newcomer string) error {
	strange := map[string]bool{} // cannot be asked from here
	return operate.Watch(min(settleTime, o.Patience), func() (left error, _ bool, err error) {
		_, there, err := o.status(existing)
		if err != nil {
			return nil, false, err
		}
		lacks, paused := unread(existing, &there, newcomer)
		for _, p := range there.Peers {
			if p.Name == newcomer || !p.Connected || strange[p.Address] {
				continue
			}
			_, other, err := o.status(p.Address)
			if strange[p.Address] = err != nil; err == nil {
				more, pausing := unread(p.Address, &other, newcomer)
				lacks, paused = append(lacks, more...), paused || pausing
			}
		}
		if len(lacks) == 0 {
			return nil, false, nil
		}
		left = fmt.Errorf("nothing was done: %s would refuse operations with opids until it has "+
			"caught up with all regions, and %s", addr, strings.Join(lacks, "; "))
		if paused {
			return nil, false, left
		}
		return left, false, nil
	})
}

// unread says which regions, but for a newcomer, one does not read, and what helps.
func unread(addr string, st *regions.NodeStatus, newcomer string) (lacks []string, paused bool) {
	for i := range st.Peers {
		p := &st.Peers[i]
		switch {
		case p.Name == newcomer:
		case p.Paused:
			paused = true
			lacks = append(lacks, fmt.Sprintf("%s has paused %s: fbfkv region resume %s %[2]s", st.Name,
				p.Name, addr))
		case p.Failing || !p.Connected:
			lacks = append(lacks, fmt.Sprintf("%s does not read %s at %s (%s): start it, mend the link, "+
				"or remove it with fbfkv region remove",
				st.Name, p.Name, p.Address, cmp.Or(p.LastError, p.State())))
		}
	}
	return lacks, paused
}

// plan says what a join will do.
func (o *operator) plan(addr string, a *regions.Admission, st, there *regions.NodeStatus) []string {
	if st.Member {
		return []string{fmt.Sprintf("The region %s has the address %s; from now on it is %s.", a.Name,
			st.Address, a.Address)}
	}
	names := []string{there.Name}
	for _, p := range there.Peers {
		if p.Name != a.Name {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	lines := []string{fmt.Sprintf("The %s becomes the region %s, beside %s. Others will reach it at %s.",
		candidate(addr, st), a.Name, strings.Join(names, ", "), a.Address)}
	if n := o.keys(addr); n > 0 {
		lines = append(lines, fmt.Sprintf("It has %s: its counts are added to those of the others. If it "+
			"is a copy of another region's data, do not go on.", operate.Count(int(n), "key")),
			"Until it has caught up with the others it refuses operations with opids that it does not "+
				"know: they may know them.")
	}
	return lines
}

// keys is how many a server has, or its cluster, as far as they say.
func (o *operator) keys(addr string) (n int64) {
	_, _, readers, _ := o.readers(addr)
	for _, s := range readers {
		some, _ := s.Client.Do(context.Background(), "DBSIZE").Int()
		n += some
	}
	return n
}

// follow waits until a region has taken what the others have told of. As long as that goes on it
// may take long.
func (o *operator) follow(addr string, set store.RegionSet) error {
	progress := o.Progress(addr + " catches up, entries of the log")
	defer progress.Clear()
	done, moved := map[string]bool{}, uint64(0)
	return operate.Watch(o.Patience, func() (left error, moves bool, err error) {
		_, st, err := o.status(addr)
		if err != nil {
			return nil, false, err
		}
		lag, now, waits, tables := uint64(0), uint64(0), []string{}, []string{}
		for _, p := range st.Peers {
			tables = append(tables, p.Tables...)
		}
		// it catches up all the same
		ills := slices.DeleteFunc(st.Ills, func(ill string) bool { return slices.Contains(tables, ill) })
		if len(ills) > 0 {
			return nil, false, fmt.Errorf("%s: %s", addr, strings.Join(ills, "; "))
		}
		for _, p := range st.Peers {
			lag += p.LagOps
			if !done[p.Name] && !p.Failing {
				now += p.Bytes
			}
			switch {
			case p.Well() && !done[p.Name]:
				done[p.Name] = true
				progress.Clear()
				o.Say("%s: has caught up with %s", addr, p.Name)
			case !done[p.Name] && !p.Paused:
				waits = append(waits, waiting(&p))
			}
		}
		if len(waits) == 0 && len(st.Peers) >= members(&set)-1 {
			progress.Clear()
			for _, ill := range tables {
				o.Say("%s", ill)
			}
			return nil, false, nil
		}
		progress.Left(lag)
		moves, moved = now != moved, now
		return fmt.Errorf("%s has not caught up with %s; it goes on by itself: see fbfkv region "+
			"status %[1]s", addr, strings.Join(waits, ", nor with ")), moves, nil
	})
}

// waiting says what a region still lacks.
func waiting(p *regions.PeerStatus) string {
	if p.Failing {
		return fmt.Sprintf("%s at %s: %s", p.Name, p.Address, p.LastError)
	}
	return fmt.Sprintf("%s at %s", p.Name, p.Address)
}
