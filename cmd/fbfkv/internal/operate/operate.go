// Package operate is what commands that look after several servers have in common: each of
// their subcommands says what it is about to do and asks, shows each step, and can be run again
// if it was interrupted.
package operate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// RetryPeriod is the time between two looks at something that is expected to come.
const RetryPeriod = 100 * time.Millisecond

// Operator is one run of a subcommand.
type Operator struct {
	Login    connect.Flags
	Yes      bool
	Patience time.Duration

	In          io.Reader
	Out, Stderr io.Writer

	servers map[address]*Server
}

// Subcommand is one of a command's.
type Subcommand struct {
	Use, Short, Long string
	Args             cobra.PositionalArgs
	Flags            func(cmd *cobra.Command)
	Run              func(o *Operator, args []string) error
}

// Command is a command that has subcommands.
type Command struct {
	Name, Short, Long string
	Patience          string // what it is waited for
	Subcommands       []Subcommand
}

// New returns the command line.
func (c Command) New() *cobra.Command {
	root := &cobra.Command{
		Use:   c.Name + " COMMAND",
		Short: c.Short,
		Long:  c.Long,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("fbfkv %s has no command %.40q (fbfkv %[1]s --help lists them)", c.Name,
				args[0])
		},
	}
	var lines strings.Builder
	for _, s := range c.Subcommands {
		root.AddCommand(c.subcommand(s))
		fmt.Fprintf(&lines, "  %s\n      %s\n", s.Use, s.Short)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if cmd != root {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
			return
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nCommands:\n%s\nfbfkv %s COMMAND --help tells more.\n", c.Long,
			lines.String(), c.Name)
	})
	return root
}

// subcommand makes the command line of a subcommand.
func (c Command) subcommand(s Subcommand) *cobra.Command {
	o := new(Operator)
	cmd := &cobra.Command{Use: s.Use + " [flags]", Short: s.Short, Long: s.Long}
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if s.Args(cmd, args) != nil {
			return fmt.Errorf("usage: fbfkv %s %s (fbfkv %[1]s %[3]s --help tells more)", c.Name, s.Use,
				cmd.Name())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.In, o.Out, o.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		defer o.close()
		return s.Run(o, args)
	}
	o.Login.Add(cmd.Flags())
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	cmd.Flags().DurationVar(&o.Patience, "patience", time.Minute, "for how long to wait for "+c.Patience)
	if s.Flags != nil {
		s.Flags(cmd)
	}
	return cmd
}

// errNotConfirmed: nothing was done.
var errNotConfirmed = errors.New("nothing was done: it was not confirmed; --yes does not ask")

// Say prints a line about what is done.
func (o *Operator) Say(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

// Confirm shows what will be done and asks whether to go on.
func (o *Operator) Confirm(plan ...string) error {
	for _, line := range plan {
		o.Say("%s", line)
	}
	if o.Yes {
		return nil
	}
	fmt.Fprint(o.Out, `Type "yes" to go on: `)
	answer, _ := bufio.NewReader(o.In).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		fmt.Fprintln(o.Out)
		return errNotConfirmed
	}
	return nil
}

// Count says how many there are of something.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Table returns a table below a heading. Tabs divide columns, Flush prints it.
func (o *Operator) Table(heading string) *tabwriter.Writer {
	w := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	return w
}

// Progress shows on a terminal how much of the largest amount seen is left.
type Progress struct {
	*bar.Bar
	stage string
	most  uint64
}

// Progress returns a bar for a stage.
func (o *Operator) Progress(stage string) *Progress { return &Progress{bar.New(o.Stderr), stage, 0} }

// Left draws the bar.
func (p *Progress) Left(n uint64) {
	p.most = max(p.most, n)
	p.Set(p.stage, false, int64(p.most-n), int64(p.most))
}

// Watch calls look every now and then, until look returns an error or has nothing left to wait for.
// The error left says what is awaited: Watch ends with it when nothing has moved for patience.
func Watch(patience time.Duration, look func() (left error, moved bool, err error)) error {
	for end := time.Now().Add(patience); ; time.Sleep(RetryPeriod) {
		left, moved, err := look()
		if left == nil || err != nil {
			return err
		}
		if moved {
			end = time.Now().Add(patience)
		}
		if time.Now().After(end) {
			return left
		}
	}
}

// Wait calls done every now and then until it reports true. An error that is not transient
// ends it. When patience ends, the error is the last one, or names what did not come.
func (o *Operator) Wait(what string, done func() (bool, error)) error {
	return Watch(o.Patience, func() (left error, _ bool, err error) {
		ok, err := done()
		switch {
		case ok && err == nil:
			return nil, false, nil
		case err != nil && !Transient(err):
			return nil, false, err
		case err != nil:
			return fmt.Errorf("gave up after %v waiting for %s: %w; run the command again", o.Patience, what,
				err), false, nil
		}
		return fmt.Errorf("gave up after %v waiting for %s; run the command again", o.Patience, what), false, nil
	})
}
