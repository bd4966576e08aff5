package region

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

func statusCommand() operate.Subcommand {
	var acknowledge bool
	return operate.Subcommand{
		Use:   "status HOST:PORT [--acknowledge]",
		Short: "show how a region reads the others",
		Long:  statusHelp, Args: cobra.ExactArgs(1),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&acknowledge, "acknowledge", false, "take note of operations that may "+
				"count twice")
		},
		Run: run(func(o *operator, args []string) error { return o.show(args[0], acknowledge) }),
	}
}

const statusHelp = `Shows the regions, as the server HOST:PORT sees them: how far it has read each of the others,
and what is wrong. Ask each region, since a link may be broken in one direction only. The exit status is 0 if it reads all of them and nothing is wrong, otherwise
1. REGION STATUS answers the same and more as JSON.

Operations that could not be compared may count twice. They are a problem until you take note of
them with --acknowledge; then only further ones are.

  behind   unread entries of the other's log, as far as it says
  lag      how much older the last entry read is than the newest one of the other
  clock    by how much the other's clock leads this one's
  received bytes of answers, since the address changed or the server was started
  version  of the set of regions, as the other knows it: a lower one lacks the last change,
           such as a flush`

var pauseCommand = operate.Subcommand{
	Use:   "pause HOST:PORT NAME",
	Short: "let a region stop reading another one",
	Long: `Lets the server HOST:PORT stop reading the region NAME, until it is resumed or started
again. Nothing is lost: NAME keeps its log for it, up to region-backlog; beyond that,
HOST:PORT fetches NAME's state. NAME still reads HOST:PORT; to stop both, pause both.`,
	Args: cobra.ExactArgs(2), Run: run(func(o *operator, args []string) error {
		return o.tell(args[0], "PAUSE", args[1], "does not read %s any more")
	}),
}

var resumeCommand = operate.Subcommand{
	Use:   "resume HOST:PORT NAME",
	Short: "let a region read another one again",
	Long: `Lets the server HOST:PORT read the region NAME again after pause, and at once if it is
waiting because NAME could not be read.`,
	Args: cobra.ExactArgs(2), Run: run(func(o *operator, args []string) error {
		return o.tell(args[0], "RESUME", args[1], "reads %s")
	}),
}

var verifyCommand = operate.Subcommand{
	Use:   "verify HOST:PORT",
	Short: "compare the counters of the regions",
	Long: `Compares the region HOST:PORT with each of the others, by digests of all counters; they
serve meanwhile. The exit status is 0 if all agree. A region that is paused or
cannot be reached is named, and the rest is compared. Keys that change all the time may not be
comparable: run it again. Regions also compare themselves once an hour; status shows the slots
that differed twice in a row.`,
	Args: cobra.ExactArgs(1), Run: run(func(o *operator, args []string) error { return o.verify(args[0]) }),
}

// verify compares regions. It takes as long as it takes.
func (o *operator) verify(addr string) error {
	_, st, readers, err := o.readers(addr)
	switch {
	case err != nil:
		return err
	case st.Removed:
		return removed(addr, &st)
	case st.Restored: // the others do not tell it what they have
		return fmt.Errorf("%s: %w", addr, store.ErrRestored)
	}
	var all []regions.Verdict
	for _, s := range readers {
		some, err := o.verdicts(s.Addr)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	if _, st, err = o.status(addr); err != nil {
		return err
	}
	differ, missed, told := 0, []string{}, map[string]bool{}
	for _, v := range all {
		if p := peer(&st, v.Region); p != nil && v.Error == regions.ErrBusy.Error() {
			if state, ill := judge(p); ill != "" { // running it again does not help
				v.Error = ill
			} else if p.LagOps > 0 {
				v.Error = fmt.Sprintf("%s, %s or more are unread: see fbfkv region status %s", state,
					operate.Count(int(p.LagOps), "operation"), addr)
			}
		}
		line := fmt.Sprintf("slots %d to %d differ from the same slots of %s", v.First, v.Last, v.Region)
		if v.Error == "" {
			differ++
		} else {
			line = fmt.Sprintf("%s: %s", v.Region, v.Error)
			if !slices.Contains(missed, v.Region) {
				missed = append(missed, v.Region)
			}
		}
		if !told[line] {
			told[line] = true
			o.Say("%s", line)
		}
	}
	rest := "not everything could be compared with " + strings.Join(missed, ", ")
	switch {
	case differ > 0 && len(missed) > 0:
		return fmt.Errorf("%s: %s; %s", addr, operate.Count(differ, "difference"), rest)
	case differ > 0:
		return fmt.Errorf("%s: %s", addr, operate.Count(differ, "difference"))
	case len(missed) > 0:
		return fmt.Errorf("%s: everything compared agrees; %s", addr, rest)
	}
	o.Say("%s: the regions agree", addr)
	return nil
}

// verdicts asks one server for its verdicts.
func (o *operator) verdicts(addr string) (all []regions.Verdict, err error) {
	s, err := o.Patient(addr)
	if err == nil {
		err = s.AskJSON(&all, "REGION", "VERIFY")
	}
	return all, err
}

var conflictsCommand = operate.Subcommand{
	Use:   "conflicts HOST:PORT",
	Short: "list operations that two regions applied",
	Long: `Lists the operations that two regions applied, each before it knew of the other, as far as the
server HOST:PORT remembers: the last 10,000 since it was started, the newest first. One application of
each counts; the other one is taken back.`,
	Args: cobra.ExactArgs(1),
	Run:  run(func(o *operator, args []string) error { return o.conflicts(args[0]) }),
}

// conflicts lists those of all shards.
func (o *operator) conflicts(addr string) error {
	_, _, readers, err := o.readers(addr)
	if err != nil {
		return err
	}
	var all []regions.Conflict
	for _, s := range readers {
		var some []regions.Conflict
		if err := s.AskJSON(&some, "REGION", "CONFLICTS"); err != nil {
			return err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b regions.Conflict) int { return cmp.Compare(b.MetMs, a.MetMs) })
	for _, c := range all {
		o.Say("%s  %q  %q  %s takes back %+d: %s had applied it first",
			time.UnixMilli(c.MetMs).UTC().Format(time.RFC3339), c.Key, c.ID, c.TakenBack, c.Delta, c.Kept)
	}
	o.Say("%s", operate.Count(len(all), "conflict"))
	return nil
}

// tell carries out a operate.Subcommand about another region.
func (o *operator) tell(addr, verb, name, done string) error {
	_, _, readers, err := o.readers(addr)
	if err != nil {
		return err
	}
	for _, s := range readers {
		if _, err := s.Ask("REGION", verb, name); err != nil {
			return err
		}
	}
	o.Say("%s: "+done, addr, name)
	return nil
}

// show prints a status.
func (o *operator) show(addr string, acknowledge bool) error {
	st, err := o.whole(addr)
	if err == nil && acknowledge {
		if err = o.acknowledge(addr, &st); err == nil {
			st, err = o.whole(addr)
		}
	}
	if err != nil {
		return err
	}
	is := fmt.Sprintf("one of %d, version %d of the set; %s admits new ones", len(st.Peers)+1, st.Version,
		st.Arbiter)
	if st.Removed {
		is = fmt.Sprintf("removed by version %d of the set", st.Version)
	}
	o.Say("region %s, number %d, at %s; %s", st.Name, st.Number, st.Address, is)
	if st.Era > 0 {
		o.Say("era %d: all regions were flushed %s", st.Era, operate.Count(int(st.Era), "time"))
	}
	ills := st.Ills
	if len(st.Peers) > 0 {
		w := o.Table("region\tnumber\taddress\tstate\tbehind\tlag\tclock\treceived\tversion")
		for i := range st.Peers {
			p := &st.Peers[i]
			state, ill := judge(p)
			if ill != "" {
				ills = append(ills, p.Name+" "+ill)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", p.Name, p.Number, p.Address, state,
				behind(p), ms(p.LagMs), clock(p), size(p.Bytes), p.Version)
		}
		w.Flush()
	}
	for _, r := range st.Removals {
		if r.Done {
			o.Say("%s (number %d) was removed; its heir %s looks after its counts", r.Name, r.Number, r.Heir)
		} else {
			o.Say("%s (number %d) was removed, and its heir is %s: %s", r.Name, r.Number, r.Heir, r.State)
		}
	}
	if n := st.Operations; n.Twins > 0 {
		o.Say("%s applied in two regions, of which %d taken back here", operate.Count(int(n.Twins), "operation"),
			n.TakenBack)
	}
	if n := st.Operations.Owed; n > 0 {
		o.Say("%s of these count twice until there is room to take them back", operate.Count(int(n), "operation"))
	}
	if n := st.Operations.Aside; n > 0 {
		o.Say("%s of counters whose keys hold objects here, which CGET key REGIONS shows: rename these objects",
			operate.Count(int(n), "change"))
	}
	if n := st.Acknowledged; n > 0 {
		o.Say("up to %s that could not be compared may count twice (acknowledged)",
			operate.Count(int(n), "operation"))
	}
	for _, line := range ills {
		o.Say("%s", line)
	}
	if len(ills) > 0 {
		return fmt.Errorf("%s is not well: %s", addr, operate.Count(len(ills), "problem"))
	}
	return nil
}

// maxSkew is by how much clocks may differ before it is a problem, ms.
const maxSkew = 2500

// judge returns what the reading of a region does, and what is wrong with it and helps.
func judge(p *regions.PeerStatus) (state, ill string) {
	switch {
	case p.Paused:
		return "paused", "is not read until fbfkv region resume"
	case p.Failing && p.Connected:
		return "failing", "is read in part: " + p.LastError
	case p.Failing:
		return "failing", fmt.Sprintf("cannot be read at %s: %s", p.Address, p.LastError)
	case !p.Connected:
		return "connecting", ""
	case p.ClockSkewMs > maxSkew || p.ClockSkewMs < -maxSkew:
		ill = fmt.Sprintf("has a clock that differs by %s: keep the clocks together, as with NTP",
			ms(p.ClockSkewMs))
	}
	if p.LagOps > 0 {
		return "catching up", ill
	}
	return "reading", ill
}

// behind is what is known of how much is not taken yet.
func behind(p *regions.PeerStatus) string {
	ops, known := p.Behind()
	switch {
	case known:
		return fmt.Sprint(ops)
	case ops > 0:
		return fmt.Sprintf("%d or more", ops)
	}
	return "unknown"
}

func clock(p *regions.PeerStatus) string {
	if p.LastAnswerMs == 0 {
		return "-"
	}
	return fmt.Sprintf("%+d ms", p.ClockSkewMs)
}

func ms(n int64) string {
	if n > -1000 && n < 1000 {
		return fmt.Sprintf("%d ms", n)
	}
	return (time.Duration(n) * time.Millisecond).Round(time.Second).String()
}

// size is a number of bytes as it is shown.
func size(n uint64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for ; f >= 1024; i++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}
