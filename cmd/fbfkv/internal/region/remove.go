package region

import (
	"fmt"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

var removeCommand = subcommand{
	use:   "remove HOST:PORT NAME HEIR [--yes]",
	short: "remove a region that is lost",
	long: `Removes the region NAME, of which HOST:PORT is told, another one. What NAME has counted,
and the others have heard of, counts on; the region HEIR looks after it. What NAME has told nobody is
lost. Nobody comes back: to be a region again, NAME joins with an empty directory.

The command shows what is awaited, and ends when the heir has all that the others know of NAME.
A region that cannot be reached holds that up: if it is lost as well, remove it, too. It need not wait: the
regions go on by themselves.`,
	args: 3, run: func(o *operator, args []string) error { return o.remove(args[0], args[1], args[2]) },
}

func (o *operator) remove(addr, name, heir string) error {
	s, st, err := o.status(addr)
	if err != nil {
		return err
	}
	if !st.Member {
		return fmt.Errorf("%s is not a region", addr)
	}
	if removal(&st, name) == nil {
		if err := o.Confirm(fmt.Sprintf("The region %s is removed for ever, with %s as its heir. What it has counted and no other region has heard of is lost.", name, heir)); err != nil {
			return err
		}
	}
	if err := o.retell(s, "REMOVE", name, heir); err != nil {
		return err
	}
	o.Say("%s: is removed", name)
	end, said := time.Now().Add(o.Patience), ""
	for ; ; time.Sleep(operate.RetryPeriod) {
		if _, st, err = o.status(addr); err != nil {
			return err
		}
		r := removal(&st, name)
		switch {
		case r != nil && r.Done:
			o.Say("%s: looks after what %s has counted", r.Heir, name)
			return nil
		case r != nil && r.State != said:
			o.Say("%s: %s", addr, r.State)
			end, said = time.Now().Add(o.Patience), r.State
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %s; it goes on by itself: see fbfkv region status %[1]s", addr, said)
		}
	}
}

// retell has the region that decides carry out a subcommand, whichever is asked first.
func (o *operator) retell(s *server, args ...any) error {
	for range 3 {
		_, err := s.do(args...)
		ask, ok := err.(askError)
		if !ok {
			return err
		}
		if s, err = o.server(ask.addr); err != nil {
			return fmt.Errorf("%s; it cannot be asked from here: %w", ask.text, err)
		}
	}
	return fmt.Errorf("%s: the regions do not agree yet on who decides; run the command again", s.addr)
}

// removal is how far the removal of a region is; nil: it was not removed.
func removal(st *regions.NodeStatus, name string) *regions.RemovalStatus {
	for i := range st.Removals {
		if st.Removals[i].Name == name {
			return &st.Removals[i]
		}
	}
	return nil
}

// members counts those that were not removed.
func members(set *store.RegionSet) (n int) {
	for _, m := range set.Members {
		if !m.Gone {
			n++
		}
	}
	return n
}
