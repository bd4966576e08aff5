package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// regionOperator makes servers regions and looks after them, as `fbfkv region` does.
type regionOperator struct {
	s      *regionsWorld
	client *Client
}

func (s *regionsWorld) operator() regionOperator { return regionOperator{s, NewClient(s.w)} }

// ask sends a subcommand of REGION to a machine.
func (o regionOperator) ask(m *Machine, words ...string) (string, error) {
	reply, err := o.client.Do(m.Address(clientPort), 20*time.Second, append([]string{"REGION"}, words...)...)
	text, _ := reply.(string)
	return text, err
}

// decide sends a subcommand to a machine of a region, and then to the one that decides.
func (o regionOperator) decide(at *region, words ...string) (string, error) {
	m := at.machines[o.s.w.Intn(len(at.machines))]
	for range regionCount {
		text, err := o.ask(m, words...)
		said, is := errors.AsType[replyError](err)
		if !is {
			return text, err
		}
		to, asks := strings.CutPrefix(strings.TrimPrefix(string(said), "ERR "), "ASK ")
		if !asks {
			return text, err
		}
		to, _, _ = strings.Cut(to, " ")
		if m = o.s.w.at(to); m == nil {
			return text, err
		}
	}
	return "", errors.New("the regions do not agree on who decides")
}

// status returns what a machine says of its region.
func (o regionOperator) status(m *Machine) (st regions.NodeStatus, err error) {
	text, err := o.ask(m, "STATUS")
	if err == nil {
		err = json.Unmarshal([]byte(text), &st)
	}
	return st, err
}

// readers returns the machines of a region that read the others, and what they say: a server that
// stands alone, or the leaders of all shards.
func (o regionOperator) readers(at *region) (map[*Machine]regions.NodeStatus, error) {
	all, failed := make(map[*Machine]regions.NodeStatus), error(nil)
	for _, m := range at.machines {
		st, err := o.status(m)
		if err == nil && (at.cluster == nil || st.Reads) {
			all[m] = st
		}
		failed = errors.Join(failed, err)
	}
	want := 1
	if at.cluster != nil {
		want = at.cluster.shards
	}
	if len(all) < want {
		return nil, errors.Join(failed, fmt.Errorf("%s: %d machines read the others", at, len(all)))
	}
	return all, nil
}

// insist is the world's.
func (o regionOperator) insist(what string, do func() error) bool {
	return o.s.w.insist(what, do, o.describe)
}

// describe writes to the log of the run what each machine says of its region.
func (o regionOperator) describe() {
	for _, m := range o.s.w.Machines() {
		text, err := o.ask(m, "STATUS")
		o.s.w.Say("machine %d: %s %v", m.Index(), text, err)
	}
}

// add makes servers the next region. As `fbfkv region join` does, it may wait until the others read
// each other, and the next one has all of them, so they know it.
func (o regionOperator) add(r *region, waits bool) bool {
	s := o.s
	others := s.living()
	if s.w.Failure() == "" {
		r.load.Prepare()
	}
	m := r.machines[0]
	ok := s.w.Failure() == "" &&
		o.insist(fmt.Sprintf("machine %d is the region %s", m.Index(), r), func() error {
			if len(others) == 0 {
				_, err := o.ask(m, "CREATE", r.name, m.Address(clientPort))
				return err
			}
			st, err := o.status(m)
			if err == nil && !st.Member && waits {
				err = o.wellRead(others...)
			}
			if err != nil || st.Member {
				return err
			}
			a := st.Admission
			a.Name, a.Address = r.name, m.Address(clientPort)
			request, err := json.Marshal(a)
			if err != nil {
				return err
			}
			set, err := o.decide(others[0], "ADMIT", string(request))
			if err == nil {
				_, err = o.ask(m, "JOIN", set)
			}
			return err
		})
	if ok {
		count := partitions
		if r.cluster == nil {
			count = m.partitions()
		}
		r.follower = s.w.follow(r.machines, count)
		s.mu.Lock()
		s.regions = append(s.regions, r)
		s.mu.Unlock()
	}
	return ok && (!waits || o.insist(fmt.Sprint(r, " has caught up"), func() error { return o.wellRead(r) }))
}

// wellRead returns an error unless regions read each other, and have taken all that they know of.
func (o regionOperator) wellRead(some ...*region) error {
	for _, at := range some {
		all, err := o.readers(at)
		if err != nil {
			return err
		}
		for _, st := range all {
			for _, p := range st.Peers {
				if !p.Well() {
					return fmt.Errorf("%s does not read all of %s: %s", at, p.Name, p.State())
				}
			}
		}
	}
	return nil
}

// inherited returns an error unless the heir of a removed region has all that others know of it, as
// all of them say.
func (o regionOperator) inherited(name string) error {
	for _, at := range o.s.living() {
		all, err := o.readers(at)
		if err != nil {
			return err
		}
		for _, st := range all {
			if !slices.ContainsFunc(st.Removals, func(r regions.RemovalStatus) bool {
				return r.Name == name && r.Done
			}) {
				return fmt.Errorf("%s does not say that %s is inherited", at, name)
			}
		}
	}
	return nil
}

// pause lets a region read another one no more, until resume. A server that does not answer does not.
func (o regionOperator) pause(at, other *region) {
	for _, m := range at.machines {
		_, _ = o.ask(m, "PAUSE", other.name)
	}
}

// resume lets all regions read the others again. It returns an error unless they do.
func (o regionOperator) resume() (err error) {
	for _, at := range o.s.living() {
		all, failed := o.readers(at)
		err = errors.Join(err, failed)
		for m, st := range all {
			for _, p := range st.Peers {
				if p.Paused {
					_, failed := o.ask(m, "RESUME", p.Name)
					err = errors.Join(err, failed)
				}
			}
		}
	}
	return err
}

// verify compares a region with the others. It fails the world if they differ, and returns what
// could not be compared.
func (o regionOperator) verify(at *region) error {
	all, err := o.readers(at)
	if err != nil {
		return err
	}
	for m := range all {
		text, failed := o.ask(m, "VERIFY")
		if failed != nil {
			return failed
		}
		var found []regions.Verdict
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			return err
		}
		for _, v := range found {
			if v.Error == "" {
				o.s.w.Fail("%s: slots %d to %d differ from those of %s", at, v.First, v.Last, v.Region)
			}
			err = errors.Join(err, errors.New(v.Error))
		}
	}
	return err
}

// well returns what is wrong in a region.
func (o regionOperator) well(at *region) error {
	all, err := o.readers(at)
	for m, st := range all {
		if len(st.Ills) > 0 || st.Operations.Owed+st.Operations.Unchecked > 0 {
			err = errors.Join(err, fmt.Errorf("machine %d: %q %+v", m.Index(), st.Ills, st.Operations))
		}
	}
	return err
}

// drain lets a region refuse writes until the others have all that it has done, and reports whether they
// have.
func (o regionOperator) drain(r *region) (drained bool) {
	told := make(map[*Machine]map[uint16]uint64)
	return o.insist(fmt.Sprint("the others have all of ", r), func() error {
		all, err := o.readers(r)
		if err != nil {
			return err
		}
		ends := make(map[uint16]uint64)
		for m, st := range all {
			if !st.Leaving || told[m] == nil {
				text, err := o.ask(m, "LEAVE", "YES")
				var all map[uint16]uint64
				if err == nil {
					err = json.Unmarshal([]byte(text), &all)
				}
				if err != nil {
					return err
				}
				told[m] = all
			}
			for p, end := range told[m] {
				ends[p] = end
			}
		}
		for _, at := range o.s.but(r) {
			if err := o.behind(at, r, ends); err != nil {
				return err
			}
		}
		return nil
	})
}

// behind returns an error unless a region has taken another one's log up to some sequences.
func (o regionOperator) behind(at, other *region, ends map[uint16]uint64) error {
	all, err := o.readers(at)
	if err != nil {
		return err
	}
	known := make(map[uint16]bool)
	for m, st := range all {
		for _, r := range st.Removals {
			if !r.Done {
				return fmt.Errorf("machine %d: the removal of %s is not done: %s", m.Index(), r.Name, r.State)
			}
		}
		for _, p := range st.Peers {
			if p.Name != other.name {
				continue
			}
			if !p.Connected || p.Paused || p.Failing || len(ends) != p.Partitions {
				return fmt.Errorf("machine %d does not read %s", m.Index(), other)
			}
			for _, r := range p.Ranges {
				known[r.Partition] = true
				if n := store.EntriesBetween(r.Taken, ends[r.Partition]); n > 0 {
					return fmt.Errorf("machine %d has not taken %d entries of %s", m.Index(), n, other)
				}
			}
		}
	}
	if len(known) < len(ends) {
		return fmt.Errorf("%s does not read all of %s", at, other)
	}
	return nil
}
