// Package server accepts clients and executes what they send.
//
//	listeners, err := server.Listen(config)
//	…
//	s := server.New(server.Options{Store: st, Config: config})
//	err = s.Serve(listeners...) // until s.Stop
//
// On Linux an event loop serves connections (eventloop_linux.go). A few workers
// take turns. The worker whose turn it is serves a round: it reads from every connection
// that is ready, makes one commands.Round of all requests, which is one batch and one
// commit, and writes each connection's replies at once. A request that nobody else should
// wait for, such as SAVE, is executed in a goroutine of its own (alone_linux.go).
// Elsewhere, and for clients that use MONITOR, each connection has a goroutine
// (dedicated.go), which does the same with what its client has sent. Neither requests nor
// replies pile up: the server does not read from a client that does not read its replies.
//
// Why an event loop: it needs less processor time at every pipeline depth and with any
// number of connections (half at pipeline 1), because one commit holds what all
// connections have sent, and because an idle connection needs no buffer and no stack.
// Three details matter. Events are edge-triggered, so a connection costs one read and one
// write, and no epoll_ctl. A worker waits in epoll_pwait itself; Go's poller would wake a
// second thread for each request, on the client's processor. And a worker does its work
// itself: Go leaves a goroutine that becomes ready on the same processor for some
// microseconds, while another one idles.
//
// A client may use only so much: package resp bounds a request, maxBatch and maxReplies
// the steps of a pipeline, and the settings the clients, their replies and their time.
// Each setting is declared once, in the table Settings. Flags, the configuration file
// (redis.conf's syntax), CONFIG GET and SET and the help text derive from it.
//
// TLS comes before all that: a listener from ListenTLS returns connections whose
// handshake is done (listen.go). Certificates are replaced while it runs (tls.go).
// Handshakes have goroutines and may block. Afterwards the event loop owns the socket, and
// crypto/tls only decrypts what a worker has received and encrypts what it sends
// (polled_linux.go). It never waits for a client: half a record stays in its buffer until
// the rest arrives.
//
// What commands need of the server around them (CLIENT LIST and KILL, CONFIG,
// INFO, SHUTDOWN) reaches them as the funcs of commands.Server, see admin.go.
package server
