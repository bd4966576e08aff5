package bench

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// job is one point of one curve.
type job struct {
	curve, point int // numbers
	profile      bool
}

// jobs are the points of a sweep in the order in which they are measured: curve
// by curve, or all curves at one point, then at the next.
func (s *sweeper) jobs(one sweep) (all []job) {
	n := 0
	for n < len(one.points) && one.points[n] <= s.most {
		n++
	}
	for c := range one.curves {
		for p := range n {
			profile := s.profile > 0 && (p == 0 || p == n/2 || p == n-1)
			if t := one.curves[c].at; profile && t != nil {
				// While a profile is taken the load goes on.
				profile = !t(one.points[p]).steady || one.points[p] >= minSteady
			}
			all = append(all, job{c, p, profile})
		}
	}
	if one.byPoint {
		slices.SortStableFunc(all, func(a, b job) int { return cmp.Compare(a.point, b.point) })
	}
	return all
}

// minSteady is from where on a profile's load leaves the order of magnitude of
// what was filled in as it is.
const minSteady = 1e6

// How many operations a second a server is foreseen to be filled with, and how
// many if each makes a counter.
const (
	fillRate   = 600e3
	createRate = 100e3
)

// lengthOf is how long a point is foreseen to take, in seconds.
func (s *sweeper) lengthOf(one sweep, j job) float64 {
	t := one.curves[j.curve].at(one.points[j.point])
	seconds := 0.3 + t.warmup + float64(s.rounds)*s.seconds*1.2
	if t.preload > 0 && (!one.byPoint || j.curve == 0) {
		if t.settle {
			seconds += 2 * settleLook.Seconds()
		}
		rate := fillRate
		if t.fillKeys != "" {
			rate = createRate
		}
		seconds += float64(t.preload) / rate
	}
	if j.profile {
		seconds += float64(s.profile) + 0.6
	}
	return seconds
}

// figuresOf is what one point measured.
type figuresOf struct {
	*Result
	serverCPU float64 // processors used by the server, on average
	others    float64 // the largest share of the processors that the hypervisor gave to others, in any round of the point
	// elsewhere is the share of the processors that neither the server nor the generator
	// used, and that was not idle: other programs, the kernel's own threads, the hypervisor.
	elsewhere float64
}

// sweep measures every point and writes the files. What fails is noted; the
// error is of writing, or of an interruption, after which nothing is written.
func (s *sweeper) sweep(ctx context.Context, one sweep) error {
	points := make([][]*figuresOf, len(one.curves))
	spent := make([][]profiled, len(one.curves))
	for c := range points {
		points[c] = make([]*figuresOf, len(one.points))
	}
	jobs := s.jobs(one)
	for i, j := range jobs {
		curve, x := one.curves[j.curve], one.points[j.point]
		s.progress.Set(one.name+" "+curve.name, false, int64(i), int64(len(jobs)))
		m, p, err := s.point(ctx, one, j)
		if ctx.Err() != nil {
			return errInterrupted
		}
		s.forecast.add(s.lengthOf(one, j))
		if m != nil {
			points[j.curve][j.point] = m
			s.progress.Clear()
			fmt.Fprintf(s.stdout, "%-12s %-24s %10s  %12s/s  p99 %-7s server %.2f processors  (%s)\n", one.name, curve.name, tickLabel(x),
				thousands(m.Throughput), short(m.Latency.P99), m.serverCPU, s.forecast.left())
		}
		if p != nil {
			spent[j.curve] = append(spent[j.curve], *p)
			fmt.Fprintf(s.stdout, "%-12s %-24s %10s  bound by %s\n", one.name, curve.name, tickLabel(x), p.bound())
		}
		if err != nil {
			s.fail(fmt.Sprintf("%s, %s, %s", one.name, curve.name, tickLabel(x)), err)
		}
	}
	if err := s.stopServer(); err != nil {
		return err
	}
	return errors.Join(s.writeSweep(one, points), s.writeSpent(one, slices.Concat(spent...)))
}

// point measures one point, and then profiles it if that is wanted.
func (s *sweeper) point(ctx context.Context, one sweep, j job) (*figuresOf, *profiled, error) {
	x := one.points[j.point]
	t := one.curves[j.curve].at(x)
	m, o, err := s.measure(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	if !j.profile {
		return &m, nil, nil
	}
	p := &profiled{curve: one.curves[j.curve].name, x: x, throughput: m.Throughput}
	p.spent, err = s.profileLoad(ctx, o, s.profile, t.steady, s.keptAs(one.name, p.curve, tickLabel(x)))
	if err != nil {
		return &m, nil, err
	}
	return &m, p, nil
}

// profileLoad profiles the server under a load, and again if that was disturbed,
// unless no more may be sent than must. The profile is also written to the file keep,
// unless that is "".
func (s *sweeper) profileLoad(ctx context.Context, o Options, seconds int, once bool, keep string) (spent, error) {
	q := &s.quiet
	if once {
		q = &quiet{}
	}
	p, err := takeQuiet(ctx, q, func() (spent, error) {
		p, sent, err := profileLoad(ctx, s.server, o, seconds)
		s.sent += sent
		return p, err
	})
	if err == nil && keep != "" {
		err = os.WriteFile(keep, p.raw, 0o644)
	}
	return p, err
}

// keptAs is the file that a profile is kept in, "" for none.
func (s *sweeper) keptAs(name ...string) string {
	if !s.keep {
		return ""
	}
	return filepath.Join(s.out, strings.NewReplacer(", ", "-", " ", "-").Replace(strings.Join(name, "-"))+".pb.gz")
}

// writeSweep writes what was measured; nothing if nothing was.
func (s *sweeper) writeSweep(one sweep, points [][]*figuresOf) error {
	c := chart{title: one.title, x: one.x, y: "thousand operations per second", logX: !one.linear}
	rows := [][]string{{one.x, "curve", "operations_per_second", "p50_ms", "p99_ms", "p99.9_ms", "server_processors", "generator_processors", "others_percent", "elsewhere_percent"}}
	for i, curve := range one.curves {
		l := line{name: curve.name}
		for k, m := range points[i] {
			if m == nil {
				continue
			}
			x := one.points[k]
			l.x, l.y = append(l.x, x), append(l.y, m.Throughput/1e3)
			rows = append(rows, []string{fmt.Sprint(x), curve.name, number(m.Throughput), number(m.Latency.P50 * 1e3), number(m.Latency.P99 * 1e3),
				number(m.Latency.P999 * 1e3), number(m.serverCPU), number(divide(m.CPU, m.Seconds)), number(100 * m.others), number(100 * m.elsewhere)})
		}
		c.lines = append(c.lines, l)
	}
	if len(rows) == 1 {
		return nil
	}
	return s.write(one.name, rows, c)
}

// writeSpent writes what the profiles say: a table, a picture, and the table in
// the document.
func (s *sweeper) writeSpent(one sweep, points []profiled) error {
	if len(points) == 0 {
		return nil
	}
	if err := s.writeSpentFiles(one.name, one.x, points); err != nil {
		return err
	}
	if s.into == "" {
		return nil
	}
	return rewrite(s.into, one.name, spentMarkdown(one.x, points))
}

// write writes the two files of a sweep.
func (s *sweeper) write(name string, rows [][]string, c chart) error {
	return errors.Join(s.writeRows(name, rows), c.write(filepath.Join(s.out, name+".svg")))
}

// writeRows writes a CSV file.
func (s *sweeper) writeRows(name string, rows [][]string) error {
	f, err := os.Create(filepath.Join(s.out, name+".csv"))
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close())
}

// measure runs one trial; of several rounds it returns the one in the middle,
// and what was sent.
func (s *sweeper) measure(ctx context.Context, t trial) (m figuresOf, o Options, err error) {
	if err := s.serverFor(ctx, t); err != nil {
		return m, o, err
	}
	o = DefaultOptions()
	o.Target = s.server.target
	o.Duration = time.Duration(s.seconds * float64(time.Second))
	o.Warmup = o.Duration / 5
	t.change(&o)
	before := s.sent
	if err := s.fill(ctx, t, o); err != nil {
		return m, o, err
	}
	if t.settle && s.sent > before {
		if err := s.settle(ctx); err != nil {
			return m, o, err
		}
	}
	if t.warmup > 0 {
		warm := o
		warm.Duration = time.Duration(t.warmup * float64(time.Second))
		if _, err := s.load(ctx, warm); err != nil {
			return m, o, err
		}
	}
	all, err := s.loads(ctx, t, o)
	if err != nil {
		return m, o, err
	}
	slices.SortFunc(all, func(a, b figuresOf) int { return cmp.Compare(a.Throughput, b.Throughput) })
	m = all[len(all)/2]
	for _, r := range all {
		m.others = max(m.others, r.Steal)
	}
	return m, o, nil
}

// loads runs a trial's load for every round.
func (s *sweeper) loads(ctx context.Context, t trial, o Options) (all []figuresOf, err error) {
	seconds := float64(s.rounds) * s.seconds
	if t.steady {
		o.Count, o.Warmup = max(t.preload, int64(o.Connections)), 0
	}
	for total := 0.0; len(all) < s.rounds || t.steady && total < seconds && len(all) < maxSlices; {
		if t.steady && s.sent > t.preload {
			if err := s.server.do(ctx, "FLUSHALL"); err != nil {
				return nil, err
			}
			s.sent = 0
			if err := s.fill(ctx, t, o); err != nil {
				return nil, err
			}
		}
		load := s.loadQuietly
		if t.steady { // no more may be added than must
			load = s.load
		}
		m, err := load(ctx, o)
		if err != nil {
			return nil, err
		}
		all, total = append(all, m), total+m.Seconds
	}
	return all, nil
}

// maxSlices bounds the short loads of which one measurement is made that must
// not change much.
const maxSlices = 20

// fill sends what is to be there before a trial.
func (s *sweeper) fill(ctx context.Context, t trial, o Options) error {
	missing := t.preload - s.sent
	if missing <= 0 {
		return nil
	}
	o.Workload, o.Duration, o.Warmup, o.Count, o.Pipeline = t.fill, 0, 0, max(missing, int64(o.Connections)), fillPipeline
	if t.fillKeys != "" {
		o.Keys = t.fillKeys
	}
	o.progress = func(at soFar) { s.progress.Set("filling", false, at.done, o.Count) }
	if _, err := s.load(ctx, o); err != nil || t.restart == nil {
		return err
	}
	if err := s.server.do(ctx, "SAVE"); err != nil {
		return err
	}
	s.server.kill()
	// Of a setting that is given twice the later would be refused.
	for i := 0; i < len(t.restart); i += 2 {
		if at := slices.Index(s.server.args, t.restart[i]); at >= 0 {
			s.server.args = slices.Delete(s.server.args, at, at+2)
		}
	}
	s.server.args = append(s.server.args, t.restart...)
	return s.server.run(ctx)
}

// loadQuietly runs one load, and again if it was disturbed.
func (s *sweeper) loadQuietly(ctx context.Context, o Options) (figuresOf, error) {
	return takeQuiet(ctx, &s.quiet, func() (figuresOf, error) { return s.load(ctx, o) })
}

// load runs one load.
func (s *sweeper) load(ctx context.Context, o Options) (m figuresOf, err error) {
	before, err := usageOf(s.server)
	if err != nil {
		return m, err
	}
	if m.Result, err = Run(ctx, o); err != nil {
		return m, err
	}
	after, err := usageOf(s.server)
	used := after.since(before)
	m.serverCPU, m.elsewhere = used.server/after.at.Sub(before.at).Seconds(), used.elsewhere()
	s.sent += m.Sent
	if len(m.Errors) > 0 {
		return m, fmt.Errorf("error replies: %v", m.Errors)
	}
	return m, err
}

// serverFor starts the server of a trial unless it runs.
func (s *sweeper) serverFor(ctx context.Context, t trial) (err error) {
	want := fmt.Sprint(t.fsync, t.args, t.env, t.setup, t.server)
	if s.server != nil && s.current == want {
		return nil
	}
	if err := s.stopServer(); err != nil {
		return err
	}
	if s.server, err = startFBFKV(ctx, s.fbfkv, cmp.Or(t.fsync, "everysec"), t.env, t.args...); err != nil {
		return err
	}
	s.current, s.sent = want, 0
	for _, command := range t.setup {
		args := make([]any, len(command))
		for i, a := range command {
			args[i] = a
		}
		if err := s.server.do(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweeper) stopServer() error {
	if s.server == nil {
		return nil
	}
	err := s.server.close()
	s.server = nil
	return err
}
