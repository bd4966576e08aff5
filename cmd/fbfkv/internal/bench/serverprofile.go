package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/cpuprofile"
)

// serverProfile is what a server spent its processor time on during a load.
type serverProfile struct {
	// Processors is how many the server used, on average.
	Processors float64 `json:"processors"`
	// Shares are those of the kinds of work in that, by name.
	Shares map[string]float64 `json:"shares"`
}

// profileCheckTime bounds how long a server may take to say that it has profiles.
const profileCheckTime = 5 * time.Second

// startProfile takes a profile of the server at a metrics-addr, from a little
// after the measurement begins until a little before it ends. The function that
// it returns waits for the profile. What can be known before the load is an error
// at once.
func startProfile(ctx context.Context, address string, o *Options) (func() (*serverProfile, error), error) {
	seconds := int((o.Duration - profileLead - profileTail) / time.Second)
	if seconds < 1 {
		return nil, errors.New("--profile: a --duration of at least 1.5s is needed")
	}
	checking, cancel := context.WithTimeout(ctx, profileCheckTime)
	defer cancel()
	if err := cpuprofile.Check(checking, address); err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	var p *serverProfile
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-ctx.Done():
			err = ctx.Err()
			return
		case <-time.After(o.Warmup + profileLead):
		}
		_, raw, e := cpuprofile.Fetch(ctx, address, seconds)
		if err = e; err != nil {
			return
		}
		shares, e := cpuprofile.Attribute(raw)
		if err = e; err != nil {
			return
		}
		p = &serverProfile{Processors: divide(shares.Seconds, float64(raw.DurationNanos)/1e9), Shares: map[string]float64{}}
		for k, share := range shares.Of {
			p.Shares[cpuprofile.Kind(k).String()] = share
		}
	}()
	return func() (*serverProfile, error) {
		<-over
		return p, err
	}, nil
}

// print writes the kinds of work for people, in the order of a request.
func (p *serverProfile) print(out io.Writer) {
	fmt.Fprintf(out, "  profile     the server used %.2f processors, of which\n", p.Processors)
	for k := range cpuprofile.Kinds {
		if share := p.Shares[k.String()]; share >= 0.005 {
			fmt.Fprintf(out, "  %10.0f %%  %s\n", 100*share, k.Description())
		}
	}
}
