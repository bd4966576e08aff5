package stream

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// TestTryTells: the reason for which a server is asked again is told at once, and once.
func TestTryTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		r := run{waits: func(err error) { told = append(told, err) }}
		tries := 0
		err := r.try(context.Background(), func() error {
			if tries++; tries < 4 {
				return io.EOF
			}
			return nil
		})
		if err != nil || tries != 4 || len(told) != 1 || !errors.Is(told[0], io.EOF) {
			t.Errorf("%v after %d tries; told: %v", err, tries, told)
		}
		for _, final := range []error{failure("refused"), connect.Error("ERR no")} {
			err := r.try(context.Background(), func() error { return final })
			if err == nil || len(told) != 1 {
				t.Errorf("%v; told: %v", err, told)
			}
		}
		refusals := []error{connect.Error("TRYAGAIN no leader"), nil}
		if err := r.try(context.Background(), func() error {
			first := refusals[0]
			refusals = refusals[1:]
			return first
		}); err != nil || len(told) != 2 {
			t.Errorf("a server without a leader: %v; told: %v", err, told)
		}
	})
}
