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

// refused refuses all values.
var refused = Verdict{Refused: true}

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
var Directives = slices.Concat([]Directive{
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
},
	ignoredAll(ownFiles, `
		rdbcompression rdbchecksum rdb-del-sync-files rdb-save-incremental-fsync rdb-version-check
		rdb-key-save-delay dbfilename sanitize-dump-payload stop-writes-on-bgsave-error appendfilename
		appenddirname no-appendfsync-on-rewrite auto-aof-rewrite-percentage auto-aof-rewrite-min-size
		aof-load-truncated aof-load-corrupt-tail-max-size aof-use-rdb-preamble aof-timestamp-enabled
		aof-rewrite-incremental-fsync aof-disable-auto-gc key-load-delay
		loading-process-events-interval-bytes`),
	ignoredAll(noReplicas, `
		replica-serve-stale-data slave-serve-stale-data replica-read-only slave-read-only
		repl-diskless-sync repl-diskless-sync-delay repl-diskless-sync-max-replicas repl-diskless-load
		repl-disable-tcp-nodelay repl-ping-replica-period repl-ping-slave-period repl-timeout
		repl-backlog-size repl-backlog-ttl repl-mptcp replica-priority slave-priority replica-lazy-flush
		slave-lazy-flush replica-announce-ip slave-announce-ip replica-announce-port slave-announce-port
		replica-announced replica-ignore-maxmemory slave-ignore-maxmemory replica-ignore-disk-write-errors
		replica-full-sync-buffer-limit min-replicas-max-lag min-slaves-max-lag
		dual-channel-replication-enabled propagation-error-behavior tls-replication tls-client-cert-file
		tls-client-key-file tls-client-key-file-pass bind-source-addr import-mode`),
	ignoredAll(noCluster, `
		cluster-config-file cluster-replica-validity-factor cluster-slave-validity-factor
		cluster-migration-barrier cluster-allow-replica-migration cluster-require-full-coverage
		cluster-replica-no-failover cluster-slave-no-failover cluster-allow-reads-when-down
		cluster-allow-pubsubshard-when-down cluster-link-sendbuf-limit cluster-announce-human-nodename
		cluster-announce-client-ipv4 cluster-announce-client-ipv6 cluster-announce-client-port
		cluster-announce-client-tls-port cluster-ping-interval cluster-blacklist-ttl
		cluster-config-save-behavior cluster-databases cluster-manual-failover-timeout
		cluster-message-gossip-perc cluster-slot-migration-log-max-len
		cluster-slot-migration-handoff-max-lag-bytes cluster-slot-migration-write-pause-timeout
		cluster-slot-stats-enabled cluster-compatibility-sample-ratio
		slot-migration-max-failover-repl-bytes availability-zone`),
	ignoredAll(noEviction, `
		maxmemory-samples maxmemory-eviction-tenacity lfu-log-factor lfu-decay-time lazyfree-lazy-eviction`),
	ignoredAll(otherTypes, `
		hash-max-listpack-entries hash-max-listpack-value hash-max-ziplist-entries hash-max-ziplist-value
		list-max-listpack-size list-max-ziplist-size list-max-ziplist-entries list-max-ziplist-value
		list-compress-depth set-max-intset-entries set-max-listpack-entries set-max-listpack-value
		zset-max-listpack-entries zset-max-listpack-value zset-max-ziplist-entries zset-max-ziplist-value
		hll-sparse-max-bytes stream-node-max-bytes stream-node-max-entries stream-idmp-duration
		stream-idmp-maxsize array-slice-size array-sparse-kmax array-sparse-kmin
		vset-force-single-threaded-execution locale-collate`),
	ignoredAll(noModules, `
		search-* ts-* cf-* lua-time-limit busy-reply-threshold lua-replicate-commands
		lua-enable-insecure-api lua-enable-deprecated-api acl-pubsub-default notify-keyspace-events
		tracking-table-max-keys`),
	ignoredAll(ownWay, `
		hz dynamic-hz activerehashing active-expire-effort activedefrag active-defrag-ignore-bytes
		active-defrag-threshold-lower active-defrag-threshold-upper active-defrag-cycle-min
		active-defrag-cycle-max active-defrag-cycle-us active-defrag-max-scan-fields lazyfree-lazy-expire
		lazyfree-lazy-server-del lazyfree-lazy-user-del lazyfree-lazy-user-flush jemalloc-bg-thread
		io-threads io-threads-do-reads io-threads-always-active events-per-io-thread
		prefetch-batch-max-size lookahead min-io-threads-avoid-copy-reply min-string-size-avoid-copy-reply
		min-string-size-avoid-copy-reply-threaded hash-seed max-new-connections-per-cycle
		max-new-tls-connections-per-cycle tcp-backlog tcp-keepalive-probes mptcp socket-mark-id
		unixsocketperm unixsocketgroup rdma-rx-size rdma-completion-vector tls-dh-params-file
		tls-prefer-server-ciphers tls-session-cache-size tls-auto-reload-interval shutdown-on-sigint
		shutdown-on-sigterm extended-redis-compatibility`),
	ignoredAll(system, `
		daemonize supervised pidfile set-proc-title proc-title-template always-show-logo oom-score-adj
		oom-score-adj-values disable-thp server-cpulist server_cpulist bio-cpulist bio_cpulist
		aof-rewrite-cpulist aof_rewrite_cpulist bgsave-cpulist bgsave_cpulist ignore-warnings`),
	ignoredAll(logs, `
		syslog-enabled syslog-ident syslog-facility crash-log-enabled crash-memcheck-enabled
		use-exit-on-panic watchdog-period log-timestamp-format hide-user-data-from-log latency-tracking
		latency-tracking-info-percentiles acllog-max-len slowlog-entry-max-argc
		slowlog-entry-max-string-len key-memory-histograms commandlog-execution-slower-than
		commandlog-slow-execution-max-len commandlog-request-larger-than commandlog-large-request-max-len
		commandlog-reply-larger-than commandlog-large-reply-max-len`),
)

// ignoredAll declares directives that are ignored for one reason.
func ignoredAll(reason, names string) (list []Directive) {
	for name := range strings.FieldsSeq(names) {
		list = append(list, Directive{name, reason, Verdict{}})
	}
	return list
}
