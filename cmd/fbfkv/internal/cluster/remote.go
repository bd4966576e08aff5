package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

// remote is a node, by its port for clients.
type remote struct{ *operate.Server }

// remote returns the node at HOST:PORT.
func (o *operator) remote(addr string) (remote, error) {
	s, err := o.Server(addr)
	return remote{s}, err
}

// do asks the node to carry out a verb. An error says which node it is about.
func (n remote) do(verb string, request, answer any) error {
	body, err := json.Marshal(request)
	if err == nil {
		err = n.AskJSON(answer, "CLUSTER FBFKV", verb, body)
	}
	if connect.IsNoCluster(err) {
		return fmt.Errorf("%s was started without a cluster: start it with --cluster-enabled yes", n.Addr)
	}
	return err
}

// info asks a node what it is.
func (o *operator) info(addr string) (info nodes.Info, err error) {
	n, err := o.remote(addr)
	if err != nil {
		return info, err
	}
	return info, n.do(nodes.VerbInfo, struct{}{}, &info)
}

// asked is a node that was asked what it is.
type asked struct {
	addr string
	node remote
	nodes.Info
	err error
}

// survey asks nodes at the same time. The order stays.
func (o *operator) survey(addrs []string) []asked {
	all := make([]asked, len(addrs))
	var wait sync.WaitGroup
	for i, addr := range addrs {
		a := &all[i]
		a.addr = addr
		if a.node, a.err = o.remote(addr); a.err == nil {
			wait.Go(func() { a.err = a.node.do(nodes.VerbInfo, struct{}{}, &a.Info) })
		}
	}
	wait.Wait()
	return all
}

// openingTime is how long a node may take to open its directory again, about.
const openingTime = 3 * time.Second

// surveyAll is survey for nodes that must all answer. They may be opening their directories.
func (o *operator) surveyAll(addrs []string) (all []asked, err error) {
	err = operate.Watch(min(openingTime, o.Patience), func() (left error, _ bool, err error) {
		all = o.survey(addrs)
		left = errors.Join(problems(all)...)
		if slices.ContainsFunc(all, func(a asked) bool { return a.err != nil && !operate.Transient(a.err) }) {
			err = left
		}
		return left, false, err
	})
	return all, err
}

// reach is where we reach a member.
func (o *operator) reach(m nodes.Member) string {
	if o.Login.TLS() && m.TLSPort != 0 {
		return net.JoinHostPort(m.Host, strconv.Itoa(m.TLSPort))
	}
	return m.Address()
}

// addresses are where we reach members.
func (o *operator) addresses(members []nodes.Member) (all []string) {
	for _, m := range members {
		all = append(all, o.reach(m))
	}
	return all
}

// member asks any node of a cluster for the configuration, and the nodes that it names
// whether they know a newer one.
func (o *operator) member(addr string) (*nodes.Configuration, error) {
	info, err := o.info(addr)
	switch {
	case err != nil:
		return nil, err
	case info.Configuration == nil:
		return nil, fmt.Errorf("%s belongs to no cluster: fbfkv cluster create makes one", addr)
	}
	refresh(info.Configuration, o.survey(o.addresses(info.Configuration.Members))...)
	return info.Configuration, nil
}

// refresh makes c the newest configuration of the cluster that nodes have answered with, if that is newer.
func refresh(c *nodes.Configuration, all ...asked) {
	for _, a := range all {
		if a.err == nil && a.Cluster == c.Cluster && a.Configuration.Version > c.Version {
			*c = *a.Configuration
		}
	}
}

// leader waits for a leader of a shard that decides, and returns it with its answer. It brings c up to date
// meanwhile: a node that has joined since c was read may lead.
func (o *operator) leader(c *nodes.Configuration, shard string) (n remote, info nodes.Info, err error) {
	err = o.Wait("a leader", func() (bool, error) {
		all := o.survey(o.addresses(c.Of(shard)))
		refresh(c, all...)
		found := leading(c, all)
		if found == nil {
			return false, errors.Join(problems(all)...)
		}
		n, info = found.node, found.Info
		return true, nil
	})
	return n, info, err
}

// leading returns the node of a shard that leads it and decides, nil if there is none.
func leading(c *nodes.Configuration, shard []asked) (leads *asked) {
	for i, a := range shard {
		if a.err == nil && a.Cluster == c.Cluster && a.State != nil && a.State.Ready &&
			(leads == nil || a.State.Term > leads.State.Term) {
			leads = &shard[i]
		}
	}
	return leads
}

// problems are the errors of the nodes that did not answer.
func problems(all []asked) (errs []error) {
	for _, a := range all {
		if a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errs
}

// change asks whoever leads a shard to carry out a verb, until it has.
func (o *operator) change(c *nodes.Configuration, shard, verb string, request, answer any) error {
	return o.Wait("the leader to "+verb, func() (bool, error) {
		leader, _, err := o.leader(c, shard)
		if err != nil {
			return false, err
		}
		return true, leader.do(verb, request, answer)
	})
}

// settle waits until those vote in the meta group who are to: until then the cluster may survive less than
// it is said to.
func (o *operator) settle(existing string) error {
	return o.Wait("the meta group", func() (bool, error) {
		c, err := o.member(existing)
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(o.survey(o.addresses(c.Members)), func(a asked) bool {
			return a.err == nil && a.Cluster == c.Cluster && a.Meta.Settled &&
				a.Configuration.Version >= c.Version
		}), nil
	})
}

// configure asks any member to carry out a verb that changes the configuration, until one has.
func (o *operator) configure(c *nodes.Configuration, verb string, request any) error {
	return o.Wait("the cluster to "+verb, func() (bool, error) {
		var failed error
		for _, a := range o.survey(o.addresses(c.Members)) {
			if a.err != nil || a.Cluster != c.Cluster {
				failed = errors.Join(failed, a.err)
				continue
			}
			if failed = a.node.do(verb, request, nil); failed == nil || !operate.Transient(failed) {
				return true, failed
			}
		}
		return false, failed
	})
}
