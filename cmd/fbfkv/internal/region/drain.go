package region

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A region that answers is drained before it is removed: it refuses writes until the others have
// all its operations.

const orLost = "; or remove it at once with --lost: what it has told nobody is lost"

// drain is the removal of regions that answer.
type drain struct {
	o     *operator
	stay  map[string]string // addresses by names
	leave map[string]*regions.PeerStatus
	told  map[*server]map[uint16]uint64
}

// drain returns which of the regions to be removed answer; nil: none does. All regions that stay
// must read them.
func (o *operator) drain(addr string, st *regions.NodeStatus, names []string) (*drain, error) {
	d := &drain{o,
		map[string]string{st.Name: addr}, map[string]*regions.PeerStatus{}, map[*server]map[uint16]uint64{}}
	for i := range st.Peers {
		p := &st.Peers[i]
		if !slices.Contains(names, p.Name) {
			d.stay[p.Name] = p.Address
			continue
		}
		switch _, there, err := o.status(p.Address); {
		case err != nil:
			o.Say("%s does not answer: %v", p.Name, err)
		case there.Group == st.Group && there.Number == p.Number && !there.Restored && !there.Removed:
			// else nobody reads it
			d.leave[p.Name] = p
		}
	}
	if len(d.leave) == 0 {
		return nil, nil
	}
	for _, by := range sorted(d.stay) { // before anything is refused for long
		_, there, err := o.status(d.stay[by])
		if err != nil {
			return nil, fmt.Errorf("whether %s has all of %s is not known: %w; remove it as well, if it "+
				"is lost%s", by, strings.Join(sorted(d.leave), ", "), err, orLost)
		}
		for _, name := range sorted(d.leave) {
			if p := peer(&there, name); p == nil || p.Paused || p.Failing {
				return nil, fmt.Errorf("%s does not read %s now: see fbfkv region status %s%s", by, name,
					d.stay[by], orLost)
			}
		}
	}
	return d, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// leaves reports whether a region is removed when the others have all of it.
func (d *drain) leaves(name string) bool { return d != nil && d.leave[name] != nil }

// drained lets the regions refuse writes, and calls remove when the others have all that they have
// done. If that does not come, or the operator does not wait for it, clients may write again.
func (d *drain) drained(remove func() error) error {
	if d == nil {
		return remove()
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := d.wait(interrupted)
	if err == nil {
		if err = remove(); err != nil { // it may have been done
			err = fmt.Errorf("%w; %s may refuse writes until you run the command again, or REGION LEAVE "+
				"no there", err, strings.Join(sorted(d.leave), ", "))
		}
		return err
	}
	for _, name := range sorted(d.leave) {
		if again := d.serve(name); again != nil {
			err = errors.Join(err, fmt.Errorf("%s may still refuse writes, until REGION LEAVE no: %w",
				name, again))
		} else {
			d.o.Say("%s: takes writes again", name)
		}
	}
	return err
}

// serve lets a region take writes again.
func (d *drain) serve(name string) error {
	_, _, readers, err := d.o.readers(d.leave[name].Address)
	for _, s := range readers {
		_, failed := s.Ask("REGION", "LEAVE", "NO")
		err = errors.Join(err, failed)
	}
	return err
}

// wait returns when all others have what the leaving ones have done.
func (d *drain) wait(interrupted context.Context) error {
	progress := d.o.Progress("the others take what it has counted, entries of the log")
	defer progress.Clear()
	said, least := map[string]bool{}, uint64(1<<64-1)
	return operate.Watch(d.o.Patience, func() (left error, moved bool, err error) {
		lag, waits := uint64(0), []string{}
		for _, name := range sorted(d.leave) {
			ends, err := d.refuse(name) // again, for another leader of a shard does not know
			if err != nil {
				waits = append(waits, err.Error())
				continue
			}
			if !said[name] {
				said[name] = true
				d.o.Say("%s: refuses writes", name)
			}
			for _, by := range sorted(d.stay) {
				n, err := d.behind(by, name, ends)
				if lag += n; err != nil {
					waits = append(waits, err.Error())
				}
			}
		}
		if len(waits) == 0 {
			return nil, false, nil
		}
		why := strings.Join(waits, "; ") + orLost
		if interrupted.Err() != nil {
			return nil, false, fmt.Errorf("interrupted, nothing was removed: %s", why)
		}
		progress.Left(lag)
		moved, least = lag < least, min(lag, least)
		return fmt.Errorf("nothing was removed: %s", why), moved, nil
	})
}

// refuse lets a region refuse writes, of a cluster the leaders of all shards, and returns the
// sequences that others must have taken, by partition.
func (d *drain) refuse(name string) (map[uint16]uint64, error) {
	_, _, readers, err := d.o.readers(d.leave[name].Address)
	if err != nil {
		return nil, err
	}
	all := make(map[uint16]uint64)
	for _, s := range readers {
		st, err := statusOf(s)
		if err != nil {
			return nil, err
		}
		if !st.Leaving || d.told[s] == nil {
			var ends map[uint16]uint64
			if err := s.AskJSON(&ends, "REGION", "LEAVE", "YES"); err != nil {
				return nil, err
			}
			d.told[s] = ends
		}
		maps.Copy(all, d.told[s])
	}
	return all, nil
}

// behind returns how many entries of a leaving region another one has not taken; an error if there
// are any, or nobody knows.
func (d *drain) behind(by, name string, ends map[uint16]uint64) (lag uint64, err error) {
	_, st, err := d.o.status(d.stay[by])
	if err != nil {
		return 0, err
	}
	return lacks(&st, by, name, d.leave[name].Number, ends)
}

// lacks is behind, of a region that says st of itself.
func lacks(st *regions.NodeStatus, by, name string, number part.Region, ends map[uint16]uint64) (lag uint64,
	err error) {
	// what the leaving one knows of another removed one, nobody else may know yet
	for _, r := range st.Removals {
		if !r.Done {
			return 0, fmt.Errorf("%s was removed before, and %s: %s", r.Name, by, r.State)
		}
	}
	p := peer(st, name)
	if p == nil || p.Number != number || !p.Connected || p.Paused || p.Failing {
		return 0, fmt.Errorf("%s does not read %s", by, name)
	}
	if len(ends) != p.Partitions {
		return 0, fmt.Errorf("%s has reported %d of its %d partitions", name, len(ends), p.Partitions)
	}
	known := make(map[uint16]bool)
	for _, r := range p.Ranges {
		known[r.Partition] = true
		lag += store.EntriesBetween(r.Taken, ends[r.Partition])
	}
	switch {
	case lag > 0:
		return lag, fmt.Errorf("%s still lacks %s of %s", by, entries(lag), name)
	case len(known) < len(ends):
		return 0, fmt.Errorf("%s does not read all of %s yet", by, name)
	}
	return 0, nil
}

func entries(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
