package regions

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A token names everything that a region had applied and committed at a moment, for all of its partitions
// or for one. Another region that has taken that much shows it to its clients. So a client that goes to
// another region takes a token with it, and waits there until it can read what it wrote.
//
// A token is base64url, without padding, of:
//
//	version      u8, 1
//	group        u64, little endian, as the numbers behind it
//	incarnation  u64: a region that was restored cannot tell what a token of before names
//	region       u8
//	positions    any number of: partition uvarint, ascending; sequence uvarint
//	checksum     u32, of all before it: a token that a client has cut short is refused
//
// A token proves nothing, and a false one only makes its own reader wait.
type token struct {
	group, incarnation uint64
	region             part.Region
	at                 []store.Behind // by partition
}

const tokenVersion = 1

// maxToken bounds a token, bytes: as many positions as there are slots.
const maxToken = (18 + slots*(3+binary.MaxVarintLen64) + 4) * 4 / 3

// AnySlot stands for all slots.
const AnySlot = -1

func (t *token) encode() string {
	b := binary.LittleEndian.AppendUint64([]byte{tokenVersion}, t.group)
	b = append(binary.LittleEndian.AppendUint64(b, t.incarnation), byte(t.region))
	for _, at := range t.at {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(at.Partition)), at.Seq)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(xxhash.Sum64(b)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeToken reads what encode has written.
func decodeToken(text string) (t token, err error) {
	refused := memberError("this is not a token of REGION TOKEN")
	if len(text) > maxToken {
		return t, refused
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 1+8+8+1+4 || b[0] != tokenVersion {
		return t, refused
	}
	b, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if uint32(xxhash.Sum64(b)) != sum {
		return t, refused
	}
	t.group, t.incarnation = binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])
	t.region = part.Region(b[17])
	for last, rest := -1, b[18:]; len(rest) > 0; {
		p, n := binary.Uvarint(rest)
		seq, m := binary.Uvarint(rest[max(n, 0):])
		if n <= 0 || m <= 0 || p >= slots || int(p) <= last {
			return t, refused
		}
		t.at = append(t.at, store.Behind{Partition: uint16(p), Seq: seq})
		last, rest = int(p), rest[n+m:]
	}
	if t.encode() != text {
		return t, refused
	}
	return t, nil
}

// tokenMember checks that this server can tell or wait for the keys of a slot, and returns the members.
func (n *Node) tokenMember(slot int) (set store.RegionSet, err error) {
	set, ok := n.Members()
	switch {
	case !ok:
		return set, store.ErrNoRegions
	case n.cluster != nil && slot == AnySlot:
		return set, memberError("in a cluster, each shard has its own positions: name a key")
	case !n.leads():
		return set, memberError("this node does not lead its shard: ask the leader")
	}
	return set, nil
}

// partitionAt is the partition of a region that has a slot.
func partitionAt(m *store.RegionMember, slot int) int { return slot * m.Partitions / slots }

// Token returns a token of what this region has applied so far to keys of a slot, or to all keys (AnySlot).
func (n *Node) Token(slot int) (string, error) {
	set, err := n.tokenMember(slot)
	if err != nil {
		return "", err
	}
	own, _ := set.Member(set.Self)
	t := token{group: set.Group, incarnation: own.Incarnation, region: set.Self}
	for p := range own.Partitions {
		if slot == AnySlot || partitionAt(&own, slot) == p {
			t.at = append(t.at, store.Behind{Partition: uint16(p), Seq: n.Store.CommittedOf(uint16(p))})
		}
	}
	return t.encode(), nil
}

// Await waits until this region has taken what a token names, of the keys of a slot or of all (AnySlot),
// and returns true; false if ctx is done before. It refuses a token that can never come true here.
func (n *Node) Await(ctx context.Context, text string, slot int) (bool, error) {
	if _, err := n.tokenMember(slot); err != nil {
		return false, err
	}
	t, err := decodeToken(text)
	if err != nil {
		return false, err
	}
	look := time.NewTicker(awaitEvery)
	defer look.Stop()
	for {
		has, err := n.has(&t, slot)
		if has || err != nil {
			return has, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-look.C:
		}
	}
}

// awaitEvery is how often Await looks: what an idle source tells changes a position, and is not logged.
const awaitEvery = 5 * time.Millisecond

// has reports whether this region has taken what a token names.
func (n *Node) has(t *token, slot int) (bool, error) {
	set, err := n.tokenMember(slot)
	if err != nil {
		return false, err
	}
	m, ok := set.Member(t.region)
	switch {
	case t.group != set.Group || !ok:
		return false, memberError("the token is of a region that this one does not know")
	case m.Gone:
		return false, memberError("the token is of the region %s, which was removed", m.Name)
	case t.incarnation != m.Incarnation:
		return false, memberError("the token is of other data than the region %s has now", m.Name)
	}
	at := t.at
	if slot != AnySlot {
		at = slices.DeleteFunc(slices.Clone(at), func(at store.Behind) bool {
			return int(at.Partition) != partitionAt(&m, slot)
		})
	}
	if len(at) == 0 || int(at[len(at)-1].Partition) >= m.Partitions {
		return false, memberError("the token does not cover the key: make it with REGION TOKEN key")
	}
	if t.region == set.Self {
		for _, at := range at {
			if n.Store.CommittedOf(at.Partition) < at.Seq {
				return false, nil
			}
		}
		return true, nil
	}
	ranges, err := n.Store.PullRanges(t.region)
	if err != nil {
		return false, err
	}
	for _, r := range ranges {
		if slot != AnySlot && (slot < int(r.First) || slot > int(r.Last)) {
			continue
		}
		i, named := slices.BinarySearchFunc(at, r.Source.Partition, func(at store.Behind, p uint16) int {
			return int(at.Partition) - int(p)
		})
		if !named {
			continue
		}
		if taken, _, err := n.Store.TakenOf(r.Own, r.Source); err != nil || taken < at[i].Seq {
			return false, err
		}
	}
	return true, nil
}
