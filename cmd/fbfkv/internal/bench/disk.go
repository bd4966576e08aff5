package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The rows of what remembering takes on disk.
const (
	diskRow   = "disk-EXACT"
	writesRow = "disk-writes"
)

// diskSample is the time from one look at the files to the next.
const diskSample = time.Second

// diskParts are the directories of a data directory that are told apart; the rest counts
// with Pebble's, which has the rows.
var diskParts = []struct{ directory, name string }{{"log", "op log"}, {"runs", "runs"}, {"snapshots", "snapshots"}, {"db", "rows"}}

// diskUse is what a server had on disk and what it wrote, while it was watched.
type diskUse struct {
	samples     int
	least, most float64   // bytes in all
	parts       []float64 // bytes, as diskParts, on average
	written     float64   // bytes handed to the disk
	operations  float64   // applied meanwhile
}

// total is what there was on disk on average, bytes.
func (d *diskUse) total() (sum float64) {
	for _, v := range d.parts {
		sum += v
	}
	return sum
}

// add adds a look at the files, bytes by part.
func (d *diskUse) add(parts []float64) {
	if d.parts == nil {
		d.parts = make([]float64, len(diskParts))
	}
	all, n := 0.0, float64(d.samples)
	for i, v := range parts {
		all += v
		d.parts[i] = (d.parts[i]*n + v) / (n + 1)
	}
	if d.samples == 0 || all < d.least {
		d.least = all
	}
	d.most = max(d.most, all)
	d.samples++
}

// watchDisk looks at a server's files and at what it writes, some time from now and for
// some time. What is returned waits for the end, and gives up if that has not come.
func watchDisk(ctx context.Context, p *process, from, length time.Duration) (result func() (diskUse, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var d diskUse
	over := make(chan error, 1)
	go func() { over <- d.watch(ctx, p, from, length) }()
	return func() (diskUse, error) {
		// The load is over by now.
		select {
		case err := <-over:
			cancel()
			return d, err
		case <-time.After(2 * diskSample):
		}
		cancel()
		return d, errors.Join(errors.New("the load was over before the disk had been watched"), <-over)
	}
}

func (d *diskUse) watch(ctx context.Context, p *process, from, length time.Duration) error {
	begin := time.After(from)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-begin:
	}
	end := time.Now().Add(length - 2*diskSample) // while the load goes on
	before, err := d.figures(ctx, p)
	if err != nil {
		return err
	}
	for time.Now().Before(end) {
		parts, err := filesOf(filepath.Join(p.dir, "data"))
		if err != nil {
			return err
		}
		d.add(parts)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(diskSample):
		}
	}
	if d.samples == 0 {
		return errors.New("the window is too short to look at the disk meanwhile: --ids")
	}
	after, err := d.figures(ctx, p)
	d.written, d.operations = after[0]-before[0], after[1]-before[1]
	return err
}

// figures are the bytes written so far, and the operations applied.
func (d *diskUse) figures(ctx context.Context, p *process) (f [2]float64, err error) {
	if f[0], err = p.writtenBytes(); err != nil {
		return f, err
	}
	f[1], err = p.info(ctx, "operations_applied")
	return f, err
}

// writtenBytes is what the server has handed to the disk so far, through the page cache
// or past it.
func (p *process) writtenBytes() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, errors.New("/proc/PID/io has no write_bytes")
}

// filesOf are the bytes of a data directory's files, as diskParts.
func filesOf(dir string) ([]float64, error) {
	parts := make([]float64, len(diskParts))
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				parts[partOf(dir, path)] += float64(info.Size())
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	return parts, err
}

// partOf is the part that a file belongs to.
func partOf(dir, path string) int {
	rest, _ := strings.CutPrefix(path, dir+string(filepath.Separator))
	directory, _, _ := strings.Cut(rest, string(filepath.Separator))
	for i, part := range diskParts {
		if part.directory == directory {
			return i
		}
	}
	return len(diskParts) - 1
}

// emitDisk makes rows of what was seen of a load that keeps so many ids.
func (t *table) emitDisk(d diskUse, o Options, ids, steal float64) {
	var parts []string
	for i, part := range diskParts {
		parts = append(parts, fmt.Sprintf("%s %.1f", part.name, d.parts[i]/ids))
	}
	t.emit(noGoal(diskRow, fmt.Sprintf("bytes on disk per remembered id, %d ids, EXACT", t.ids),
		Ratio{A: d.total() / ids, Ratio: d.total() / ids, Lowest: d.least / ids, Most: d.most / ids, Steal: steal},
		fmt.Sprintf("%s; mean, least and most of %d looks in the last window", strings.Join(parts, ", "), d.samples)))
	own := len(keyName(o.KeyPrefix, 0, digitsFor(memoryCounters))) + uuidv7.length()
	perOp := divide(d.written, d.operations)
	t.emit(noGoal(writesRow, "bytes written to disk per byte of id and key, EXACT", single(perOp/float64(own), steal),
		fmt.Sprintf("%.0f bytes an operation; id and key have %d", perOp, own)))
}
