// Package region is the command `fbfkv region`: it makes servers regions, which count the same
// counters, and looks after them. It speaks to their ports for clients, with the command REGION.
package region

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

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

// answerTime bounds a command. REGION ADMIT connects to the newcomer.
const answerTime = 15 * time.Second

// operator is one run of a subcommand.
type operator struct {
	*operate.Operator
	servers map[string]*server // by HOST:PORT
}

// New returns the command with its subcommands.
func New() *cobra.Command {
	c := operate.Command{Name: "region", Short: "make servers regions that count the same counters",
		Long: help, Patience: "a region"}
	for _, s := range []subcommand{createCommand, joinCommand, statusCommand(), removeCommand(),
		flushCommand(), pauseCommand, resumeCommand, verifyCommand} {
		c.Subcommands = append(c.Subcommands, operate.Subcommand{
			Use: s.use, Short: s.short, Long: s.long, Args: s.args, Flags: s.flags,
			Run: func(base *operate.Operator, args []string) error {
				o := &operator{base, map[string]*server{}}
				defer o.close()
				return s.run(o, args)
			},
		})
	}
	return c.New()
}

// subcommand is one of the commands.
type subcommand struct {
	use, short, long string
	args             cobra.PositionalArgs
	flags            func(cmd *cobra.Command)
	run              func(o *operator, args []string) error
}

// server is a server, by its port for clients.
type server struct {
	addr   string
	client *connect.Client
}

// server returns the server at HOST:PORT.
func (o *operator) server(addr string) (*server, error) {
	if s := o.servers[addr]; s != nil {
		return s, nil
	}
	client, err := o.Server.Client(addr, answerTime)
	if err != nil {
		return nil, err
	}
	o.servers[addr] = &server{addr, client}
	return o.servers[addr], nil
}

func (o *operator) close() {
	for _, s := range o.servers {
		s.client.Close()
	}
}

// askError is the answer of a region that cannot do it, and names the one that can.
type askError struct{ addr, text string }

func (e askError) Error() string { return e.text }

// do carries out a subcommand of REGION. An error says which server it is about.
func (s *server) do(args ...any) (string, error) {
	text, err := s.client.Do(context.Background(), append([]any{"REGION"}, args...)...).Text()
	if err == nil {
		return text, nil
	}
	if explained := connect.Explain(s.addr, "REGION", err); explained != nil {
		return "", explained
	}
	said := strings.TrimPrefix(err.Error(), "ERR ")
	if to, ok := strings.CutPrefix(said, "ASK "); ok {
		to, said, _ = strings.Cut(to, " ")
		return "", askError{to, fmt.Sprintf("%s: %s", s.addr, said)}
	}
	return "", fmt.Errorf("%s: %s", s.addr, said)
}

// status asks a server how its region is doing; of a cluster, by the leaders of all shards.
func (o *operator) status(addr string) (*server, regions.NodeStatus, error) {
	s, st, leaders, err := o.readers(addr)
	if err != nil || !st.Member || len(st.Shards) == 0 {
		return s, st, err
	}
	all := make([]regions.NodeStatus, len(leaders))
	for i, leader := range leaders {
		if all[i], err = leader.status(); err != nil {
			return s, st, err
		}
	}
	return s, merged(st, all), nil
}

// status is how one server is doing, be it all of a region or not.
func (s *server) status() (st regions.NodeStatus, err error) {
	text, err := s.do("STATUS")
	if err == nil {
		if err = json.Unmarshal([]byte(text), &st); err != nil {
			err = fmt.Errorf("%s does not answer with a status: %w", s.addr, err)
		}
	}
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
		text, err := s.do(args...)
		ask, ok := err.(askError)
		if !ok {
			return s, text, err
		}
		if s, err = o.server(ask.addr); err == nil {
			_, err = s.do("MEMBERS")
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s; it cannot be asked from here: %w", ask.text, err)
		}
	}
	return nil, "",
		fmt.Errorf("%s: the regions do not agree yet which of them decides; run the command again", s.addr)
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
		err = fmt.Errorf("%s does not answer with the regions: %w", s.addr, err)
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
