// Package server accepts clients and carries out what they send.
//
//	listeners, err := server.Listen(config)
//	…
//	s := server.New(server.Options{Store: st, Config: config})
//	err = s.Serve(listeners...) // until s.Stop
//
// On Linux, connections are served by an event loop (eventloop_linux.go):
// a few workers take turns to read from every connection that is ready, make the
// requests of all of them one commands.Round, which is one batch and one commit,
// and write each connection's replies at once. A request that nobody else should
// wait for, such as SAVE, is carried out apart (alone_linux.go). Elsewhere, and for
// clients that use MONITOR, each connection has a goroutine (dedicated.go), which does
// the same with what its client has sent. Requests and replies pile up nowhere: a client that does not read its
// replies is simply not read from.
//
// Why an event loop: it needs less processor time at every pipeline depth and with any
// number of connections (half at pipeline 1), because a commit holds what all
// connections have sent, and an idle connection needs no buffer and no stack. Three
// details carry it. Events are edge-triggered, so that a connection costs one read and
// one write, and no epoll_ctl. A worker waits in epoll_pwait itself: Go's poller would
// wake a second thread for each request, on the processor of the client. And a worker
// hands its work to nobody: Go leaves a goroutine that was made ready to the same
// processor for microseconds, in which the other one idles.
//
// Whatever a client sends, it may use only so much: package resp bounds a
// request, maxBatch and maxReplies the steps of a pipeline, and the settings
// the clients, their replies and their time. Each setting is declared once, in
// the table Settings, from which flags, the configuration file (redis.conf's
// syntax), CONFIG GET and SET and the help text derive.
//
// TLS sits before all that: a listener from ListenTLS hands over connections
// whose handshake is done (tlslisten.go), with certificates that are replaced
// while it runs (tls.go). Handshakes have goroutines and may block; afterwards the
// event loop owns the socket, and crypto/tls only decrypts what a worker has received
// and encrypts what it sends (polled_linux.go). It never waits for a client: half a
// record stays in its buffer until the rest has come.
//
// What commands need of the server around them (CLIENT LIST and KILL, CONFIG,
// INFO, SHUTDOWN) reaches them as the funcs of commands.Server, see admin.go.
package server
