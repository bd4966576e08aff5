package cluster

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/store"
)

// FormatLevel is the newest level of entries, files and configurations that this program
// reads. A cluster is at a level that the programs of all its members read (Configuration.Format), and
// rises when the last of them has been upgraded (Meta). Anything that is new at level n, also a
// field of the configuration, is written only by a cluster at level n.
const FormatLevel = 1

// Limits of a configuration.
const (
	// MaxMembers bounds the nodes of a cluster.
	MaxMembers = 64
	// maxConfiguration bounds the bytes of an encoded one, maxTables those of its tables.
	maxConfiguration = raftgroup.MaxContent
	maxTables        = 64 << 10
	maxPartitions    = 1024
	maxHost          = 253
	maxLevel         = 1<<16 - 1 // the handshake has two bytes
	idDigits         = 40
)

// ErrNewerLevel: a configuration is of a level that only a later program reads.
var ErrNewerLevel = errors.New("the cluster is at a newer format level than this program reads: start " +
	"this node with a newer program")

// ErrInvalid: a configuration breaks a rule.
var ErrInvalid = errors.New("invalid cluster configuration")

// Configuration is what all nodes of a cluster agree on: the state of the meta group (Meta), of
// which each change makes the next version. It is not changed in place. Its encoding is
// canonical JSON: one text for one value.
type Configuration struct {
	// Version counts the changes: 1 for a new cluster.
	Version uint64 `json:"version"`
	// Cluster is the cluster's id, 40 hex digits.
	Cluster string `json:"cluster"`
	// Format is the level of what the nodes write: at most the Level of any member. It never falls.
	Format int `json:"format"`
	// Seed keys the hashes of all nodes. Clients must not learn it, so it is zeros in what an
	// administrator is shown.
	Seed Seed `json:"seed,omitzero"`
	// Partitions is a power of two, 1..1024; it never changes.
	Partitions int `json:"partitions"`
	// Shards have all partitions among them, in the order in which they came. One may have none.
	Shards []Shard `json:"shards"`
	// Moves are the partitions on their way, in the order in which they were asked for.
	Moves []Move `json:"moves,omitempty"`
	// Members are the nodes, in the order in which they came.
	Members []Member `json:"members"`
	// Tables are the tables, the same in all shards.
	Tables Tables `json:"tables"`
	// Regions is the group of regions to which the cluster belongs; nil: it is no region.
	Regions *store.RegionSet `json:"regions,omitempty"`
}

// Shard says which partitions a group of nodes replicates.
type Shard struct {
	// ID is 40 hex digits.
	ID string `json:"id"`
	// Epoch counts how often its partitions have changed.
	Epoch uint64 `json:"epoch"`
	// Founder is the node that began the shard, alone; "": none has yet. No other node ever
	// begins it: it would be another one with the same partitions.
	Founder string `json:"founder"`
	// Partitions are those that it has: ranges in ascending order that do not touch.
	Partitions []Range `json:"partitions,omitempty"`
}

// Range is a range of partitions, both ends included.
type Range struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Slots returns the first and the last of the hash slots of a range of partitions.
func (c Configuration) Slots(r Range) (first, last int) {
	each := slots / c.Partitions
	return r.First * each, (r.Last+1)*each - 1
}

// slots is how many hash slots there are.
const slots = 16384

// Move is a partition on its way from one shard to another (move.go).
type Move struct {
	Partition int    `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
	// Epoch is the version of the configuration that noted it: it tells the move from an earlier
	// one, and is the number under which the partition is held (store.HandOver).
	Epoch uint64 `json:"epoch"`
}

// Has reports whether the shard has a partition.
func (s Shard) Has(partition int) bool {
	return slices.ContainsFunc(s.Partitions, func(r Range) bool {
		return r.First <= partition && partition <= r.Last
	})
}

// Count is how many partitions the shard has.
func (s Shard) Count() (n int) {
	for _, r := range s.Partitions {
		n += r.Last - r.First + 1
	}
	return n
}

func (s Shard) equal(o Shard) bool {
	return s.ID == o.ID && s.Epoch == o.Epoch && s.Founder == o.Founder &&
		slices.Equal(s.Partitions, o.Partitions)
}

// set gives the shard a partition or takes it.
func (s *Shard) set(partition int, has bool) {
	var all []int
	for _, r := range s.Partitions {
		for p := r.First; p <= r.Last; p++ {
			if p != partition {
				all = append(all, p)
			}
		}
	}
	if has {
		all = append(all, partition)
		slices.Sort(all)
	}
	s.Partitions = Ranges(all)
	s.Epoch++
}

// Ranges returns ascending partitions as ranges.
func Ranges(partitions []int) (ranges []Range) {
	for _, p := range partitions {
		if last := len(ranges) - 1; last >= 0 && ranges[last].Last == p-1 {
			ranges[last].Last = p
		} else {
			ranges = append(ranges, Range{p, p})
		}
	}
	return ranges
}

// Owner returns the shard that has a partition, nil if there is no such partition.
func (c *Configuration) Owner(partition int) *Shard {
	if i := slices.IndexFunc(c.Shards, func(s Shard) bool { return s.Has(partition) }); i >= 0 {
		return &c.Shards[i]
	}
	return nil
}

// Move returns the move of a partition, nil if it does not move.
func (c *Configuration) Move(partition int) *Move {
	if i := slices.IndexFunc(c.Moves, func(m Move) bool { return m.Partition == partition }); i >= 0 {
		return &c.Moves[i]
	}
	return nil
}

// Divide divides partitions evenly among shards that begin: in ranges, the larger ones first.
func Divide(partitions int, ids ...string) (shards []Shard) {
	next := 0
	for i, id := range ids {
		last := (partitions*(i+1)+len(ids)-1)/len(ids) - 1
		shards = append(shards, Shard{ID: id, Epoch: 1, Partitions: []Range{{next, last}}})
		next = last + 1
	}
	return shards
}

// Member is one node.
type Member struct {
	// ID was drawn with the node's data directory, 40 hex digits. Raft knows the node by it.
	ID string `json:"id"`
	// Shard is the id of the one that the node replicates.
	Shard string `json:"shard"`
	// Host is where clients and nodes reach it: an address or a name.
	Host string `json:"host"`
	// Port and TLSPort are for clients; 0: none. One of them is there.
	Port    int `json:"port"`
	TLSPort int `json:"tlsPort"`
	// ClusterPort is for the other nodes.
	ClusterPort int `json:"clusterPort"`
	// Hostname is an additional name, for clients that verify certificates; "" if none.
	Hostname string `json:"hostname"`
	// Voter is false until the node has caught up: until then it counts for no majority.
	Voter bool `json:"voter"`
	// Level is the FormatLevel of its program, 1..65535, as the node itself says.
	Level int `json:"level"`
}

// Seed is a hash seed, written as hex digits.
type Seed [16]byte

// MarshalText writes 32 hex digits.
func (s Seed) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads them.
func (s *Seed) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(s) {
		return invalid("a hash seed has %d hex digits", 2*len(s))
	}
	_, err := hex.Decode(s[:], b)
	return err
}

// ClusterAddress is the host and port of the node's cluster port, and its address in Raft.
func (m Member) ClusterAddress() string {
	return net.JoinHostPort(m.Host, strconv.Itoa(m.ClusterPort))
}

// Address is the host and port for clients, of plain connections if it has those.
func (m Member) Address() string {
	port := m.Port
	if port == 0 {
		port = m.TLSPort
	}
	return net.JoinHostPort(m.Host, strconv.Itoa(port))
}

// answersAt reports whether clients reach the node at host and port.
func (m Member) answersAt(address string) bool {
	for _, host := range []string{m.Host, m.Hostname} {
		for _, port := range []int{m.Port, m.TLSPort} {
			if host != "" && port != 0 && address == net.JoinHostPort(host, strconv.Itoa(port)) {
				return true
			}
		}
	}
	return false
}

// Member returns the member with an id, nil if there is none.
func (c *Configuration) Member(id string) *Member {
	return c.find(func(m Member) bool { return m.ID == id })
}

// At returns the member that clients reach at HOST:PORT, nil if there is none.
func (c *Configuration) At(address string) *Member {
	return c.find(func(m Member) bool { return m.answersAt(address) })
}

// Shard returns the shard with an id, nil if there is none.
func (c *Configuration) Shard(id string) *Shard {
	if i := slices.IndexFunc(c.Shards, func(s Shard) bool { return s.ID == id }); i >= 0 {
		return &c.Shards[i]
	}
	return nil
}

// Of returns the members of a shard, in their order.
func (c *Configuration) Of(shard string) (members []Member) {
	for _, m := range c.Members {
		if m.Shard == shard {
			members = append(members, m)
		}
	}
	return members
}

// First returns the member that is meant to lead a shard, the first one that votes; nil if there is none.
func (c *Configuration) First(shard string) *Member {
	return c.find(func(m Member) bool { return m.Voter && m.Shard == shard })
}

func (c *Configuration) find(is func(Member) bool) *Member {
	if i := slices.IndexFunc(c.Members, is); i >= 0 {
		return &c.Members[i]
	}
	return nil
}

// Voters counts the members of a shard whose vote counts.
func (c *Configuration) Voters(shard string) (n int) {
	for _, m := range c.Members {
		if m.Voter && m.Shard == shard {
			n++
		}
	}
	return n
}

// rise brings the cluster to the newest format level that all members read, and the program that does it,
// which reads up to level.
func (c *Configuration) rise(level int) {
	for _, m := range c.Members {
		level = min(level, m.Level)
	}
	c.Format = max(c.Format, level)
}

// Public returns the configuration without the seed, which clients must not learn.
func (c Configuration) Public() Configuration {
	c.Seed = Seed{}
	return c
}

// Encode returns the bytes of a valid configuration.
func (c Configuration) Encode() ([]byte, error) {
	if err := c.rules(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(c)
	if err == nil && len(b) > maxConfiguration {
		err = invalid("it has %d bytes", len(b))
	}
	return b, err
}

// Valid checks every rule: nil or ErrInvalid.
func (c Configuration) Valid() error {
	_, err := c.Encode()
	return err
}

// DecodeConfiguration reads what Encode wrote: ErrNewerLevel, or ErrInvalid for anything
// else than the canonical bytes of a valid configuration.
func DecodeConfiguration(b []byte) (c Configuration, err error) {
	return decodeConfiguration(b, FormatLevel)
}

// decodeConfiguration reads a configuration as a program does that reads up to a level.
func decodeConfiguration(b []byte, newest int) (c Configuration, err error) {
	if len(b) > maxConfiguration {
		return c, fmt.Errorf("%w: it has %d bytes", ErrInvalid, len(b))
	}
	var level struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &level); err == nil && level.Format > newest {
		return c, fmt.Errorf("%w (level %d; this one reads up to %d)", ErrNewerLevel, level.Format, newest)
	}
	if err := wire.Decode(b, &c); err != nil {
		return Configuration{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	canonical, err := c.Encode()
	if err != nil {
		return Configuration{}, err
	}
	if !bytes.Equal(canonical, b) {
		return Configuration{}, fmt.Errorf("%w: it is not in its canonical form", ErrInvalid)
	}
	return c, nil
}

// Changed returns the next version, which fn makes of a copy, or c itself if fn changes
// nothing. What a cluster fixes at its creation stays. Errors of fn and ErrInvalid.
func (c Configuration) Changed(fn func(*Configuration) error) (Configuration, error) {
	next := c
	next.Shards, next.Moves, next.Members = slices.Clone(c.Shards), slices.Clone(c.Moves),
		slices.Clone(c.Members)
	next.Tables.Set, next.Tables.Next = slices.Clone(c.Tables.Set), slices.Clone(c.Tables.Next)
	for i := range next.Shards {
		next.Shards[i].Partitions = slices.Clone(next.Shards[i].Partitions)
	}
	if err := fn(&next); err != nil {
		return c, err
	}
	if next.equal(c) {
		return c, nil
	}
	next.Version = c.Version + 1
	if err := next.Follows(c); err != nil {
		return c, err
	}
	return next, nil
}

// Follows reports whether c may take the place of an older version: nil, or ErrInvalid.
func (c Configuration) Follows(old Configuration) error {
	switch {
	case c.Version != old.Version+1:
		return invalid("version %d follows version %d", c.Version, old.Version)
	case c.Cluster != old.Cluster || c.Seed != old.Seed || c.Partitions != old.Partitions:
		return invalid("the cluster's id, hash seed and partitions never change")
	case c.Format < old.Format:
		return invalid("the format level falls from %d to %d", old.Format, c.Format)
	}
	return cmp.Or(c.Tables.follows(old.Tables, old.Regions.Shared()), c.regionsFollow(old), c.Valid())
}

func (c Configuration) equal(o Configuration) bool {
	return c.Version == o.Version && c.Cluster == o.Cluster && c.Format == o.Format && c.Seed == o.Seed &&
		c.Partitions == o.Partitions && slices.EqualFunc(c.Shards, o.Shards, Shard.equal) &&
		slices.Equal(c.Moves, o.Moves) &&
		slices.Equal(c.Members, o.Members) && c.Tables.equal(o.Tables) && sameRegions(c.Regions, o.Regions)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// rules checks all but its size.
func (c Configuration) rules() error {
	switch {
	case c.Version == 0:
		return invalid("its version is 0")
	case !validID(c.Cluster):
		return invalid("the cluster's id %.50q is not 40 hex digits", c.Cluster)
	case c.Format < 1:
		return invalid("format level %d", c.Format)
	case c.Seed == Seed{}:
		return invalid("it has no hash seed")
	case !validPartitions(c.Partitions):
		return invalid("%d partitions: not a power of two up to %d", c.Partitions, maxPartitions)
	case len(c.Shards) > MaxMembers:
		return invalid("%d shards, more than %d", len(c.Shards), MaxMembers)
	case len(c.Members) > MaxMembers:
		return invalid("%d nodes, more than %d", len(c.Members), MaxMembers)
	case len(c.Members) == 0:
		return invalid("it has no nodes")
	}
	if len(c.Tables.Next) > 0 && len(c.Moves) > 0 {
		return invalid("SCALE, MIN or MAX of a table is being changed while partitions move")
	}
	if err := cmp.Or(c.Tables.valid(), c.validShards(), c.validRegions()); err != nil {
		return err
	}
	return c.validMembers()
}

// validShards checks that every partition is in one shard, and that every shard that has begun
// has somebody who can lead it.
func (c Configuration) validShards() error {
	taken := make([]bool, c.Partitions)
	for i, s := range c.Shards {
		switch {
		case !validID(s.ID):
			return invalid("a shard's id %.50q is not 40 hex digits", s.ID)
		case slices.ContainsFunc(c.Shards[:i], func(o Shard) bool { return o.ID == s.ID }):
			return invalid("two shards have the id %s", s.ID)
		case s.Founder != "" && !validID(s.Founder):
			return invalid("shard %s: its founder %.50q is not 40 hex digits", s.ID, s.Founder)
		case s.Founder != "" && c.Voters(s.ID) == 0:
			return invalid("shard %s: no node votes", s.ID)
		case s.Founder == "" && len(c.Of(s.ID)) > 0:
			return invalid("shard %s has nodes, and none has begun it", s.ID)
		}
		next := 0
		for _, r := range s.Partitions {
			if r.First < next || r.Last < r.First || r.Last >= c.Partitions {
				return invalid("shard %s: partitions %d to %d of %d", s.ID, r.First, r.Last, c.Partitions)
			}
			for p := r.First; p <= r.Last; p++ {
				if taken[p] {
					return invalid("partition %d is in two shards", p)
				}
				taken[p] = true
			}
			next = r.Last + 2
		}
	}
	if missing := slices.Index(taken, false); missing >= 0 {
		return invalid("partition %d is in no shard", missing)
	}
	return c.validMoves()
}

// validMoves checks that what moves is where it moves from, and that there is somebody to take it.
func (c Configuration) validMoves() error {
	for i, m := range c.Moves {
		from, to := c.Owner(m.Partition), c.Shard(m.To)
		switch {
		case from == nil || from.ID != m.From:
			return invalid("partition %d moves from the shard %.50q, which has it not", m.Partition, m.From)
		case to == nil || to.Founder == "" || to == from:
			return invalid("partition %d moves to %.50q, which is no other shard with nodes", m.Partition,
				m.To)
		case slices.ContainsFunc(c.Moves[:i], func(o Move) bool { return o.Partition == m.Partition }):
			return invalid("partition %d moves twice", m.Partition)
		case m.Epoch > c.Version:
			return invalid("the move of partition %d is of version %d, which is to come", m.Partition,
				m.Epoch)
		}
	}
	return nil
}

// validMembers checks each member, and that no two have anything in common that
// tells nodes apart.
func (c Configuration) validMembers() error {
	taken := map[string]string{}
	for _, m := range c.Members {
		if err := m.valid(); err != nil {
			return err
		}
		switch {
		case c.Shard(m.Shard) == nil:
			return invalid("node %s is in shard %.50q, which does not exist", m.ID, m.Shard)
		case m.Level < c.Format:
			return invalid("node %s reads format levels up to %d, and the cluster is at level %d: it "+
				"needs a newer program", m.ID, m.Level, c.Format)
		}
		for _, port := range []int{m.Port, m.TLSPort, m.ClusterPort} {
			address := net.JoinHostPort(m.Host, strconv.Itoa(port))
			if port != 0 && taken[address] != "" {
				return invalid("%s is an address of node %s and of node %s", address, taken[address], m.ID)
			}
			taken[address] = m.ID
		}
		if taken[m.ID] != "" {
			return invalid("two nodes have the id %s", m.ID)
		}
		taken[m.ID] = m.ID
	}
	return nil
}

// valid checks what concerns one member alone.
func (m Member) valid() error {
	switch {
	case !validID(m.ID):
		return invalid("a node's id %.50q is not 40 hex digits", m.ID)
	case !validHost(m.Host):
		return invalid("node %s: %.50q is neither an address nor a host's name", m.ID, m.Host)
	case m.Hostname != "" && !validName(m.Hostname):
		return invalid("node %s: %.50q is not a host's name", m.ID, m.Hostname)
	case m.Port == 0 && m.TLSPort == 0:
		return invalid("node %s has no port for clients", m.ID)
	case m.ClusterPort == 0:
		return invalid("node %s has no cluster port", m.ID)
	case m.Level < 1 || m.Level > maxLevel:
		return invalid("node %s reads format levels up to %d", m.ID, m.Level)
	}
	for _, port := range []int{m.Port, m.TLSPort, m.ClusterPort} {
		if port < 0 || port > 65535 {
			return invalid("node %s: %d is not a port", m.ID, port)
		}
	}
	return nil
}

// validPartitions reports whether data can be divided into so many.
func validPartitions(n int) bool { return n >= 1 && n <= maxPartitions && bits.OnesCount(uint(n)) == 1 }

// validID reports whether s is 40 hex digits, in lower case.
func validID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == idDigits && s == strings.ToLower(s)
}

// validHost reports whether s is an IP address that a peer can reach, or a host's name.
func validHost(s string) bool {
	if ip, err := netip.ParseAddr(s); err == nil {
		return !ip.IsUnspecified() && !ip.IsMulticast() && ip.String() == s
	}
	return validName(s)
}

// validName reports whether s can be a host's name. A valid name contains no separator of fields in
// a reply like CLUSTER NODES.
func validName(s string) bool {
	return s != "" && len(s) <= maxHost && s[0] != '-' && s[0] != '.' &&
		strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-._") == ""
}
