// Package server accepts clients and carries out what they send.
//
//	listeners, err := server.Listen(config)
//	…
//	s := server.New(server.Options{Store: st, Config: config})
//	err = s.Serve(listeners...) // until s.Stop
//
// Each connection has one goroutine (conn.go) that reads what has arrived,
// hands every complete request to its commands.Pipeline, and writes all replies
// at once: a pipeline of requests becomes one batch, one commit and one write.
// There is no hand-off between goroutines, and no queue in which requests or
// replies could pile up; a client that does not read its replies is simply not
// read from.
//
// Whatever a client sends, it may use only so much: package resp bounds a
// request, maxBatch and maxReplies the steps of a pipeline, and the settings
// the clients, their replies and their time. Each setting is declared once, in
// the table Settings, from which flags, the configuration file (redis.conf's
// syntax), CONFIG GET and SET and the help text derive.
//
// TLS sits before all that: a listener from ListenTLS hands over connections
// whose handshake is done (tlslisten.go), with certificates that are replaced
// while it runs (tls.go).
//
// What commands need of the server around them (CLIENT LIST and KILL, CONFIG,
// INFO, SHUTDOWN) reaches them as the funcs of commands.Server, see admin.go.
package server
