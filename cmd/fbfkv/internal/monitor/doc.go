// Package monitor answers, over HTTP at metrics-addr, what a monitoring system asks of
// the server, and a person who looks at it:
//
//	/             the status page: files in page, which ask for /status once a second
//	/metrics      the figures, for Prometheus
//	/healthz      200 while the process answers
//	/readyz       200 while the server serves clients and accepts writes; 503 with the
//	              reason during recovery, after a failed commit, and while it stops
//	/debug/pprof  profiles, with the setting pprof
//
// The page shows what INFO says (page.go), so a new figure needs only a field there: when
// INFO says cluster_enabled:1, its sections replication and cluster are shown as they are,
// fields of the form name=value,name=value as rows of a table. Nothing changes the server,
// and keys and arguments of commands are shown on the loopback alone.
//
// Each request reads the figures from the server and the store. The number of series
// depends on the commands called and on the tables, never on keys or clients. figures.go
// and tables.go list the figures.
package monitor
