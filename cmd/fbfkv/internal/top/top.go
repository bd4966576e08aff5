// Package top is the command `fbfkv top`: it shows on a terminal, live, what a server does,
// from what INFO says.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

const help = `Shows a server live: operations and absorbed duplicates, latency, each table's window
as its generations, memory, disk and slow operations. q or Ctrl-C ends it. Into a file
or a pipe it prints the figures of one interval once.

The user needs permission to run INFO, and SLOWLOG for the slow operations. Set the
password in the environment variable ` + connect.PasswordVariable + `, as for redis-cli.`

// patience is how long an answer may take, in which the screen says nothing new.
const patience = 3 * time.Second

// New returns the subcommand.
func New() *cobra.Command {
	var login connect.Flags
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top [HOST:PORT] [--interval DURATION] " + connect.Usage,
		Short: "watch a server in a terminal",
		Long:  help,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, _ := connect.Server(args, 0)
			client, err := login.Client(addr, patience)
			if err != nil {
				return err
			}
			defer client.Close()
			return watch(client, addr, max(interval, 100*time.Millisecond), cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how long rates are measured for, at "+
		"least 100ms")
	login.Add(cmd.Flags())
	return cmd
}

// watch shows the server until it is told to end. Only the first answer must come: from
// then on it waits for a server that is gone.
func watch(client *connect.Client, addr string, interval time.Duration, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	first, err := take(ctx, client)
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	sc := &screen{addr: addr, unicode: speaksUTF8()}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return once(ctx, client, sc, first, interval, out)
	}
	restore, keys := takeTerminal(file)
	defer restore()
	return live(ctx, client, sc, first, interval, file, keys)
}

// once prints the figures of one interval.
func once(ctx context.Context, client *connect.Client, sc *screen, first *sample, interval time.Duration,
	out io.Writer) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(interval):
	}
	s, err := take(ctx, client)
	if err != nil {
		return fmt.Errorf("%s: %w", sc.addr, err)
	}
	_, err = fmt.Fprintln(out, strings.Join(sc.lines(s, first, nil), "\n"))
	return err
}

// answer is what came of asking.
type answer struct {
	*sample
	err error
}

// live draws again after each answer, and when the terminal has another size.
func live(ctx context.Context, client *connect.Client, sc *screen, shown *sample, interval time.Duration,
	file *os.File, keys <-chan byte) error {
	answers := make(chan answer, 1)
	ask := func() {
		s, err := take(ctx, client)
		answers <- answer{s, err}
	}
	resized := make(chan os.Signal, 1)
	notifyResize(resized)
	defer signal.Stop(resized)
	var before *sample
	var problem error
	next := time.After(interval)
	for {
		if err := draw(file, sc, shown, before, problem); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if key == 'q' || key == 'Q' || key == 3 { // Ctrl-C
				return nil
			}
		case <-resized:
		case <-next:
			next = nil
			go ask()
		case a := <-answers:
			next = time.After(interval)
			if problem = explain(a.err); problem == nil {
				before, shown = shown, a.sample
			} else {
				before = nil // no rates without figures from before
			}
		}
	}
}

// explain shortens errors of the network.
func explain(err error) error {
	var op *net.OpError
	var timed interface{ Timeout() bool }
	switch {
	case errors.As(err, &timed) && timed.Timeout():
		return errors.New("the server is silent")
	case errors.As(err, &op):
		return op.Err
	case errors.Is(err, io.EOF):
		return errors.New("the connection was closed")
	}
	return err
}

// draw puts the lines on the terminal, in one write.
func draw(file *os.File, sc *screen, s, before *sample, problem error) error {
	var err error
	if sc.width, sc.height, err = term.GetSize(int(file.Fd())); err != nil || sc.width < 1 || sc.height < 1 {
		sc.width, sc.height = 80, 24 // as terminals do that do not know
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range sc.lines(s, before, problem) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err = file.WriteString(b.String())
	return err
}

// takeTerminal turns to another screen of the terminal, and lets keys come one by one
// if the input is a terminal as well. restore undoes both.
func takeTerminal(file *os.File) (restore func(), keys <-chan byte) {
	pressed := make(chan byte)
	in := int(os.Stdin.Fd())
	state, err := term.MakeRaw(in)
	if err == nil {
		go func() {
			for b := make([]byte, 1); ; {
				if n, err := os.Stdin.Read(b); n == 1 {
					pressed <- b[0]
				} else if err != nil {
					return
				}
			}
		}()
	}
	file.WriteString("\x1b[?1049h\x1b[?25l\x1b[?7l") // the other screen, no cursor, lines are not wrapped
	return func() {
		file.WriteString("\x1b[?7h\x1b[?25h\x1b[?1049l")
		if state != nil {
			term.Restore(in, state)
		}
	}, pressed
}

// speaksUTF8 reports whether the terminal shows more than ASCII, as its locale says.
func speaksUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
