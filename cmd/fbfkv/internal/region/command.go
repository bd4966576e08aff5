// Package region is the command `fbfkv region`: it makes servers regions, which count the same
// counters, and looks after them. It speaks to their ports for clients, with the command REGION.
package region

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

const help = `Makes servers regions and looks after them. Regions count the same counters: each answers
alone, also while it cannot reach the others, and they exchange their operations, each of
which counts once. A region is for another data center; against the loss of a machine, see
fbfkv cluster.

A server is named by HOST:PORT, where clients reach it. Regions read each other at the
same port: at the address by which create or join named the server, unless its setting
region-announce names another one. If servers require passwords, a region logs in at the
others with region-user and region-password. Beyond the loopback, clients must show
certificates, or each region has a user for the others that may do nothing else:
ACL SETUSER peer on >PASSWORD +region.pull.

  fbfkv region create eu.example.com:6379 eu
  fbfkv region join us.example.com:6379 us eu.example.com:6379
  fbfkv region status us.example.com:6379
  fbfkv region remove us.example.com:6379 eu --heir us   (when eu is lost or no longer needed)

The user needs permission to run REGION. Set the password in the environment variable
` + connect.PasswordVariable + `, as for redis-cli: there, other users cannot see it.`

// operator is one run of a subcommand.
type operator struct{ *operate.Operator }

// server is a server of a region.
type server = operate.Server

// run makes a subcommand's function of one for an operator of regions.
func run(do func(o *operator, args []string) error) func(*operate.Operator, []string) error {
	return func(o *operate.Operator, args []string) error { return do(&operator{o}, args) }
}

// New returns the command with its subcommands.
func New() *cobra.Command {
	return operate.Command{Name: "region", Short: "make servers regions that count the same counters",
		Long: help, Patience: "a region", Subcommands: []operate.Subcommand{createCommand, joinCommand,
			statusCommand(), removeCommand(), flushCommand(), pauseCommand, resumeCommand,
			verifyCommand, conflictsCommand}}.New()
}

// status asks a server how its region is doing; of a cluster, by the leaders of all shards.
func (o *operator) status(addr string) (*server, regions.NodeStatus, error) {
	s, st, leaders, err := o.readers(addr)
	if err != nil || !st.Member || len(st.Shards) == 0 {
		return s, st, err
	}
	all := make([]regions.NodeStatus, len(leaders))
	for i, leader := range leaders {
		if all[i], err = statusOf(leader); err != nil {
			return s, st, err
		}
	}
	return s, merged(st, all), nil
}

// statusOf is how one server is doing, be it all of a region or not.
func statusOf(s *server) (st regions.NodeStatus, err error) {
	err = s.AskJSON(&st, "REGION", "STATUS")
	return st, err
}

// region is status of a server that must be a region.
func (o *operator) region(addr string) (s *server, st regions.NodeStatus, err error) {
	if s, st, err = o.status(addr); err == nil && !st.Member {
		err = fmt.Errorf("%s is not a region: fbfkv region create makes it the first one, fbfkv region "+
			"join adds it to others", addr)
	}
	return s, st, err
}

// decide has the region that decides carry out a subcommand, whichever is asked first, and
// returns it, and its answer.
func (o *operator) decide(s *server, args ...any) (*server, string, error) {
	for range 3 {
		text, err := s.Ask("REGION", args...)
		var said operate.Refusal
		errors.As(err, &said)
		decides, _ := said.Elsewhere()
		if decides == "" {
			return s, text, err
		}
		refused := err
		if s, err = o.Server(decides); err == nil {
			_, err = s.Ask("REGION", "MEMBERS")
		}
		if err != nil {
			return nil, "", fmt.Errorf("%v; it cannot be asked from here: %w", refused, err)
		}
	}
	return nil, "",
		fmt.Errorf("%s: the regions do not agree yet which of them decides; run the command again", s.Addr)
}

// members are those that a region knows.
func (o *operator) members(s *server) (set store.RegionSet, err error) {
	return o.change(s, "MEMBERS")
}

// change is decide if the answer is the members.
func (o *operator) change(s *server, args ...any) (set store.RegionSet, err error) {
	s, text, err := o.decide(s, args...)
	if err != nil {
		return set, err
	}
	if set, err = store.DecodeRegionSet([]byte(text)); err != nil {
		err = fmt.Errorf("%s does not answer with the regions: %w", s.Addr, err)
	}
	return set, err
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
