package operate

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// TestWatch: patience begins anew with each move. When it ends, the error of the last look is returned.
func TestWatch(t *testing.T) {
	left, broken := errors.New("left"), errors.New("broken")
	for name, tt := range map[string]struct {
		moves, ends time.Duration // until when something moves; when all is there
		err         error         // instead of that
		want        error
		within      time.Duration
	}{
		"comes":       {ends: 4 * time.Second, within: 4 * time.Second},
		"fails":       {ends: 4 * time.Second, err: broken, want: broken, within: 4 * time.Second},
		"stays":       {ends: time.Hour, want: left, within: 5 * time.Second},
		"moves":       {moves: time.Minute, ends: time.Minute, within: time.Minute},
		"stops there": {moves: time.Minute, ends: time.Hour, want: left, within: 65 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := Watch(5*time.Second, func() (error, bool, error) {
				took := time.Since(began)
				if took >= tt.ends {
					return nil, false, tt.err
				}
				return left, took < tt.moves, nil
			})
			if took := time.Since(began); err != tt.want || took < tt.within ||
				took > tt.within+2*RetryPeriod {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, took, tt.want, tt.within)
			}
		})
	}
}

// TestRefusal: what a server answers is shown without the word that is for the program.
func TestRefusal(t *testing.T) {
	for said, want := range map[Refusal]struct {
		text, elsewhere string
		transient       bool
	}{
		"it has data":                      {text: "it has data"},
		"TRYAGAIN not now":                 {text: "not now", transient: true},
		"ASK 10.0.0.1:7001 the first does": {text: "the first does", elsewhere: "10.0.0.1:7001"},
	} {
		err := fmt.Errorf("a:1: %w", said)
		addr, _ := said.Elsewhere()
		if said.Error() != want.text || addr != want.elsewhere || Transient(err) != want.transient {
			t.Errorf("%q: %q, elsewhere %q, transient %v", string(said), said.Error(), addr, Transient(err))
		}
	}
	if !Transient(fmt.Errorf("a:1: %w", connect.Unreachable{})) || Transient(errors.New("TRYAGAIN")) {
		t.Error("what cannot be reached is not transient, or any error is")
	}
}
