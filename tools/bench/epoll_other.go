//go:build !linux

package main

// serveEpoll is the blocking loop where there is no epoll.
var serveEpoll loop = serveBlocking
