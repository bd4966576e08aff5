// Package process starts servers for a measurement, each on a free port of this
// machine with a directory of its own, which goes with it.
package process

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a server that was started. Not safe for concurrent use.
type Process struct {
	Name    string
	Address string        // host:port
	Wait    time.Duration // how long a start may take; 0 for a minute

	binary string
	args   []string
	dir    string
	cmd    *exec.Cmd
	ended  chan error
}

// How long a server may take until it answers, and until it has stopped in order.
const (
	startTimeout = time.Minute
	stopTimeout  = 2 * time.Minute
)

// FBFKV starts an fbfkv, with more arguments of its own.
func FBFKV(ctx context.Context, binary string, args ...string) (*Process, error) {
	return start(ctx, "fbfkv", binary, "data", append([]string{"--loglevel", "warning"}, args...))
}

// Redis starts a redis-server that logs its commands as an fbfkv does. It has a configuration file,
// empty at first, in which a sentinel makes it note whom it follows.
func Redis(ctx context.Context, binary string, args ...string) (*Process, error) {
	return start(ctx, "redis", binary, ".", append([]string{"--bind", "127.0.0.1", "--appendonly", "yes", "--save", ""}, args...))
}

// start starts a server with its data in a directory below its own.
func start(ctx context.Context, name, binary, data string, args []string) (*Process, error) {
	p := &Process{Name: name, Address: "127.0.0.1:" + FreePort(), binary: binary}
	var err error
	if p.dir, err = os.MkdirTemp("", "fbfkv-measured-"); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(p.Address)
	p.args = append([]string{"--port", port, "--dir", filepath.Join(p.dir, data)}, args...)
	if name == "redis" {
		file := filepath.Join(p.dir, "redis.conf")
		err = os.WriteFile(file, nil, 0o600)
		p.args = slices.Insert(p.args, 0, file)
	}
	if err == nil {
		err = p.Run(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// FreePort returns a port that nobody listens on. It is below those that systems give to connections, one of which would
// else have it when a server that was killed is started again.
func FreePort() string {
	for {
		port := strconv.Itoa(10_000 + rand.IntN(22_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			Check(l.Close())
			return port
		}
	}
}

// Run starts the server, again if it ran before, and waits until it answers.
func (p *Process) Run(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// No server must outlive this program, however it ends.
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	cmd, ended := p.cmd, make(chan error, 1)
	p.ended = ended
	go func() { ended <- cmd.Wait() }()
	return p.waitReady(ctx)
}

// waitReady waits for the first PONG.
func (p *Process) waitReady(ctx context.Context) error {
	for end := time.Now().Add(cmp.Or(p.Wait, startTimeout)); ; {
		if p.answers(ctx, end) {
			return nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("%s ended: %w: %s", p.Name, err, p.lastLog())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not answer: %s", p.Name, p.lastLog())
		}
	}
}

// answers reports whether the server answers a PING before a time. One that
// accepts connections and is still recovering lets it wait.
func (p *Process) answers(ctx context.Context, end time.Time) bool {
	nc, err := net.Dial("tcp", p.Address)
	if err != nil {
		return false
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	_ = nc.SetDeadline(end) // what fails shows in the reply
	_, _ = nc.Write([]byte("PING\r\n"))
	reply, err := bufio.NewReader(nc).ReadString('\n')
	return err == nil && reply == "+PONG\r\n"
}

// lastLog is the last line that the server logged.
func (p *Process) lastLog() string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// Pause stops a server and what it does in the background, as SIGSTOP does.
func (p *Process) Pause() error { return p.signal(stopSignal) }

// Resume lets it go on.
func (p *Process) Resume() error { return p.signal(continueSignal) }

// Kill ends the server as a crash would.
func (p *Process) Kill() {
	if p.ended != nil {
		_ = p.signal(syscall.SIGKILL) // it may be gone already
		<-p.ended
		p.ended <- nil
	}
}

// Stop ends the server in order, as a signal to stop does.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			return fmt.Errorf("stopping %s: %w: %s", p.Name, err, p.lastLog())
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stopTimeout):
		return fmt.Errorf("%s has not stopped after %v", p.Name, stopTimeout)
	}
}

// Close ends the server and removes its data.
func (p *Process) Close() error {
	p.Kill()
	return os.RemoveAll(p.dir)
}

// PID is the process' id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Find says, before anything begins, that a program to measure is missing.
func Find(flag, binary string) error {
	if _, err := exec.LookPath(binary); err != nil {
		return fmt.Errorf("%s: %w (make build makes fbfkv)", flag, err)
	}
	return nil
}

// CPU is the processor time that the process has used, seconds; 0 where nothing tells.
func (p *Process) CPU() (seconds float64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	_, rest, _ := strings.Cut(string(b), ") ")
	if fields := strings.Fields(rest); len(fields) > 12 {
		for _, ticks := range fields[11:13] {
			n, _ := strconv.ParseFloat(ticks, 64) // the kernel writes numbers
			seconds += n / 100
		}
	}
	return seconds
}

// failure is what Check panics with.
type failure struct{ error }

// Check ends a measurement with an error, if there is one: nothing can be mended. Catch or Main take it.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must is Check for a call that returns a value.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Catch, deferred, returns the error that ended a measurement.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

// Main runs a command until it is over or interrupted, and ends the program with its error.
func Main(run func(ctx context.Context)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := func() (err error) {
		defer Catch(&err)
		run(ctx)
		return nil
	}()
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Sleep waits, unless the program is to end.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
