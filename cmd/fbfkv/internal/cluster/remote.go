package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

// answerTime bounds a verb. A node that is asked to join asks others.
const answerTime = 15 * time.Second

// remote is a node, by its port for clients. It is connected when it is first asked, and
// again after it was restarted. Safe for concurrent use.
type remote struct {
	addr   string
	client *connect.Client
}

// remote returns the node at HOST:PORT.
func (o *operator) remote(addr string) (*remote, error) {
	if n := o.nodes[addr]; n != nil {
		return n, nil
	}
	client, err := o.Server.Client(addr, answerTime)
	if err != nil {
		return nil, err
	}
	o.nodes[addr] = &remote{addr: addr, client: client}
	return o.nodes[addr], nil
}

// close closes the connections.
func (o *operator) close() {
	for _, n := range o.nodes {
		n.client.Close()
	}
}

// do asks the node to carry out a verb. An error says which node it is about.
func (n *remote) do(verb string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	text, err := n.client.Do(context.Background(), "CLUSTER", "FBFKV", verb, body).Text()
	if err != nil {
		return n.explain(err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		return fmt.Errorf("%s does not answer %s as expected: %w", n.addr, verb, err)
	}
	return nil
}

// explain says what an error of the node's means.
func (n *remote) explain(err error) error {
	if explained := connect.Explain(n.addr, "CLUSTER FBFKV", err); explained != nil {
		return explained
	}
	if strings.Contains(err.Error(), "cluster support disabled") {
		return fmt.Errorf("%s was started without a cluster: start it with --cluster-enabled yes", n.addr)
	}
	text := strings.TrimPrefix(err.Error(), "ERR ")
	return fmt.Errorf("%s: %w", n.addr, refusal{text})
}

// refusal is what a node answered instead of doing what it was asked.
type refusal struct{ text string }

// Error is the node's text.
func (r refusal) Error() string { return strings.TrimPrefix(r.text, nodes.TryAgain+" ") }

// transient reports whether a second attempt may go well: the node cannot be reached, does
// not lead any more, or is about to.
func transient(err error) bool {
	var gone connect.Unreachable
	var said refusal
	return errors.As(err, &gone) || errors.As(err, &said) && strings.HasPrefix(said.text, nodes.TryAgain)
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
	nodes.Info
	err error
}

// survey asks nodes at the same time. The order stays.
func (o *operator) survey(addrs []string) []asked {
	all := make([]asked, len(addrs))
	var wait sync.WaitGroup
	for i, addr := range addrs {
		all[i].addr = addr
		n, err := o.remote(addr)
		if err != nil {
			all[i].err = err
			continue
		}
		wait.Go(func() { all[i].err = n.do(nodes.VerbInfo, struct{}{}, &all[i].Info) })
	}
	wait.Wait()
	return all
}

// openingTime is how long a node may take to open its directory again, about.
const openingTime = 3 * time.Second

// surveyAll is survey for nodes that must all answer. They may be opening their directories.
func (o *operator) surveyAll(addrs []string) ([]asked, error) {
	for end := time.Now().Add(min(openingTime, o.Patience)); ; time.Sleep(operate.RetryPeriod) {
		all := o.survey(addrs)
		err := errors.Join(problems(all)...)
		if err == nil || time.Now().After(end) ||
			slices.ContainsFunc(all, func(a asked) bool { return a.err != nil && !transient(a.err) }) {
			return all, err
		}
	}
}

// reach is where we reach a member.
func (o *operator) reach(m nodes.Member) string {
	if o.Server.TLS() && m.TLSPort != 0 {
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

// wait is Operator.Wait.
func (o *operator) wait(what string, done func() (bool, error)) error {
	return o.Operator.Wait(what, transient, done)
}

// leader waits for a leader of a shard that decides, and returns it with its answer. It brings c up to date
// meanwhile: a node that has joined since c was read may lead.
func (o *operator) leader(c *nodes.Configuration, shard string) (n *remote, info nodes.Info, err error) {
	err = o.wait("a leader", func() (bool, error) {
		all := o.survey(o.addresses(c.Of(shard)))
		refresh(c, all...)
		found := leading(c, all)
		if found == nil {
			return false, errors.Join(problems(all)...)
		}
		n, info = o.nodes[found.addr], found.Info
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
	return o.wait("the leader to "+verb, func() (bool, error) {
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
	return o.wait("the meta group", func() (bool, error) {
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
	return o.wait("the cluster to "+verb, func() (bool, error) {
		var failed error
		for _, a := range o.survey(o.addresses(c.Members)) {
			if a.err != nil || a.Cluster != c.Cluster {
				failed = errors.Join(failed, a.err)
				continue
			}
			if failed = o.nodes[a.addr].do(verb, request, nil); failed == nil || !transient(failed) {
				return true, failed
			}
		}
		return false, failed
	})
}
