package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// The pipeline depth at which duplicates are measured.
const duplicatePipeline = 16

// duplicates compares streams of duplicates with one of new operations. In
// every round the new ones are sent first, then again from memory, and, after a
// SAVE has written them to runs, from there.
func (p *pair) duplicates(ctx context.Context) error {
	if !p.t.wantsAny(duplicateRows()...) {
		return nil
	}
	defer p.t.resume()
	if err := p.t.only(p.fbfkv.target); err != nil {
		return err
	}
	base := p.t.options(p.fbfkv, "cincrby", duplicatePipeline)
	base.IDs, base.Warmup, base.KeyPrefix = "client-seq", 0, "dup:"
	trial, err := Run(ctx, base)
	if err != nil {
		return err
	}
	base.Count = max(trial.Operations/int64(base.Connections), 1) * int64(base.Connections)
	base.Duration = 0
	var fresh []*Result
	streams := make([][]*Result, len(duplicateStreams))
	memory := ""
	for round := range p.t.rounds {
		p.t.progress.Set(p.t.stage+" duplicates", false, int64(round), int64(p.t.rounds))
		// Sent once more the same would be duplicates. The streams are of what was sent last.
		r, err := takeQuiet(ctx, &p.t.quiet, func() (*Result, error) {
			base.Seed = rand.Uint64()>>1 | 1
			return runClean(ctx, base)
		})
		if err != nil {
			return err
		}
		fresh = append(fresh, r)
		p.t.keep("duplicates: new ones", round, r)
		saved := false
		for i, s := range duplicateStreams {
			if !p.t.wantsRow("duplicates-" + s.name) {
				continue
			}
			if s.runs && !saved {
				if memory, err = p.flush(ctx); err != nil {
					return err
				}
				saved = true
			}
			r, err := p.t.quiet.run(ctx, s.options(base))
			if err != nil {
				return err
			}
			streams[i] = append(streams[i], r)
			p.t.keep("duplicates: "+s.what, round, r)
			if s.share == 1 && round == p.t.rounds-1 {
				if err := p.t.profileWhile(ctx, p.fbfkv, s.options(base), s.what, streams[i]); err != nil {
					return err
				}
			}
		}
	}
	for i, s := range duplicateStreams {
		if !p.t.wantsRow("duplicates-" + s.name) {
			continue
		}
		r := ratio(streams[i], fresh, throughput)
		note := rates(r)
		if s.runs {
			note += memory
		}
		p.t.emit(atLeast("duplicates-"+s.name, "pipeline 16, everysec: "+s.what+", against new ones", 0.5, r, note))
	}
	return nil
}

// flush writes what is remembered to runs, and says what stayed in memory.
func (p *pair) flush(ctx context.Context) (string, error) {
	before, err := p.fbfkv.info(ctx, "recent_records")
	if err != nil {
		return "", err
	}
	if err := p.fbfkv.do(ctx, "SAVE"); err != nil {
		return "", err
	}
	after, err := p.fbfkv.info(ctx, "recent_records")
	return fmt.Sprintf("; SAVE left %.0f of %.0f records in memory", after, before), err
}

// duplicateStreams are the ways to send duplicates, in the order of a round.
var duplicateStreams = []duplicateStream{
	{"100-memory", "all duplicates, from memory", 1, false, true},
	{"10-memory", "10% duplicates, from memory", 0.1, false, false},
	{"100-runs", "all duplicates, from runs", 1, true, true},
	{"10-runs", "10% duplicates, from runs", 0.1, true, true},
}

// duplicateRows are the names of their rows.
func duplicateRows() (names []string) {
	for _, s := range duplicateStreams {
		names = append(names, "duplicates-"+s.name)
	}
	return names
}

type duplicateStream struct {
	name, what string
	share      float64
	runs       bool // after SAVE
	earlier    bool // of the round's new operations, not of its own
}

// options are those of the stream, after the run of new operations.
func (s duplicateStream) options(fresh Options) Options {
	o := fresh
	o.Workload, o.RetryShare, o.Seed = "retry", s.share, 0
	if s.earlier {
		o.Again = fmt.Sprintf("%d:%d", fresh.Seed, fresh.Count)
	}
	return o
}
