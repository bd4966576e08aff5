package commands

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/hotkeys"
	"github.com/fbfkv/fbfkv/commands/observe"
)

// hotRound is what a round notes for the search for hot keys that goes on.
type hotRound struct {
	search *hotkeys.Search // nil: there is none
	busy   time.Duration   // that the operations took, without waiting for the disk
	weight int             // arguments of all operations, which share that
	list   []hotkeys.Command
	keys   [][]byte
}

// measure executes the batch and notes how long that took until it waited for the disk.
func (r *Round) measure() {
	block, busy := r.batch.OnBlock, time.Time{}
	r.batch.OnBlock = func() {
		if busy.IsZero() {
			busy = time.Now()
		}
		if block != nil {
			block()
		}
	}
	r.execute(&r.batch)
	r.batch.OnBlock = block
	if busy.IsZero() {
		busy = time.Now()
	}
	r.hot.busy, r.hot.weight = busy.Sub(r.start), 0
	for i := range r.slots {
		if r.slots[i].kind == slotOp {
			r.hot.weight += len(r.slots[i].args)
		}
	}
}

// noteSlot notes a command of the round, and the bytes of its reply.
func (h *hotRound) noteSlot(s *slot, reply int) {
	took := time.Duration(0)
	if s.kind == slotOp && h.weight > 0 {
		took = h.busy * time.Duration(len(s.args)) / time.Duration(h.weight)
	}
	h.note(s.cmd, s.args, took, reply)
}

// note notes a command; nil: the request was refused.
func (h *hotRound) note(c *Command, args [][]byte, took time.Duration, reply int) {
	noted := hotkeys.Command{Time: took, Bytes: requestSize(args) + reply, Slot: -1}
	if c != nil && len(args) > 0 && c.Keys.First > 0 {
		first := len(h.keys)
		c.Keys.each(args, func(key []byte) bool {
			h.keys = append(h.keys, key)
			return true
		})
		noted.Keys = h.keys[first:]
		if h.search.Slots != nil {
			noted.Slot = c.slotOf(args)
		}
	}
	h.list = append(h.list, noted)
}

// tell hands the search the commands that were noted.
func (h *hotRound) tell() {
	h.search.Add(h.list)
	clear(h.list)
	clear(h.keys)
	h.list, h.keys = h.list[:0], h.keys[:0]
}

// requestSize is how many bytes a request had, if it was an array of bulk strings.
func requestSize(args [][]byte) int {
	if len(args) == 0 {
		return 0
	}
	size := 3 + digits(len(args))
	for _, a := range args {
		size += 5 + digits(len(a)) + len(a)
	}
	return size
}

// digits is how many decimal digits n has.
func digits(n int) (d int) {
	for d = 1; n > 9; n /= 10 {
		d++
	}
	return d
}

// used is what the process has used so far.
func (srv *Server) used() hotkeys.Usage {
	user, system := observe.CPUTime()
	f := srv.figures()
	return hotkeys.Usage{User: user, System: system, Bytes: f.NetInputBytes + f.NetOutputBytes}
}

// The limits of HOTKEYS START are Redis'.
const (
	hotCount    = 10 // keys that are shown unless COUNT says otherwise
	mostHot     = 64
	mostSeconds = 1_000_000
	hotMetrics  = 2
)

// hotStart is HOTKEYS START while its options are read.
type hotStart struct {
	options hotkeys.Options
	view    *ClusterView
	args    [][]byte // that are left
}

// next takes the next argument as a number within bounds.
func (h *hotStart) next(low, high int64, refused string) (int, error) {
	if len(h.args) == 0 {
		return 0, errSyntax
	}
	n, ok := parseInt(h.args[0])
	if !ok || n < low || n > high {
		return 0, refusal("ERR " + refused)
	}
	h.args = h.args[1:]
	return int(n), nil
}

// metrics reads METRICS count metric …, whatever other metrics there may be.
func (h *hotStart) metrics() error {
	if len(h.args) == 0 || !is(h.args[0], "METRICS") {
		return refusal("ERR METRICS parameter is required")
	}
	h.args = h.args[1:]
	n, err := h.next(1, hotMetrics, "METRICS count must be > 0 and <= "+strconv.Itoa(hotMetrics))
	if err != nil {
		return err
	}
	if n > len(h.args) {
		return refusal("ERR METRICS count does not match number of metric types provided")
	}
	for _, metric := range h.args[:n] {
		for token, on := range map[string]*bool{"CPU": &h.options.CPU, "NET": &h.options.Net} {
			if is(metric, token) && *on {
				return refusal("ERR METRICS " + token + " defined more than once!")
			}
			*on = *on || is(metric, token)
		}
	}
	if !h.options.CPU && !h.options.Net {
		return refusal("ERR METRICS no valid metrics passed. Supported: CPU|NET")
	}
	h.args = h.args[n:]
	return nil
}

// slots reads SLOTS' count and slots.
func (h *hotStart) slots() error {
	switch {
	case h.view == nil:
		return refusal("ERR SLOTS parameter cannot be used in non-cluster mode")
	case h.options.Slots != nil:
		return refusal("ERR SLOTS parameter already specified")
	}
	n, err := h.next(1, slotCount, "SLOTS count must be between 1 and "+strconv.Itoa(slotCount))
	if err != nil {
		return err
	}
	if n > len(h.args) {
		return refusal("ERR not enough slot numbers provided")
	}
	for range n {
		slot, err := h.next(0, slotCount-1, "Invalid or out of range slot")
		switch {
		case err != nil:
			return err
		case !h.view.has(slot):
			return refusal("ERR slot " + strconv.Itoa(slot) + " not handled by this node")
		case slices.Contains(h.options.Slots, uint16(slot)):
			return refusal("ERR duplicate slot number")
		}
		h.options.Slots = append(h.options.Slots, uint16(slot))
	}
	slices.Sort(h.options.Slots)
	return nil
}

// option reads one of the other options.
func (h *hotStart) option() (err error) {
	token, seconds := strings.ToUpper(string(h.args[0])), 0
	h.args = h.args[1:]
	switch token {
	case "COUNT":
		h.options.Count, err = h.next(1, mostHot, "COUNT must be between 1 and "+strconv.Itoa(mostHot))
	case "DURATION":
		seconds, err = h.next(1, mostSeconds, "DURATION must be between 1 and "+strconv.Itoa(mostSeconds))
		h.options.Duration = time.Duration(seconds) * time.Second
	case "SAMPLE":
		h.options.Sample, err = h.next(1, 1<<31-1, "SAMPLE ratio must be positive")
	case "SLOTS":
		err = h.slots()
	default:
		err = errSyntax
	}
	return err
}

// doHotkeysStart is HOTKEYS START METRICS count [CPU] [NET] [COUNT k] [DURATION s] [SAMPLE n]
// [SLOTS n slot …].
func doHotkeysStart(c *Context) {
	if c.Server.hotkeys.Going() != nil {
		c.fail(refusal("ERR " + hotkeys.ErrStarted.Error()))
		return
	}
	h := hotStart{view: c.clusterView(), args: c.Args[2:]}
	h.options.Count, h.options.Sample = hotCount, 1
	err := h.metrics()
	for err == nil && len(h.args) > 0 {
		err = h.option()
	}
	if err == nil {
		if err = c.Server.hotkeys.Start(h.options, c.Server.used); err != nil {
			err = refusal("ERR " + err.Error())
		}
	}
	c.ok(err)
}

// doHotkeysStop is HOTKEYS STOP; if no search goes on it answers null.
func doHotkeysStop(c *Context) {
	if c.Server.hotkeys.Stop(c.Server.used) {
		c.W.Status("OK")
	} else {
		c.W.Null()
	}
}

// doHotkeysReset is HOTKEYS RESET.
func doHotkeysReset(c *Context) {
	if err := c.Server.hotkeys.Reset(); err != nil {
		c.fail(refusal("ERR " + err.Error()))
		return
	}
	c.W.Status("OK")
}

// doHotkeysGet is HOTKEYS GET: an array of one map, or null.
func doHotkeysGet(c *Context) {
	s := c.Server.hotkeys.Last()
	if s == nil {
		c.W.NullArray()
		return
	}
	fields := hotFields(c, s, s.Report(time.Now(), c.Server.used()))
	fields = slices.DeleteFunc(fields, func(f hotField) bool { return !f.there })
	c.W.Array(1)
	c.W.Map(len(fields))
	for _, f := range fields {
		c.W.BulkString(f.name)
		f.write()
	}
}

// hotField is a field of HOTKEYS GET.
type hotField struct {
	name  string
	there bool
	write func()
}

// hotFields are all fields, those that are left out included.
func hotFields(c *Context, s *hotkeys.Search, r hotkeys.Report) []hotField {
	number := func(name string, there bool, n int64) hotField {
		return hotField{name, there, func() { c.W.Int(n) }}
	}
	bytes := func(name string, there bool, n uint64) hotField { return number(name, there, int64(n)) }
	slots, sampled := s.Slots != nil, s.Slots != nil && s.Sample > 1
	return []hotField{
		number("tracking-active", true, bit(r.Active)),
		number("sample-ratio", true, int64(s.Sample)),
		{"selected-slots", true, func() { writeRanges(c, slotRanges(s.Slots, c.clusterView())) }},
		number("sampled-commands-selected-slots-us", sampled, r.Sampled.Time.Microseconds()),
		number("all-commands-selected-slots-us", slots, r.Selected.Time.Microseconds()),
		number("all-commands-all-slots-us", true, r.All.Time.Microseconds()),
		bytes("net-bytes-sampled-commands-selected-slots", sampled, r.Sampled.Bytes),
		bytes("net-bytes-all-commands-selected-slots", slots, r.Selected.Bytes),
		bytes("net-bytes-all-commands-all-slots", true, r.All.Bytes),
		number("collection-start-time-unix-ms", true, s.Started.UnixMilli()),
		number("collection-duration-ms", true, r.Took.Milliseconds()),
		number("total-cpu-time-user-ms", s.CPU, r.Used.User.Milliseconds()),
		number("total-cpu-time-sys-ms", s.CPU, r.Used.System.Milliseconds()),
		bytes("total-net-bytes", s.Net, r.Used.Bytes),
		{"by-cpu-time-us", s.CPU, func() { writeHot(c, r.ByTime, uint64(time.Microsecond)) }},
		{"by-net-bytes", s.Net, func() { writeHot(c, r.ByBytes, 1) }},
	}
}

// writeHot writes keys and their sums, in a unit.
func writeHot(c *Context, list []hotkeys.Hot, unit uint64) {
	c.W.Array(2 * len(list))
	for _, h := range list {
		c.W.BulkString(h.Key)
		c.W.Int(int64(h.Sum / unit))
	}
}

// slotRanges returns the ranges that slots make; without slots, those of this node or all there are.
func slotRanges(slots []uint16, v *ClusterView) (ranges []SlotRange) {
	switch {
	case slots == nil && v == nil:
		return []SlotRange{{0, slotCount - 1}}
	case slots == nil && v.own == nil:
		return nil
	case slots == nil:
		return v.own.Slots
	}
	for _, slot := range slots {
		if n := len(ranges); n > 0 && ranges[n-1].Last+1 == slot {
			ranges[n-1].Last = slot
		} else {
			ranges = append(ranges, SlotRange{slot, slot})
		}
	}
	return ranges
}

// writeRanges writes each range as its ends, and a single slot as itself.
func writeRanges(c *Context, ranges []SlotRange) {
	c.W.Array(len(ranges))
	for _, r := range ranges {
		ends := []uint16{r.First, r.Last}
		if r.First == r.Last {
			ends = ends[:1]
		}
		c.W.Array(len(ends))
		for _, e := range ends {
			c.W.Int(int64(e))
		}
	}
}

// hotkeysSub declares a subcommand of HOTKEYS.
func hotkeysSub(name string, arity int, complexity, summary string, run func(*Context), args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: Admin | NoScript, Group: groupServer, Since: "8.6.0",
		Complexity: complexity, Summary: summary, Args: args, Run: run,
	}
}

// hotkeysCommands find the keys that cost most.
var hotkeysCommands = []Command{{
	Name: "hotkeys", Arity: -2, Group: groupServer, Since: "8.6.0",
	Summary: "A container for commands that find the keys that cost most.",
	Subcommands: []Command{
		hotkeysSub("start", -2, "O(1)", "Begins a search: adds up the processor time and bytes of each key. A "+
			"command's time is its share of its batch's, without waiting for the disk.", doHotkeysStart,
			with("METRICS", block("metrics", intArg("count"), opt(word("CPU")), opt(word("NET")))),
			opt(with("COUNT", intArg("k"))), opt(with("DURATION", intArg("seconds"))),
			opt(with("SAMPLE", intArg("ratio"))),
			opt(with("SLOTS", block("slots", intArg("count"), multi(intArg("slot")))))),
		hotkeysSub("stop", 2, "O(1)", "Ends the search. Its findings stay.", doHotkeysStop),
		hotkeysSub("reset", 2, "O(1)", "Drops the findings.", doHotkeysReset),
		hotkeysSub("get", 2, "O(K), where K is the number of keys returned", "Returns the keys that cost "+
			"most, and what all commands have cost. No key has less than it says.", doHotkeysGet),
		since("8.6.0", helpFor("hotkeys", groupServer)),
	},
}}
