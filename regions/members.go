package regions

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// One member decides about membership, the arbiter: the member with the lowest number that was not
// removed. Each of its changes has a version, one higher than that before. Members tell the version
// that they know with each answer, and a member that learns of a higher one asks for the members
// (peer.learn). So all of them learn of a change as long as each hears of somebody who knows it,
// and of two changes all of them know the later.

// Errors of a Node.
var (
	// ErrMember: what was asked for does not fit who is a member.
	ErrMember = errors.New("the members of the regions")
	// ErrRemoved: the others have removed this region. It stops to read them.
	ErrRemoved = fmt.Errorf("%w: this region was removed", ErrRefused)
)

// AskError is the error of a member that is not the arbiter, and names it.
type AskError struct{ Name, Address string }

// Error begins with ASK and an address, for a program to follow.
func (e *AskError) Error() string {
	return fmt.Sprintf("ASK %s the region %s decides who is a member", e.Address, e.Name)
}

// Admission is what a server says of itself that is to become a member.
type Admission struct {
	Name        string `json:"name"`
	Partitions  int    `json:"partitions"`
	Incarnation uint64 `json:"incarnation"` // of its directory
	Data        string `json:"data"`        // see store.RegionMember
	Address     string `json:"address"`
}

func memberError(format string, args ...any) error { return bad{fmt.Sprintf(format, args...)} }

// bad is an ErrMember that says all by itself.
type bad struct{ text string }

func (e bad) Error() string        { return e.text }
func (e bad) Is(target error) bool { return target == ErrMember }

// arbiter returns the member that decides when the members in lost are being removed.
func arbiter(set *store.RegionSet, lost ...string) store.RegionMember {
	for _, m := range set.Members {
		if !m.Gone && !slices.Contains(lost, m.Name) {
			return m
		}
	}
	return store.RegionMember{} // there is the own one
}

// Create makes the store the first region, which others can join. Of one that is a member, and the
// arbiter, it changes the address; one that was restored from a backup, and is the only region, goes on
// with that. The setting region-announce overrides address.
func (n *Node) Create(name, address string) (store.RegionSet, error) {
	own := n.Admission(name, address)
	if err := own.check(); err != nil {
		return store.RegionSet{}, err
	}
	if err := n.safe(); err != nil {
		return store.RegionSet{}, err
	}
	if set, ok := n.Members(); ok {
		if m, _ := set.Member(set.Self); m.Name != name {
			return set, memberError("this server is the region %s already", m.Name)
		}
		return n.changeWithout([]string{}, own.admit)
	}
	var group [8]byte
	rand.Read(group[:]) // never fails
	return n.become(store.RegionSet{Group: binary.LittleEndian.Uint64(group[:]), Version: 1,
		Members: []store.RegionMember{own.member(0)}})
}

// become makes the store a member.
func (n *Node) become(set store.RegionSet) (store.RegionSet, error) {
	n.changing.Lock()
	known, ok := n.Members()
	var err error
	switch {
	case !ok:
		err = n.set(set, 0)
	case known.Group != set.Group || known.Self != set.Self:
		err = memberError("this server is a region already")
	case set.Version > known.Version: // joined again, by somebody who knows more
		err = n.set(set, known.Version)
	default:
		set = known
	}
	n.changing.Unlock()
	if err == nil {
		err = n.follow()
	}
	return set, err
}

// Admission returns what this server says of itself to become a member.
func (n *Node) Admission(name, address string) Admission {
	if n.opts.Announce != nil {
		if a := n.opts.Announce(); a != "" {
			address = a
		}
	}
	own := n.opts.identity()
	own.Name, own.Address = name, address
	return own
}

// Admit lets a server become a member, and returns the members as that is to take them with Join.
// Meanwhile the others ask it, and are refused. To admit a member again changes its address, or nothing.
// Errors: ErrMember; *AskError; store.ErrNoRegions; ErrRemoved.
func (n *Node) Admit(ctx context.Context, a Admission) (store.RegionSet, error) {
	if err := a.check(); err != nil {
		return store.RegionSet{}, err
	}
	if err := n.safe(); err != nil {
		return store.RegionSet{}, err
	}
	set, next, err := n.plan(nil, a.admit)
	if err == nil && next.Version != set.Version {
		if err = n.reach(ctx, a.member(part.MaxRegions), &set); err == nil {
			next, err = n.change(a.admit)
		}
	}
	if err != nil {
		return store.RegionSet{}, err
	}
	own, _ := named(&next, a.Name)
	next.Self = own.Region
	return next, nil
}

// Join makes the store a member, with what Admit of another one has returned. It may be repeated. The
// first time it must reach the arbiter.
func (n *Node) Join(ctx context.Context, set store.RegionSet) error {
	if err := n.safe(); err != nil {
		return err
	}
	own, ok := set.Member(set.Self)
	me := n.Admission(own.Name, own.Address)
	known, member := n.Members()
	switch {
	case known.Removed:
		return ErrRemoved
	case !ok || own.Gone || set.Removed || len(set.Members) < 2:
		return memberError("these are no members that this server can join")
	case own.Data != me.Data || own.Incarnation != me.Incarnation:
		return memberError("another server was admitted as the region %s, or this one with another directory",
			own.Name)
	}
	if !member {
		if err := n.reach(ctx, arbiter(&set), &set); err != nil {
			return err
		}
	}
	_, err := n.become(set)
	return err
}

// Pause ends the reading of a region until Resume, or until the server starts again.
func (n *Node) Pause(name string) error { return n.each(name, (*Mesh).Pause) }

// Resume reads a region again, also one that waits after a failure: at once.
func (n *Node) Resume(name string) error { return n.each(name, (*Mesh).Resume) }

func (n *Node) each(name string, do func(*Mesh, part.Region) bool) error {
	set, ok := n.Members()
	mesh := n.Mesh()
	switch {
	case ok && mesh == nil && n.cluster != nil:
		return memberError("this node does not lead its shard, and reads nobody")
	case !ok || mesh == nil:
		return store.ErrNoRegions
	}
	for _, m := range set.Members {
		switch {
		case m.Name != name || m.Gone:
		case m.Region == set.Self:
			return memberError("this is the region %s itself", name)
		case do(mesh, m.Region):
			return nil
		default:
			return memberError("the region %s is not read", name)
		}
	}
	return memberError("there is no region %.64q", name)
}

// edit changes members, or refuses to. It may be called more than once.
type edit func(set *store.RegionSet) error

// plan returns the members, and what an edit makes of them: with the same version if that is
// nothing new. lost are those to be removed. Unless it is nil, a directory that was restored goes on
// if they are all others, since then nobody is left who refuses it.
func (n *Node) plan(lost []string, do edit) (set, next store.RegionSet, err error) {
	set, ok := n.Members()
	switch {
	case !ok:
		return set, next, store.ErrNoRegions
	case set.Removed:
		return set, next, ErrRemoved
	}
	own, _ := set.Member(set.Self)
	if first := arbiter(&set, lost...); first.Region != set.Self {
		return set, next, &AskError{first.Name, first.Address}
	}
	next = set
	next.Members = slices.Clone(set.Members)
	if here := n.opts.identity().Incarnation; own.Incarnation != here || n.Store.Older() {
		if lost == nil || arbiter(&set, append(slices.Clone(lost), own.Name)...).Name != "" {
			return set, next, memberError("%v", store.ErrRestored)
		}
		next.Members[slices.Index(set.Members, own)].Incarnation = here
	}
	if err = do(&next); err == nil && !bytes.Equal(next.Encode(), set.Encode()) {
		next.Version++
	}
	return set, next, err
}

// change makes an edit, if this member is the arbiter, and returns the members.
func (n *Node) change(do edit) (store.RegionSet, error) { return n.changeWithout(nil, do) }

// changeWithout is change when the members in lost are being removed (plan).
func (n *Node) changeWithout(lost []string, do edit) (store.RegionSet, error) {
	n.changing.Lock()
	set, next, err := n.plan(lost, do)
	if err == nil && next.Version != set.Version {
		err = n.set(next, set.Version)
	}
	n.changing.Unlock()
	if err != nil {
		return store.RegionSet{}, err
	}
	return next, n.follow()
}

// learn takes newer members that another region has told of.
func (n *Node) learn(set store.RegionSet) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	known, ok := n.Members()
	switch {
	case !ok:
		return store.ErrNoRegions
	case set.Group != known.Group:
		return fmt.Errorf("%w: members of the group %x, and not %x", ErrAnswer, set.Group, known.Group)
	case known.Removed:
		return ErrRemoved
	case set.Version <= known.Version:
		return nil
	case set.Version-known.Version > store.MaxAhead || set.Era > known.Era &&
		set.Era-known.Era > store.MaxAhead:
		return fmt.Errorf("%w: members of version %d and era %d, after %d and %d", ErrAnswer, set.Version,
			set.Era, known.Version, known.Era)
	}
	after := known.Version
	before, _ := known.Member(known.Self)
	own, ok := set.Member(known.Self)
	if !ok || own.Gone || own.Data != before.Data {
		known.Version, known.Removed = set.Version, true
		if err := n.set(known, after); err != nil {
			return err
		}
		level := slog.LevelError
		if known.Leaving { // the operator knows
			level = slog.LevelInfo
		}
		n.opts.Logger.Log(n.ctx, level, store.ErrRemoved.Error(), "region", before.Name, "version", set.Version)
		n.wake()
		return ErrRemoved
	}
	set.Self = known.Self
	if err := n.set(set, after); err != nil {
		return err
	}
	gone := func(m store.RegionMember) bool { return m.Gone }
	n.opts.Logger.Info("the set of regions has changed", "version", set.Version, "members",
		len(slices.DeleteFunc(slices.Clone(set.Members), gone)))
	n.wake()
	return nil
}

// wake makes run follow the members.
func (n *Node) wake() {
	select {
	case n.learnt <- struct{}{}:
	default:
	}
}

// safe refuses what a server that anyone can read must not do.
func (n *Node) safe() error {
	if n.opts.Unsafe == nil {
		return nil
	}
	return n.opts.Unsafe()
}

// member is the member of a number that the admission makes.
func (a *Admission) member(r part.Region) store.RegionMember {
	return store.RegionMember{Region: r, Name: a.Name, Partitions: a.Partitions, Incarnation: a.Incarnation,
		Address: a.Address, Data: a.Data}
}

// admit makes a server a member, or changes its address.
func (a Admission) admit(set *store.RegionSet) error {
	again := -1
	for i, m := range set.Members {
		same := m.Data == a.Data && m.Incarnation == a.Incarnation && m.Partitions == a.Partitions
		switch {
		case m.Gone && m.Data == a.Data:
			return memberError("this server, or one with a copy of its data, was the region %s, which was "+
				"removed: start it with an empty directory", m.Name)
		case m.Gone:
		case m.Name == a.Name && same:
			again = i
		case m.Name == a.Name:
			return memberError("another server is the region %s: choose another name, or remove that "+
				"region first", a.Name)
		case m.Data == a.Data:
			return memberError("this server, or one with a copy of its data, is the region %s already",
				m.Name)
		case m.Address == a.Address:
			return memberError("%s is the address of the region %s", a.Address, m.Name)
		}
	}
	for i, m := range set.Members {
		if i != again && !m.Gone && isLoopback(m.Address) != isLoopback(a.Address) {
			return memberError("the region %s has the address %s, and this one %s: one of them is reached "+
				"from its own machine only; "+
				"let each be named by the address at which the others reach it (fbfkv region create and "+
				"join change it, or region-announce)",
				m.Name, m.Address, a.Address)
		}
	}
	if again >= 0 {
		set.Members[again].Address = a.Address
		return nil
	}
	number := set.Members[len(set.Members)-1].Region + 1 // numbers are never given again
	if number >= part.MaxRegions {
		return memberError("there were %d regions already, and there are no more numbers", part.MaxRegions)
	}
	m := a.member(number)
	m.Joined = set.Version + 1
	set.Members = append(set.Members, m)
	return nil
}

// maxName is the longest name of a region, bytes.
const maxName = 64

// Fits says why a server cannot be one of the members, or, if there are none, the first; nil if it can.
func (a Admission) Fits(set store.RegionSet) error {
	if err := a.check(); err != nil || len(set.Members) == 0 {
		return err
	}
	set.Members = slices.Clone(set.Members)
	return a.admit(&set)
}

// check refuses what cannot be a member.
func (a *Admission) check() error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	switch n := a.Partitions; {
	case a.Name == "" || len(a.Name) > maxName || strings.Trim(a.Name, letters) != "":
		return memberError("the name of a region is 1 to %d letters, digits, dots, dashes and "+
			"underscores, and not %.64q", maxName, a.Name)
	case n < 1 || n > slots || n&(n-1) != 0:
		return memberError("%d partitions are no power of two up to %d", n, slots)
	case len(a.Data) != 32:
		return memberError("the id of the data is missing")
	}
	return checkAddress(a.Address)
}

// checkAddress refuses what no other region can connect to.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.Atoi(port)
	ip, _ := netip.ParseAddr(host)
	switch {
	case address == "":
		return memberError("the address at which others reach this region is missing: HOST:PORT")
	case err != nil || host == "" || bad != nil || n < 1 || n > 65535 || len(address) > 256 ||
		strings.ContainsAny(address, " \t\r\n\x00"):
		return memberError("%.256q is no address HOST:PORT", address)
	case ip.IsUnspecified():
		return memberError("%s is no address at which others reach this region: name one of its own, or "+
			"its host name", address)
	}
	return nil
}

// isLoopback reports whether only the own machine reaches an address.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// reach checks that an address leads to the server of a region, and that it lets this one in: a
// mistake there is hard to see later.
func (n *Node) reach(ctx context.Context, a store.RegionMember, set *store.RegionSet) error {
	if own, _ := set.Member(set.Self); own.Data == a.Data {
		return nil // its own new address
	}
	there, reached, err := n.membersAt(ctx, a.Address, set)
	if !reached {
		return memberError("the region %s cannot be reached from here at %s: %v", a.Name, a.Address, err)
	}
	switch {
	case errors.Is(err, errNoRegionThere) && a.Region != arbiter(set).Region:
		return nil // it has not joined yet
	case errors.Is(err, errNoRegionThere):
		return memberError("the server at %s is no region", a.Address)
	case err != nil:
		return memberError("the server at %s does not let this region read: %v", a.Address, err)
	}
	if m, _ := there.Member(there.Self); m.Data != a.Data {
		return memberError("at %s there is another server, the region %s", a.Address, m.Name)
	}
	return nil
}

// membersAt asks the server at an address for the members that it knows. reached: it can be connected to.
func (n *Node) membersAt(ctx context.Context, address string, set *store.RegionSet) (there store.RegionSet,
	reached bool, err error) {
	l, err := (&peer{opts: &n.opts, address: address}).connect(ctx)
	if err != nil {
		return there, false, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	writeMembers(&l.w, set.Group, set.Self)
	if err = l.send(n.opts.Timeout); err == nil {
		there, err = l.members()
	}
	return there, true, err
}
