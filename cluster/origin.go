package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/persistence"
)

// Origin is what a backup says of the shard that it is of.
type Origin struct {
	// Cluster, Version, Format and Partitions come from the configuration at the time of the
	// backup.
	Cluster    string `json:"cluster"`
	Version    uint64 `json:"version"`
	Format     int    `json:"format"`
	Partitions int    `json:"partitions"`
	// Shards are all of the cluster, without their founders; Shard is the id of the one.
	Shards []Shard `json:"shards"`
	Shard  string  `json:"shard"`
	// Node is the id of the node whose directory was copied.
	Node string `json:"node"`
}

// originOf returns what a backup of a node is of.
func originOf(c Configuration, shard, node string) Origin {
	o := Origin{Cluster: c.Cluster, Version: c.Version, Format: c.Format, Partitions: c.Partitions,
		Shards: slices.Clone(c.Shards), Shard: shard, Node: node}
	for i := range o.Shards {
		o.Shards[i].Founder = ""
	}
	return o
}

// Of returns the shard that the backup is of.
func (o *Origin) Of() *Shard {
	i := slices.IndexFunc(o.Shards, func(s Shard) bool { return s.ID == o.Shard })
	return &o.Shards[i]
}

// Whole reports whether the shard has all partitions.
func (o *Origin) Whole() bool { return o.Of().Count() == o.Partitions }

func (o *Origin) encode() ([]byte, error) { return json.Marshal(o) }

// decodeOrigin reads what encode wrote: ErrNewerLevel, or ErrInvalid for anything else.
func decodeOrigin(b []byte) (*Origin, error) {
	var o Origin
	if err := json.Unmarshal(b, &o); err == nil && o.Format > FormatLevel {
		return nil, ErrNewerLevel
	}
	o = Origin{}
	if err := wire.Decode(b, &o); err != nil {
		return nil, invalid("%v", err)
	}
	switch canonical, err := o.encode(); {
	case err != nil || !bytes.Equal(canonical, b):
		return nil, invalid("what the backup is of is not in its canonical form")
	case !validID(o.Cluster) || !validID(o.Node) || o.Version == 0 || o.Format < 1 ||
		!validPartitions(o.Partitions) || len(o.Shards) > MaxMembers:
		return nil, invalid("what the backup is of: the cluster %.50q, version %d, of %d partitions",
			o.Cluster, o.Version, o.Partitions)
	case !slices.ContainsFunc(o.Shards, func(s Shard) bool { return s.ID == o.Shard }):
		return nil, invalid("the backup is of the shard %.50q, which is none of its cluster", o.Shard)
	}
	return &o, Configuration{Partitions: o.Partitions, Shards: o.Shards}.validShards()
}

// errMoved fails a backup that has perhaps not what it says it has.
var errMoved = errors.New("partitions of the shard have moved during the backup: try again when status " +
	"shows no moves")

// Describe returns the function that store.DescribeBackups needs to name the shard of this member's
// backups. It asks for moves that the node does not know yet, if that is possible.
func (a *Admin) Describe() func() ([]byte, error) {
	before, _ := a.configuration()
	self := before.Member(a.Node.o.ID)
	return func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), a.Meta.o.Timeout)
		defer cancel()
		_ = a.Meta.CatchUp(ctx) // nothing moves while nobody leads the meta group
		now, _ := a.configuration()
		if self == nil || now.Member(self.ID) == nil {
			return nil, errors.New("the node was removed from its cluster during the backup")
		}
		was, is := before.Shard(self.Shard), now.Shard(self.Shard)
		touches := func(m Move) bool { return m.From == self.Shard || m.To == self.Shard }
		if was == nil || is == nil || was.Epoch != is.Epoch || !slices.Equal(was.Partitions, is.Partitions) ||
			slices.ContainsFunc(before.Moves, touches) || slices.ContainsFunc(now.Moves, touches) {
			return nil, errMoved
		}
		o := originOf(now, self.Shard, self.ID)
		return o.encode()
	}
}

// Backup is one that a node finds on its machine.
type Backup struct {
	Dir string `json:"dir"`
	// Copy names it: two that are different have different ones.
	Copy string `json:"copy"`
	// Partitions is how many the data is divided into, Seed tells hash seeds apart without telling
	// what they are.
	Partitions int    `json:"partitions"`
	Seed       string `json:"seed"`
	// Origin is nil if the backup does not say what it is of.
	Origin *Origin `json:"origin,omitempty"`
	// Fault is why it cannot be used; "": it can, as far as is known.
	Fault string `json:"fault,omitempty"`
}

// FindBackups returns the backup in dir, or those in its directories, by ascending name; none if
// there is none.
func FindBackups(fsys vfs.FS, dir string) (found []Backup, err error) {
	one, err := readBackup(fsys, dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return []Backup{one}, nil
	}
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if one, err := readBackup(fsys, fsys.PathJoin(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, one)
		}
		if len(found) > MaxMembers {
			return nil, fmt.Errorf("%s has more than %d backups", dir, MaxMembers)
		}
	}
	return found, nil
}

// readBackup reads what a backup says of itself. The error is also its fault.
func readBackup(fsys vfs.FS, dir string) (b Backup, err error) {
	b.Dir = dir
	info, err := fsys.Stat(dir)
	if err == nil && !info.IsDir() {
		return b, fs.ErrNotExist
	}
	meta, origin, err := persistence.ReadOrigin(fsys, dir)
	if err == nil && len(origin) > 0 {
		b.Origin, err = decodeOrigin(origin)
	}
	if err == nil && b.Origin != nil && b.Origin.Partitions != meta.Partitions {
		err = invalid("the backup is of a cluster with %d partitions, and has %d", b.Origin.Partitions,
			meta.Partitions)
	}
	if err != nil {
		b.Fault, b.Origin = err.Error(), nil
	}
	seed := sha256.Sum256(append([]byte("hash seed"), meta.Seed[:]...))
	b.Copy, b.Partitions, b.Seed = fmt.Sprintf("%x-%x", meta.ID, meta.Incarnation), meta.Partitions,
		fmt.Sprintf("%x", seed[:4])
	return b, err
}

// Gather returns the backups of the shards of one cluster in the order of its shards, and every
// reason why they are not all of it, each partition once.
func Gather(all []Backup) (parts []Backup, faults []error) {
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	var newest *Origin
	for i, b := range all {
		switch {
		case slices.ContainsFunc(all[:i], func(o Backup) bool { return o.Dir == b.Dir && o.Copy != b.Copy }):
			refuse("%s is not the same backup on all machines", b.Dir)
		case slices.ContainsFunc(all[:i], func(o Backup) bool { return o.Dir == b.Dir }):
		case b.Fault != "":
			refuse("%s: %s", b.Dir, b.Fault)
		case b.Origin == nil:
			refuse("%s does not say of which shard it is: it is a backup of a single server, or of an "+
				"older program", b.Dir)
		case newest != nil && b.Origin.Cluster != newest.Cluster:
			refuse("%s is of the cluster %.8s, and %s of the cluster %.8s", b.Dir, b.Origin.Cluster,
				parts[0].Dir, newest.Cluster)
		case newest != nil && (b.Partitions != parts[0].Partitions || b.Seed != parts[0].Seed):
			refuse("%s and %s are not of the same data: the number of partitions or the hash seed is another",
				b.Dir, parts[0].Dir)
		default:
			if j := slices.IndexFunc(parts,
				func(o Backup) bool { return o.Origin.Shard == b.Origin.Shard }); j >= 0 {
				refuse("%s and %s are both of the shard %.8s: leave one of them there", parts[j].Dir, b.Dir,
					b.Origin.Shard)
				continue
			}
			if parts = append(parts, b); newest == nil || b.Origin.Version > newest.Version {
				newest = b.Origin
			}
		}
	}
	if newest == nil {
		return nil, faults
	}
	order := func(b Backup) int {
		return slices.IndexFunc(newest.Shards, func(s Shard) bool { return s.ID == b.Origin.Shard })
	}
	slices.SortStableFunc(parts, func(a, b Backup) int { return cmp.Compare(uint(order(a)), uint(order(b))) })
	return parts, append(faults, uncovered(newest, parts)...)
}

// uncovered says which partitions are not in exactly one backup.
func uncovered(newest *Origin, parts []Backup) (faults []error) {
	type state struct{ first, second, missing string }
	var list []state
	at := map[state][]int{}
	for p := range newest.Partitions {
		var s state
		for _, b := range parts {
			switch {
			case !b.Origin.Of().Has(p):
			case s.first == "":
				s.first = b.Dir
			case s.second == "":
				s.second = b.Dir
			}
		}
		if s.first != "" && s.second == "" {
			continue
		}
		if s.first == "" {
			owner := slices.IndexFunc(newest.Shards, func(o Shard) bool { return o.Has(p) })
			s.missing = newest.Shards[owner].ID
		}
		if at[s] == nil {
			list = append(list, s)
		}
		at[s] = append(at[s], p)
	}
	for _, s := range list {
		has := slices.ContainsFunc(parts, func(b Backup) bool { return b.Origin.Shard == s.missing })
		which, them := named(at[s])
		switch {
		case s.second != "":
			faults = append(faults, fmt.Errorf("%s moved between the backups: %s and %s both have %s", which,
				s.first, s.second, them))
		case has:
			faults = append(faults, fmt.Errorf("%s moved between the backups: none has %s", which, them))
		default:
			faults = append(faults, fmt.Errorf("no backup has %s: that of the shard %.8s is missing", which,
				s.missing))
		}
	}
	return faults
}

// named names ascending partitions in a sentence.
func named(partitions []int) (which, them string) {
	if len(partitions) == 1 {
		return fmt.Sprint("partition ", partitions[0]), "it"
	}
	var all []string
	for _, r := range Ranges(partitions) {
		if r.First == r.Last {
			all = append(all, strconv.Itoa(r.First))
		} else {
			all = append(all, fmt.Sprintf("%d to %d", r.First, r.Last))
		}
	}
	return "partitions " + strings.Join(all, ", "), "them"
}
