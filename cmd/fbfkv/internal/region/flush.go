package region

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

func flushCommand() operate.Subcommand {
	return operate.Subcommand{
		Use:   "flush HOST:PORT [--yes]",
		Short: "delete every key in all regions",
		Long: `Deletes every key in all regions. HOST:PORT is any of them; the first region decides, and must
be reachable. Each of the others follows when it learns of the flush, and loses its writes
until then; a region that is away loses all it counts until it is back. It cannot be undone.

The command ends when all regions that can be reached have followed, and names the others.`,
		Args: cobra.ExactArgs(1),
		Run:  run(func(o *operator, args []string) error { return o.flush(args[0]) }),
	}
}

func (o *operator) flush(addr string) error {
	s, st, err := o.region(addr)
	if err == nil {
		err = removed(addr, &st)
	}
	if err != nil {
		return err
	}
	names := []string{st.Name}
	for i := range st.Peers {
		names = append(names, st.Peers[i].Name)
	}
	slices.Sort(names)
	if err := o.Confirm(
		"Every key is deleted in all regions, for good: "+strings.Join(names, ", ")+".",
		"What a region writes until it has heard of that is lost, also what one counts that is away."); err != nil {
		return err
	}
	if s, _, err = o.decide(s, "FLUSH"); err != nil {
		return err
	}
	return o.flushed(s.Addr)
}

// flushed waits until the others have followed a flush, as the region knows that decided it. They do
// when they know the version of the members that has it.
func (o *operator) flushed(addr string) error {
	_, st, err := o.status(addr)
	if err != nil {
		return fmt.Errorf("everything is deleted, but %w", err)
	}
	o.Say("%s: has deleted every key; era %d begins", st.Name, st.Era)
	version, followed := st.Version, make(map[string]bool)
	return operate.Watch(o.Patience, func() (left error, _ bool, err error) {
		if _, st, err = o.status(addr); err != nil {
			return nil, false, err
		}
		var waits, away []string
		for i := range st.Peers {
			switch p := &st.Peers[i]; {
			case followed[p.Name]:
			case p.Version >= version:
				followed[p.Name] = true
				o.Say("%s: has deleted every key", p.Name)
			case p.Paused, p.Failing && !p.Connected:
				away = append(away, p.Name)
				waits = append(waits, waiting(p))
			default:
				waits = append(waits, waiting(p))
			}
		}
		if len(waits) > len(away) {
			return fmt.Errorf("not flushed yet: %s; they follow by themselves: see fbfkv region "+
				"status of each", strings.Join(waits, ", ")), false, nil
		}
		for _, name := range away {
			o.Say("%s: cannot be read by %s now; it follows when it learns of the flush", name, st.Name)
		}
		return nil, false, nil
	})
}
