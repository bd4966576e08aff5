package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeRun starts the server and says how many seconds it took to answer, and what share
// of the processor time the hypervisor gave to others meanwhile.
func (p *process) timeRun(ctx context.Context) (seconds, steal float64, err error) {
	stolen := watchSteal()
	began := time.Now()
	if err := p.run(ctx); err != nil {
		return 0, 0, err
	}
	return time.Since(began).Seconds(), stolen(), nil
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

// clockTicks are the units of /proc's processor times in a second.
const clockTicks = 100

// cpu is the processor time the server has used, seconds: all of it, and of
// that the kernel's.
func (p *process) cpu() (all, kernel float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	// The name in parentheses may hold spaces; utime and stime are the 12th
	// and 13th field behind it.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, 0, errors.New("/proc/PID/stat is too short")
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / clockTicks, system / clockTicks, errors.Join(err, err2)
}

// machineTime is the time that this machine's processors had since it started, in
// seconds of processor time.
type machineTime struct {
	all   float64
	idle  float64 // they had nothing to do
	steal float64 // the hypervisor let others run
}

// since is the time from an earlier one on.
func (m machineTime) since(before machineTime) machineTime {
	return machineTime{all: m.all - before.all, idle: m.idle - before.idle, steal: m.steal - before.steal}
}

// watchSteal returns what tells the share of the processor time that others had from
// now on; 0 if this system does not say.
func watchSteal() (share func() float64) {
	before, err := machine()
	return func() float64 {
		now, err2 := machine()
		if err != nil || err2 != nil {
			return 0
		}
		d := now.since(before)
		return divide(d.steal, d.all)
	}
}

// machine reads the time of this machine's processors.
func machine() (m machineTime, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	// user nice system idle iowait irq softirq steal, and guests, which are
	// part of user and nice.
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return m, errors.New("/proc/stat has no line of all processors")
	}
	for i, text := range fields[1:9] {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return m, fmt.Errorf("/proc/stat: %w", err)
		}
		v /= clockTicks
		m.all += v
		switch i {
		case 3, 4:
			m.idle += v
		case 7:
			m.steal += v
		}
	}
	return m, nil
}
