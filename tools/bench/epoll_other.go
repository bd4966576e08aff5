//go:build !linux

package main

import (
	"context"
	"errors"
)

func serveEpoll(context.Context, *worker) error {
	return errors.New("the load generator needs Linux, whose epoll makes it cheap")
}
