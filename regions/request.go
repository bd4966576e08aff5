package regions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Command is the name of the command that a region asks another one with.
const Command = "REGION.PULL"

// wordMembers asks for the members, in the place of a request's first number.
const wordMembers = "MEMBERS"

// Limits of a request.
const (
	slots     = 16384
	maxRanges = slots       // no region has more partitions
	maxMost   = 64 << 20    // bytes
	maxBlock  = time.Minute // the longest wait for something new
	headArgs  = 7
	rangeArgs = 6
)

// Request is what a region asks another one with REGION.PULL (see the package).
type Request struct {
	Group       uint64
	By          part.Region // who asks
	Incarnation uint64      // of the source, as the asking region knows it
	Most        int         // bytes of the answer, about: 1 to 64 MiB
	Block       time.Duration
	Ranges      []Range
}

// Range is a partition of the source, or some of its slots, and how far it has been taken.
type Range struct {
	Partition, First, Last uint16
	// After is what was taken, Code that of its proof, 0: there is none; Acked what of it will not be asked
	// again.
	After, Code, Acked uint64
}

// badRequest is an error of a request's arguments; its text is the reply.
type badRequest string

func (e badRequest) Error() string { return string(e) }

const (
	errArguments = badRequest("ERR wrong number of arguments for 'region.pull' command")
	errSyntax    = badRequest("ERR syntax error")
)

// ParseRequest reads the arguments behind the command's name. The text of its errors is the reply.
func ParseRequest(args [][]byte) (*Request, error) {
	if n := len(args) - headArgs; n < rangeArgs || n%rangeArgs != 0 || n/rangeArgs > maxRanges {
		return nil, errArguments
	}
	if !strings.EqualFold(string(args[3]), "MAX") || !strings.EqualFold(string(args[5]), "BLOCK") {
		return nil, errSyntax
	}
	a := numbers{rest: args}
	q := &Request{Group: a.next("group", 0, 1<<64-1), By: part.Region(a.next("region", 0, part.MaxRegions-1)),
		Incarnation: a.next("incarnation", 0, 1<<64-1)}
	a.rest = a.rest[1:]
	q.Most = int(a.next("MAX", 1, maxMost))
	a.rest = a.rest[1:]
	q.Block = time.Duration(a.next("BLOCK", 0, uint64(maxBlock.Milliseconds()))) * time.Millisecond
	var asked [slots / 64]uint64
	for len(a.rest) > 0 && a.err == nil {
		r := Range{Partition: a.slot("partition"), First: a.slot("first slot"), Last: a.slot("last slot")}
		r.After, r.Code = a.next("after", 0, 1<<64-1), a.next("proof", 0, 1<<64-1)
		r.Acked = a.next("acknowledged", 0, r.After)
		if a.err == nil && (r.Last < r.First || asked[r.First/64]&(1<<(r.First%64)) != 0) {
			return nil, badRequest("ERR slots that are in no order, or asked for twice")
		}
		asked[r.First/64] |= 1 << (r.First % 64)
		q.Ranges = append(q.Ranges, r)
	}
	if a.err != nil {
		return nil, a.err
	}
	return q, nil
}

// numbers reads arguments that are numbers. Each has one spelling.
type numbers struct {
	rest [][]byte
	err  error
}

func (a *numbers) slot(name string) uint16 { return uint16(a.next(name, 0, slots-1)) }

func (a *numbers) next(name string, least, most uint64) uint64 {
	arg := a.rest[0]
	a.rest = a.rest[1:]
	n, err := uint64(0), error(nil)
	if len(arg) > 20 || len(arg) > 1 && arg[0] == '0' {
		err = strconv.ErrSyntax
	} else {
		n, err = strconv.ParseUint(string(arg), 10, 64)
	}
	if err == nil && n >= least && n <= most {
		return n
	}
	if a.err == nil {
		a.err = badRequest("ERR " + name + " is not an integer or out of range")
	}
	return least // what is made of it before the error is seen must be possible
}

// parseMembers reads the arguments behind MEMBERS.
func parseMembers(args [][]byte) (group uint64, err error) {
	if len(args) != 2 {
		return 0, errArguments
	}
	a := numbers{rest: args}
	group = a.next("group", 0, 1<<64-1)
	a.next("region", 0, part.MaxRegions-1)
	return group, a.err
}

// writeMembers appends a request for the members.
func writeMembers(w *resp.Writer, group uint64, by part.Region) {
	w.BulkStrings([]string{Command, wordMembers, strconv.FormatUint(group, 10), strconv.Itoa(int(by))})
}

// write appends the request as a client sends it.
func (q *Request) write(w *resp.Writer) {
	w.Array(1 + headArgs + rangeArgs*len(q.Ranges))
	w.BulkString(Command)
	number := func(n uint64) { w.BulkString(strconv.FormatUint(n, 10)) }
	number(q.Group)
	number(uint64(q.By))
	number(q.Incarnation)
	w.BulkString("MAX")
	number(uint64(q.Most))
	w.BulkString("BLOCK")
	number(uint64(q.Block.Milliseconds()))
	for _, r := range q.Ranges {
		number(uint64(r.Partition))
		number(uint64(r.First))
		number(uint64(r.Last))
		number(r.After)
		number(r.Code)
		number(r.Acked)
	}
}

// pull is what the store is asked for a range.
func (q *Request) pull(r Range) store.Pull {
	return store.Pull{
		By: q.By, Group: q.Group, Incarnation: q.Incarnation, Partition: r.Partition,
		First: r.First, Last: r.Last, After: r.After, Code: r.Code, Acked: r.Acked,
	}
}

// Words that error replies begin with.
const (
	codeNoRegion = "NOREGION"
	codeRefused  = "REFUSED"
	codeGap      = "GAP"
)

// replyOf is the error reply of an error of the store.
func replyOf(err error) string {
	code := "ERR"
	switch bad := badRequest(""); {
	case errors.As(err, &bad):
		return string(bad)
	case errors.Is(err, store.ErrNoRegions):
		code = codeNoRegion
	case errors.Is(err, store.ErrStream):
		code = codeRefused
	case errors.Is(err, store.ErrGap):
		code = codeGap
	}
	return fmt.Sprintf("%s %.*s", code, maxLine/2, err)
}

// errNoRegionThere is store.ErrNoRegions of the other side.
var errNoRegionThere = errors.New("that server is not a region yet")

// errRemovedThere is errRemovedHere of the other side.
var errRemovedThere = fmt.Errorf("%w: that region was removed", ErrRefused)

// errorOf is the error of an error reply.
func errorOf(text string) error {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case codeNoRegion:
		return fmt.Errorf("%w: %w", ErrRefused, errNoRegionThere)
	case codeRefused:
		if text == replyOf(errRemovedHere) {
			return errRemovedThere
		}
		said := strings.TrimPrefix(text, codeRefused+" ")
		return fmt.Errorf("%w: %s", ErrRefused, strings.TrimPrefix(said, store.ErrStream.Error()+": "))
	case "NOAUTH", "WRONGPASS", "NOPERM":
		return fmt.Errorf("%w: %s (see region-user and region-password)", ErrRefused, text)
	case codeGap:
		return fmt.Errorf("%w: %s", store.ErrGap, text)
	}
	if strings.Contains(text, "unauthenticated") { // what is said before AUTH must be short
		return errorOf("NOAUTH Authentication required.")
	}
	return errors.New(text)
}
