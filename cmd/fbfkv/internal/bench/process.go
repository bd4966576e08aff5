package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a server started for a measurement, with a directory of its own.
type process struct {
	target Target
	web    string // of an fbfkv: host:port of its metrics and profiles
	name   string
	binary string
	args   []string
	env    []string
	dir    string
	cmd    *exec.Cmd
	ended  chan error
	// patience is how long the server may take until it answers; 0 for startTimeout.
	patience time.Duration
}

// How long a server may take until it answers, and until it has stopped in order.
const (
	startTimeout = time.Minute
	stopTimeout  = 2 * time.Minute
)

// startFBFKV starts an fbfkv on a free port of this machine.
func startFBFKV(ctx context.Context, binary, fsync string, env []string, more ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	web, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fbfkv-bench-")
	if err != nil {
		return nil, err
	}
	p := &process{name: "fbfkv", binary: binary, dir: dir, env: env, target: local(port), web: "127.0.0.1:" + web}
	p.args = append([]string{"--port", port, "--dir", filepath.Join(dir, "data"), "--appendfsync", fsync, "--loglevel", "warning",
		"--metrics-addr", p.web, "--pprof", "yes"}, more...)
	return start(ctx, p)
}

// startRedis starts a redis-server with the same durability.
func startRedis(ctx context.Context, binary, fsync string, more ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fbfkv-bench-")
	if err != nil {
		return nil, err
	}
	return start(ctx, &process{name: "redis", binary: binary, dir: dir, target: local(port),
		args: append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes", "--appendfsync", fsync, "--save", ""}, more...)})
}

func local(port string) Target {
	t := Target{URL: "redis://127.0.0.1:" + port}
	t.address = "127.0.0.1:" + port
	return t
}

// freePort returns a port that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// start runs the server and waits until it answers.
func start(ctx context.Context, p *process) (*process, error) {
	if err := p.run(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// run starts the process and waits until it answers.
func (p *process) run(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// What ends this program must not leave servers behind.
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.ended = make(chan error, 1)
	go func() { p.ended <- p.cmd.Wait() }()
	return p.waitReady(ctx)
}

// waitReady waits for the first PONG.
func (p *process) waitReady(ctx context.Context) error {
	for end := time.Now().Add(cmp.Or(p.patience, startTimeout)); ; {
		if p.answers(ctx, end) {
			return nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("%s ended: %w: %s", p.name, err, p.lastLog())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not answer: %s", p.name, p.lastLog())
		}
	}
}

// answers reports whether the server answers a PING before a time. One that
// accepts connections and is still recovering lets it wait.
func (p *process) answers(ctx context.Context, end time.Time) bool {
	nc, err := net.Dial("tcp", p.target.address)
	if err != nil {
		return false
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	if nc.SetDeadline(end) != nil {
		return false
	}
	if _, err := nc.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	reply, err := bufio.NewReader(nc).ReadString('\n')
	return err == nil && reply == "+PONG\r\n"
}

// lastLog is the last line that the server logged.
func (p *process) lastLog() (last string) {
	f, err := os.Open(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		last = lines.Text()
	}
	return last
}

// kill ends the server as a crash would.
func (p *process) kill() {
	if p.cmd != nil && p.cmd.Process != nil && p.ended != nil {
		_ = p.signal(syscall.SIGKILL) // it may be gone already
		<-p.ended
		p.ended <- nil
	}
}

// stop ends the server in order, as a signal to stop does.
func (p *process) stop(ctx context.Context) error {
	if err := errors.Join(p.resume(), p.cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			return fmt.Errorf("stopping %s: %w: %s", p.name, err, p.lastLog())
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stopTimeout):
		return fmt.Errorf("%s has not stopped after %v", p.name, stopTimeout)
	}
}

// close ends the server and removes its data.
func (p *process) close() error {
	p.kill()
	return os.RemoveAll(p.dir)
}

// do sends one command.
func (p *process) do(ctx context.Context, args ...any) error {
	c := p.target.client()
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%s: %v: %w", p.name, args, err)
	}
	return nil
}
