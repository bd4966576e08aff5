//go:build !linux

package bench

// serveEpoll is the blocking loop where there is no epoll.
var serveEpoll loop = serveBlocking
