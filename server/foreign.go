package server

import (
	"fmt"
	"slices"
	"strings"
)

// Directive is a directive of Redis or Valkey without a setting here. In a configuration
// file it is accepted without effect if nobody is worse off for that; what would cost data,
// security or clients is refused.
type Directive struct {
	// Name is lower case; with a * at its end, all names that begin so.
	Name string
	// Reason is why it means nothing, or why it is refused.
	Reason string
	Verdict
}

// Verdict is what becomes of a directive.
type Verdict struct {
	Refused bool
	// Unless are the values, if any, with which it is not Refused but without
	// effect; their words are separated by spaces.
	Unless []string
}

// The verdicts.
var ignored, refused = Verdict{}, Verdict{Refused: true}

// only refuses all values but some.
func only(values ...string) Verdict { return Verdict{true, values} }

// accepts reports whether a file may have the directive with these words. An
// empty one leaves a directive unset, in Redis too.
func (v Verdict) accepts(words []string) bool {
	value := strings.Join(words, " ")
	return !v.Refused || value == "" ||
		slices.ContainsFunc(v.Unless, func(u string) bool { return strings.EqualFold(value, u) })
}

// foreign returns the directive with this name, or nil.
func foreign(name string) *Directive {
	name = strings.ToLower(name)
	i := slices.IndexFunc(Directives, func(d Directive) bool {
		prefix, many := strings.CutSuffix(d.Name, "*")
		return d.Name == name || many && strings.HasPrefix(name, prefix)
	})
	if i < 0 {
		return nil
	}
	return &Directives[i]
}

// similar returns ", did you mean …?" for a name that is almost a known one, or
// nothing.
func similar(name string) string {
	best, near := 3, ""
	try := func(known string) {
		if d := distance(strings.ToLower(name), known); d < best {
			best, near = d, fmt.Sprintf(", did you mean %s?", known)
		}
	}
	if len(name) > 64 {
		return ""
	}
	for i := range Settings {
		try(Settings[i].Name)
	}
	for i := range Directives {
		try(Directives[i].Name)
	}
	return near
}

// distance returns how many letters must be put in, left out or replaced to make b
// of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from a's letters so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			row[j+1] = min(above+1, row[j]+1, diagonal+1)
			if a[i] == b[j] {
				row[j+1] = min(row[j+1], diagonal)
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// The reasons that several share.
const (
	ownFiles      = "fbfkv has its own log and snapshots, see appendfsync and save"
	noReplicas    = "replicas are nodes of a cluster, see cluster-enabled, and need no other settings"
	noCluster     = "a cluster of fbfkv does this in its own way"
	noEviction    = "fbfkv drops nothing to make room"
	otherTypes    = "there are no values of that type"
	noModules     = "there are no modules, scripts or channels"
	ownWay        = "fbfkv does this in its own way"
	system        = "the service manager or the operating system does this"
	logs          = "loglevel, logfile, log-format, slowlog-* and latency-* say what is logged"
	noReplication = "not supported: nodes of a cluster replicate counters, see cluster-enabled"
	onlyTCP       = "not supported: clients connect over TCP"
	sessions      = "cannot be changed: clients may resume TLS sessions with a ticket for some days"
)

// Directives are the directives of Redis 6 to 8 and of Valkey to 9. The list does not change.
var Directives = []Directive{
	{"replicaof", noReplication, only("no one")},
	{"slaveof", noReplication, only("no one")},
	{"masterauth", noReplication, refused},
	{"masteruser", noReplication, refused},
	{"primaryauth", noReplication, refused},
	{"primaryuser", noReplication, refused},
	{"min-replicas-to-write", noReplication, only("0")},
	{"min-slaves-to-write", noReplication, only("0")},
	{"sentinel", "Sentinel is not supported", refused},
	{"maxmemory", "not supported: filter-maxmemory, hot-counters and cache-memory limit memory, and other " +
		"counters are on disk", only("0")},
	{"maxmemory-policy", "only noeviction is supported: fbfkv never drops a counter to make room",
		only("noeviction")},
	{"loadmodule", "modules are not supported: their commands would be missing", refused},
	{"loadmodule-ex", "modules are not supported: their commands would be missing", refused},
	{"enable-protected-configs", "not supported: nobody can change these settings at run time", only("no")},
	{"enable-debug-command", "DEBUG is not supported", only("no")},
	{"enable-module-command", "modules are not supported", only("no")},
	{"unixsocket", onlyTCP, refused},
	{"rdma-bind", onlyTCP, refused},
	{"rdma-port", onlyTCP, only("0")},
	{"tls-auth-clients-user", "a certificate does not log a client in: clients must send AUTH or " +
		"HELLO as well", only("off")},
	{"tls-ciphers", "the suites for TLSv1.2 cannot be chosen; all are safe",
		only("DEFAULT", "DEFAULT:!MEDIUM")},
	{"tls-ciphersuites", "the suites for TLSv1.3 cannot be chosen; all are safe",
		only("TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256")},
	{"tls-session-caching", sessions, only("yes")},
	{"tls-session-cache-timeout", sessions, only("300")},

	{"rdbcompression", ownFiles, ignored},
	{"rdbchecksum", ownFiles, ignored},
	{"rdb-del-sync-files", ownFiles, ignored},
	{"rdb-save-incremental-fsync", ownFiles, ignored},
	{"rdb-version-check", ownFiles, ignored},
	{"rdb-key-save-delay", ownFiles, ignored},
	{"dbfilename", ownFiles, ignored},
	{"sanitize-dump-payload", ownFiles, ignored},
	{"stop-writes-on-bgsave-error", ownFiles, ignored},
	{"appendfilename", ownFiles, ignored},
	{"appenddirname", ownFiles, ignored},
	{"no-appendfsync-on-rewrite", ownFiles, ignored},
	{"auto-aof-rewrite-percentage", ownFiles, ignored},
	{"auto-aof-rewrite-min-size", ownFiles, ignored},
	{"aof-load-truncated", ownFiles, ignored},
	{"aof-load-corrupt-tail-max-size", ownFiles, ignored},
	{"aof-use-rdb-preamble", ownFiles, ignored},
	{"aof-timestamp-enabled", ownFiles, ignored},
	{"aof-rewrite-incremental-fsync", ownFiles, ignored},
	{"aof-disable-auto-gc", ownFiles, ignored},
	{"key-load-delay", ownFiles, ignored},
	{"loading-process-events-interval-bytes", ownFiles, ignored},

	{"replica-serve-stale-data", noReplicas, ignored},
	{"slave-serve-stale-data", noReplicas, ignored},
	{"replica-read-only", noReplicas, ignored},
	{"slave-read-only", noReplicas, ignored},
	{"repl-diskless-sync", noReplicas, ignored},
	{"repl-diskless-sync-delay", noReplicas, ignored},
	{"repl-diskless-sync-max-replicas", noReplicas, ignored},
	{"repl-diskless-load", noReplicas, ignored},
	{"repl-disable-tcp-nodelay", noReplicas, ignored},
	{"repl-ping-replica-period", noReplicas, ignored},
	{"repl-ping-slave-period", noReplicas, ignored},
	{"repl-timeout", noReplicas, ignored},
	{"repl-backlog-size", noReplicas, ignored},
	{"repl-backlog-ttl", noReplicas, ignored},
	{"repl-mptcp", noReplicas, ignored},
	{"replica-priority", noReplicas, ignored},
	{"slave-priority", noReplicas, ignored},
	{"replica-lazy-flush", noReplicas, ignored},
	{"slave-lazy-flush", noReplicas, ignored},
	{"replica-announce-ip", noReplicas, ignored},
	{"slave-announce-ip", noReplicas, ignored},
	{"replica-announce-port", noReplicas, ignored},
	{"slave-announce-port", noReplicas, ignored},
	{"replica-announced", noReplicas, ignored},
	{"replica-ignore-maxmemory", noReplicas, ignored},
	{"slave-ignore-maxmemory", noReplicas, ignored},
	{"replica-ignore-disk-write-errors", noReplicas, ignored},
	{"replica-full-sync-buffer-limit", noReplicas, ignored},
	{"min-replicas-max-lag", noReplicas, ignored},
	{"min-slaves-max-lag", noReplicas, ignored},
	{"dual-channel-replication-enabled", noReplicas, ignored},
	{"propagation-error-behavior", noReplicas, ignored},
	{"tls-replication", noReplicas, ignored},
	{"tls-client-cert-file", noReplicas, ignored},
	{"tls-client-key-file", noReplicas, ignored},
	{"tls-client-key-file-pass", noReplicas, ignored},
	{"bind-source-addr", noReplicas, ignored},
	{"import-mode", noReplicas, ignored},

	{"cluster-config-file", noCluster, ignored},
	{"cluster-replica-validity-factor", noCluster, ignored},
	{"cluster-slave-validity-factor", noCluster, ignored},
	{"cluster-migration-barrier", noCluster, ignored},
	{"cluster-allow-replica-migration", noCluster, ignored},
	{"cluster-require-full-coverage", noCluster, ignored},
	{"cluster-replica-no-failover", noCluster, ignored},
	{"cluster-slave-no-failover", noCluster, ignored},
	{"cluster-allow-reads-when-down", noCluster, ignored},
	{"cluster-allow-pubsubshard-when-down", noCluster, ignored},
	{"cluster-link-sendbuf-limit", noCluster, ignored},
	{"cluster-announce-human-nodename", noCluster, ignored},
	{"cluster-announce-client-ipv4", noCluster, ignored},
	{"cluster-announce-client-ipv6", noCluster, ignored},
	{"cluster-announce-client-port", noCluster, ignored},
	{"cluster-announce-client-tls-port", noCluster, ignored},
	{"cluster-ping-interval", noCluster, ignored},
	{"cluster-blacklist-ttl", noCluster, ignored},
	{"cluster-config-save-behavior", noCluster, ignored},
	{"cluster-databases", noCluster, ignored},
	{"cluster-manual-failover-timeout", noCluster, ignored},
	{"cluster-message-gossip-perc", noCluster, ignored},
	{"cluster-slot-migration-log-max-len", noCluster, ignored},
	{"cluster-slot-migration-handoff-max-lag-bytes", noCluster, ignored},
	{"cluster-slot-migration-write-pause-timeout", noCluster, ignored},
	{"cluster-slot-stats-enabled", noCluster, ignored},
	{"cluster-compatibility-sample-ratio", noCluster, ignored},
	{"slot-migration-max-failover-repl-bytes", noCluster, ignored},
	{"availability-zone", noCluster, ignored},

	{"maxmemory-samples", noEviction, ignored},
	{"maxmemory-eviction-tenacity", noEviction, ignored},
	{"lfu-log-factor", noEviction, ignored},
	{"lfu-decay-time", noEviction, ignored},
	{"lazyfree-lazy-eviction", noEviction, ignored},

	{"hash-max-listpack-entries", otherTypes, ignored},
	{"hash-max-listpack-value", otherTypes, ignored},
	{"hash-max-ziplist-entries", otherTypes, ignored},
	{"hash-max-ziplist-value", otherTypes, ignored},
	{"list-max-listpack-size", otherTypes, ignored},
	{"list-max-ziplist-size", otherTypes, ignored},
	{"list-max-ziplist-entries", otherTypes, ignored},
	{"list-max-ziplist-value", otherTypes, ignored},
	{"list-compress-depth", otherTypes, ignored},
	{"set-max-intset-entries", otherTypes, ignored},
	{"set-max-listpack-entries", otherTypes, ignored},
	{"set-max-listpack-value", otherTypes, ignored},
	{"zset-max-listpack-entries", otherTypes, ignored},
	{"zset-max-listpack-value", otherTypes, ignored},
	{"zset-max-ziplist-entries", otherTypes, ignored},
	{"zset-max-ziplist-value", otherTypes, ignored},
	{"hll-sparse-max-bytes", otherTypes, ignored},
	{"stream-node-max-bytes", otherTypes, ignored},
	{"stream-node-max-entries", otherTypes, ignored},
	{"stream-idmp-duration", otherTypes, ignored},
	{"stream-idmp-maxsize", otherTypes, ignored},
	{"array-slice-size", otherTypes, ignored},
	{"array-sparse-kmax", otherTypes, ignored},
	{"array-sparse-kmin", otherTypes, ignored},
	{"vset-force-single-threaded-execution", otherTypes, ignored},
	{"locale-collate", otherTypes, ignored},

	{"search-*", noModules, ignored},
	{"ts-*", noModules, ignored},
	{"cf-*", noModules, ignored},
	{"lua-time-limit", noModules, ignored},
	{"busy-reply-threshold", noModules, ignored},
	{"lua-replicate-commands", noModules, ignored},
	{"lua-enable-insecure-api", noModules, ignored},
	{"lua-enable-deprecated-api", noModules, ignored},
	{"acl-pubsub-default", noModules, ignored},
	{"notify-keyspace-events", noModules, ignored},
	{"tracking-table-max-keys", noModules, ignored},

	{"hz", ownWay, ignored},
	{"dynamic-hz", ownWay, ignored},
	{"activerehashing", ownWay, ignored},
	{"active-expire-effort", ownWay, ignored},
	{"activedefrag", ownWay, ignored},
	{"active-defrag-ignore-bytes", ownWay, ignored},
	{"active-defrag-threshold-lower", ownWay, ignored},
	{"active-defrag-threshold-upper", ownWay, ignored},
	{"active-defrag-cycle-min", ownWay, ignored},
	{"active-defrag-cycle-max", ownWay, ignored},
	{"active-defrag-cycle-us", ownWay, ignored},
	{"active-defrag-max-scan-fields", ownWay, ignored},
	{"lazyfree-lazy-expire", ownWay, ignored},
	{"lazyfree-lazy-server-del", ownWay, ignored},
	{"lazyfree-lazy-user-del", ownWay, ignored},
	{"lazyfree-lazy-user-flush", ownWay, ignored},
	{"jemalloc-bg-thread", ownWay, ignored},
	{"io-threads", ownWay, ignored},
	{"io-threads-do-reads", ownWay, ignored},
	{"io-threads-always-active", ownWay, ignored},
	{"events-per-io-thread", ownWay, ignored},
	{"prefetch-batch-max-size", ownWay, ignored},
	{"lookahead", ownWay, ignored},
	{"min-io-threads-avoid-copy-reply", ownWay, ignored},
	{"min-string-size-avoid-copy-reply", ownWay, ignored},
	{"min-string-size-avoid-copy-reply-threaded", ownWay, ignored},
	{"hash-seed", ownWay, ignored},
	{"max-new-connections-per-cycle", ownWay, ignored},
	{"max-new-tls-connections-per-cycle", ownWay, ignored},
	{"tcp-backlog", ownWay, ignored},
	{"tcp-keepalive-probes", ownWay, ignored},
	{"mptcp", ownWay, ignored},
	{"socket-mark-id", ownWay, ignored},
	{"unixsocketperm", ownWay, ignored},
	{"unixsocketgroup", ownWay, ignored},
	{"rdma-rx-size", ownWay, ignored},
	{"rdma-completion-vector", ownWay, ignored},
	{"tls-dh-params-file", ownWay, ignored},
	{"tls-prefer-server-ciphers", ownWay, ignored},
	{"tls-session-cache-size", ownWay, ignored},
	{"tls-auto-reload-interval", ownWay, ignored},
	{"shutdown-on-sigint", ownWay, ignored},
	{"shutdown-on-sigterm", ownWay, ignored},
	{"extended-redis-compatibility", ownWay, ignored},

	{"daemonize", system, ignored},
	{"supervised", system, ignored},
	{"pidfile", system, ignored},
	{"set-proc-title", system, ignored},
	{"proc-title-template", system, ignored},
	{"always-show-logo", system, ignored},
	{"oom-score-adj", system, ignored},
	{"oom-score-adj-values", system, ignored},
	{"disable-thp", system, ignored},
	{"server-cpulist", system, ignored},
	{"server_cpulist", system, ignored},
	{"bio-cpulist", system, ignored},
	{"bio_cpulist", system, ignored},
	{"aof-rewrite-cpulist", system, ignored},
	{"aof_rewrite_cpulist", system, ignored},
	{"bgsave-cpulist", system, ignored},
	{"bgsave_cpulist", system, ignored},
	{"ignore-warnings", system, ignored},

	{"syslog-enabled", logs, ignored},
	{"syslog-ident", logs, ignored},
	{"syslog-facility", logs, ignored},
	{"crash-log-enabled", logs, ignored},
	{"crash-memcheck-enabled", logs, ignored},
	{"use-exit-on-panic", logs, ignored},
	{"watchdog-period", logs, ignored},
	{"log-timestamp-format", logs, ignored},
	{"hide-user-data-from-log", logs, ignored},
	{"latency-tracking", logs, ignored},
	{"latency-tracking-info-percentiles", logs, ignored},
	{"acllog-max-len", logs, ignored},
	{"slowlog-entry-max-argc", logs, ignored},
	{"slowlog-entry-max-string-len", logs, ignored},
	{"key-memory-histograms", logs, ignored},
	{"commandlog-execution-slower-than", logs, ignored},
	{"commandlog-slow-execution-max-len", logs, ignored},
	{"commandlog-request-larger-than", logs, ignored},
	{"commandlog-large-request-max-len", logs, ignored},
	{"commandlog-reply-larger-than", logs, ignored},
	{"commandlog-large-reply-max-len", logs, ignored},
}
