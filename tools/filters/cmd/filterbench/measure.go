package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/tools/filters"
)

// runner is a contestant in steady state.
type runner struct {
	name   string
	stream *compare.Stream
}

// speed times new and duplicate ids. All contestants are kept ready and run
// in turn, round by round, each round beginning with another.
func speed(c config) error {
	runtime.LockOSThread()
	return c.write("speed.csv", "target,bytes,contestant,round,op,ns", func(row func(...any)) error {
		for _, target := range c.targets {
			for _, size := range c.sizes {
				if err := speedAt(c, target, size, row); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func speedAt(c config, target float64, size uint64, row func(...any)) error {
	runners, err := c.prepare(target, size)
	defer func() {
		for _, r := range runners {
			r.stream.Release()
		}
	}()
	if err != nil {
		return err
	}
	for round := range c.rounds {
		for i := range runners {
			r := runners[(i+round)%len(runners)]
			fresh, _ := c.time(r.stream.New)
			again, found := c.time(r.stream.Duplicate)
			if found < 0.99 {
				return fmt.Errorf("%s recognised only %.3f of the duplicates", r.name, found)
			}
			row(target, size, r.name, round, "new", fresh)
			row(target, size, r.name, round, "duplicate", again)
		}
	}
	return nil
}

// prepare makes the contestants and fills them, as many at a time as there are processors:
// nothing is measured yet. In case of an error it returns those to be released.
func (c config) prepare(target float64, size uint64) (runners []runner, err error) {
	for _, k := range compare.Contestants(target) {
		if !strings.HasPrefix(k.Name, c.only) {
			continue
		}
		ids := k.IDsIn(size)
		w, err := k.New(ids)
		if err != nil {
			return runners, err
		}
		runners = append(runners, runner{k.Name, compare.NewStream(w, ids)})
	}
	return runners, parallel(len(runners), func(i int) error {
		from := time.Now()
		runners[i].stream.Fill(1.3)
		progress("%g, %d KB: %s filled in %v", target, size>>10, runners[i].name, time.Since(from).Round(time.Millisecond))
		return nil
	})
}

// parallel calls f for 0 to n-1, as many at a time as there are processors.
func parallel(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	errs := make([]error, n)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// time is the ns per id of block, after a warm-up, and the share of ids it found.
func (c config) time(block func() int) (ns, found float64) {
	for end := clock() + c.slice/3; clock() < end; {
		block()
	}
	n, hits, from := 0, 0, clock()
	for {
		for range 16 {
			hits += block()
		}
		n += 16 * compare.Block
		if d := clock() - from; d >= c.slice {
			return float64(d.Nanoseconds()) / float64(n), float64(hits) / float64(n)
		}
	}
}

// bits measures the memory really taken per id of the window.
func bits(c config) error {
	return c.write("bits.csv", "target,contestant,ids,bits", func(row func(...any)) error {
		for _, target := range c.targets {
			for _, k := range compare.Filters(target) {
				b, err := compare.BitsPerID(k, c.ids)
				if err != nil {
					return err
				}
				progress("%g: %s takes %.1f bits per id", target, k.Name, b)
				row(target, k.Name, c.ids, b)
			}
		}
		return nil
	})
}

// fpp looks for ids never inserted.
func fpp(c config) error {
	return c.write("fpp.csv", "target,contestant,ids,hits,probes,low,high", func(row func(...any)) error {
		for _, target := range c.targets {
			filters := compare.Filters(target)
			found := make([]compare.FPP, len(filters))
			err := parallel(len(filters), func(i int) (err error) {
				found[i], err = compare.MeasureFPP(filters[i], c.ids, c.probes)
				return err
			})
			if err != nil {
				return err
			}
			for i, f := range found {
				progress("%g: %s %d false positives in %d: %.3g, 95%% within %.3g to %.3g", target, filters[i].Name, f.Hits, f.Probes, f.Rate(), f.Low, f.High)
				row(target, filters[i].Name, c.ids, f.Hits, f.Probes, f.Low, f.High)
			}
		}
		return nil
	})
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// write makes a CSV file of the rows that body gives, or adds them to it.
func (c config) write(name, header string, body func(row func(...any)) error) (err error) {
	mode := os.O_TRUNC
	if c.more {
		mode = os.O_APPEND
	}
	f, err := os.OpenFile(c.path(name), os.O_CREATE|os.O_WRONLY|mode, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	if !c.more {
		fmt.Fprintln(f, header)
	}
	w := csv.NewWriter(f)
	err = body(func(cells ...any) {
		record := make([]string, len(cells))
		for i, c := range cells {
			if x, ok := c.(float64); ok {
				record[i] = fmt.Sprintf("%.4g", x)
			} else {
				record[i] = fmt.Sprint(c)
			}
		}
		w.Write(record) // its error stays and is asked for below
		w.Flush()       // what was measured outlives an interruption
	})
	return errors.Join(err, w.Error())
}
