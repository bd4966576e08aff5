//go:build !linux

package main

import (
	"context"
	"errors"
)

func serveEpoll(context.Context, *worker, *Target) error {
	return errors.New("the load generator needs Linux, whose epoll makes it cheap")
}
