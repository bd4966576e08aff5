package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errInterrupted is the error of work that somebody ended.
var errInterrupted = errors.New("interrupted")

// interruptible ends the work on the signals that end a program, that of a lost
// terminal among them unless whoever started the program wants it to go on.
func interruptible(ctx context.Context) (context.Context, func()) {
	if ctx == nil {
		ctx = context.Background()
	}
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop) // the second signal ends the program at once
	return ctx, stop
}
