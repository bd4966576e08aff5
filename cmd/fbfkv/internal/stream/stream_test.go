package stream

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
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
		if err := r.try(context.Background(), func() error { return failure("refused") }); err == nil ||
			len(told) != 1 {
			t.Errorf("%v; told: %v", err, told)
		}
	})
}
