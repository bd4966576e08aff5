// Package observe watches commands being carried out and reports on the server: what
// INFO, LATENCY, SLOWLOG, MONITOR and MEMORY show, and the exporter's figures of
// commands.
//
// An [Observer] is told, and never asks. Package commands tells it, per batch, what ran and
// how long the batch took ([Stats], a [Tally] at a time), hands it batches that were slow
// ([Observer.Slow], [Observer.Report]), and feeds commands to monitors
// ([Observer.Feed]); the store tells it of slow fsyncs, checkpoints and snapshots
// ([Observer.NoteEvent]). A command is known here by its number alone, so this package knows
// neither the table of commands nor their clients.
//
// Reports are written from there: [Slowlog.Write], [Events.WriteLatest] and the like write
// replies; a [View] gathers what INFO shows.
//
//   - observer.go has the settings and what passes through on every batch,
//   - stats.go and histogram.go count calls, errors and latencies,
//   - slowlog.go, latency.go and monitor.go keep slow batches, slow events, and the clients
//     that watch,
//   - info.go and memory.go report, system_*.go, cpu_*.go and offheap_*.go know the system.
package observe
