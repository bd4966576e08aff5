// Package monitor answers, over HTTP at metrics-addr, what a monitoring system asks of
// the server:
//
//	/metrics      the figures, for Prometheus
//	/healthz      200 while the process answers
//	/readyz       200 while the server serves clients and accepts writes; 503 with the
//	              reason during recovery, after a failed commit, and while it stops
//	/debug/pprof  profiles, with the setting pprof
//
// Each request reads the figures from the server and the store. The number of series
// depends on the commands called and on the tables, never on keys or clients. figures.go
// and tables.go list the figures.
package monitor
