package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
)

// underWay is longer than anything that was sent can be under way once all faults have ended.
const underWay = 20 * time.Second

// flush deletes everything, while a fault strikes. The clients then begin anew, and use the same
// keys and opids: nothing must be left of the former ones.
func (c *clusterWorld) flush() {
	c.rest()
	time.Sleep(underWay)
	if c.w.Failure() != "" {
		return
	}
	c.w.Say("everything is to be deleted")
	was := c.load.Facts()
	c.nemesis.Strike()
	a, flushed := c.administrator(), make(map[string]bool)
	a.insist("everything is deleted", func() error {
		config, err := a.configuration()
		if err != nil {
			return err
		}
		for _, m := range c.machines {
			if at := config.At(m.Address(clientPort)); at != nil && !flushed[at.Shard] {
				_, refused := a.client.Do(m.Address(clientPort), time.Second, "FLUSHALL")
				flushed[at.Shard] = refused == nil
			}
		}
		return missing(config, flushed)
	})
	c.w.Soothe()
	time.Sleep(underWay)
	var gone []Fact
	for _, f := range was {
		switch f.Query[0] {
		case "CGET":
			gone = append(gone, Fact{f.Query, "<nil>"})
		case "CHELD":
			gone = append(gone, Fact{f.Query, "[0 0 0 0]"})
		}
	}
	for _, m := range c.machines {
		c.w.compare(m, gone)
	}
	c.load = c.load.anew()
	c.follower.run()
	c.work()
}

// missing returns an error unless all shards are in a set.
func missing(config cluster.Configuration, in map[string]bool) (err error) {
	for _, s := range config.Shards {
		if !in[s.ID] {
			err = errors.Join(err, fmt.Errorf("not in shard %s", s.ID))
		}
	}
	return err
}

// flush deletes everything in all regions, while a fault strikes. Clients then begin anew, as in a cluster.
func (s *regionsWorld) flush() {
	s.rest()
	time.Sleep(underWay)
	if s.w.Failure() != "" {
		return
	}
	s.w.Say("everything is to be deleted in all regions")
	s.nemesis.Strike()
	o, era := s.operator(), uint64(0)
	o.insist("everything is deleted", func() error {
		all := s.living()
		_, err := o.decide(all[s.w.Intn(len(all))], "FLUSH")
		return err
	})
	s.w.Soothe()
	time.Sleep(underWay)
	s.await(time.Minute, "all regions begin an era", func() error {
		eras := make(map[uint64]bool)
		for _, r := range s.living() {
			for _, m := range r.machines {
				st, err := o.status(m)
				if err != nil {
					return err
				}
				eras[st.Era], era = true, st.Era
			}
		}
		if len(eras) > 1 || era == 0 {
			return fmt.Errorf("they are in %v", slices.Sorted(maps.Keys(eras)))
		}
		return nil
	})
	var gone []Fact
	for key := range s.history.Totals() {
		gone = append(gone, Fact{[]string{"CGET", key}, "<nil>"})
	}
	for _, r := range s.living() {
		for _, f := range r.load.Facts() {
			if f.Query[0] == "CGET" {
				gone = append(gone, Fact{f.Query, "<nil>"})
			}
		}
	}
	for _, r := range s.living() {
		for _, m := range r.machines {
			s.w.compare(m, gone)
		}
		r.load = r.load.anew()
	}
	s.history, s.left = NewRegionHistory(s.w), nil
	clear(s.drainers)
	s.work()
}
