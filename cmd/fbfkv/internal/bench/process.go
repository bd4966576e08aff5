package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server started for a measurement, with a directory of its own.
type process struct {
	target Target
	name   string
	binary string
	args   []string
	env    []string
	dir    string
	cmd    *exec.Cmd
	ended  chan error
}

// startTimeout is how long a server may take until it answers.
const startTimeout = time.Minute

// startFBFKV starts an fbfkv on a free port of this machine.
func startFBFKV(ctx context.Context, binary, fsync string, env []string, more ...string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fbfkv-bench-")
	if err != nil {
		return nil, err
	}
	return start(ctx, &process{name: "fbfkv", binary: binary, dir: dir, env: env, target: local(port),
		args: append([]string{"--port", port, "--dir", filepath.Join(dir, "data"), "--appendfsync", fsync, "--loglevel", "warning"}, more...)})
}

// startRedis starts a redis-server with the same durability.
func startRedis(ctx context.Context, binary, fsync string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fbfkv-bench-")
	if err != nil {
		return nil, err
	}
	return start(ctx, &process{name: "redis", binary: binary, dir: dir, target: local(port),
		args: []string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes", "--appendfsync", fsync, "--save", ""}})
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
	for end := time.Now().Add(startTimeout); ; {
		if p.answers(end) {
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
func (p *process) answers(end time.Time) bool {
	nc, err := net.Dial("tcp", p.target.address)
	if err != nil {
		return false
	}
	defer nc.Close()
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
		_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may be gone already
		<-p.ended
		p.ended <- nil
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

// info returns a figure of INFO.
func (p *process) info(ctx context.Context, name string) (float64, error) {
	c := p.target.client()
	defer c.Close()
	text, err := c.Info(ctx, "everything").Result()
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:([0-9.]+)`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("INFO of %s has no %s", p.name, name)
	}
	return strconv.ParseFloat(m[1], 64)
}

// rss is the resident memory of the server, bytes.
func (p *process) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb * 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// cpu is the processor time the server has used, seconds.
func (p *process) cpu() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold spaces; utime and stime are the 12th
	// and 13th field behind it, in hundredths of a second.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is too short")
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, errors.Join(err, err2)
}
