// Package monitor serves what looks after the server from outside, over HTTP on
// an address of its own (metrics-addr):
//
//	/metrics      the figures, for Prometheus
//	/healthz      200 while the process answers at all
//	/readyz       200 while clients are served and writes accepted; 503, and why, while the data directory is
//	              recovered, after a failed commit, and while the server stops
//	/debug/pprof  profiles, if they are wanted
//
// The figures are read from the server and the store when they are asked for.
// How many series there are depends on the commands that were called and on the
// tables, never on keys or clients. figures.go and tables.go are the list.
package monitor
