package monitor

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/server"
)

// figure is one number of a T and the metric that shows it.
type figure[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*T) float64
}

// counter is a figure that only grows.
func counter[T any](name, help string, get func(*T) float64, labels ...string) figure[T] {
	return figure[T]{describe(name, help, labels...), prometheus.CounterValue, get}
}

// gauge is a figure that goes up and down.
func gauge[T any](name, help string, get func(*T) float64, labels ...string) figure[T] {
	return figure[T]{describe(name, help, labels...), prometheus.GaugeValue, get}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fbfkv_"+name, help, labels, nil)
}

// show emits the figures of one T.
func show[T any](ch chan<- prometheus.Metric, figures []figure[T], t *T, labels ...string) {
	for _, f := range figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.get(t), labels...)
	}
}

// declare emits the figures' descriptions.
func declare[T any](ch chan<- *prometheus.Desc, figures []figure[T]) {
	for _, f := range figures {
		ch <- f.desc
	}
}

// bool01 is a yes or no as a number.
func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// buildInfo is a metric that is always 1 and whose labels describe the program.
func buildInfo(o *Options) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fbfkv_build_info", Help: "The program's version, commit and compiler; always 1.",
		ConstLabels: prometheus.Labels{"version": o.Version, "revision": o.Revision,
			"goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

// collector is a Monitor as Prometheus' client library sees it.
type collector Monitor

var (
	commandLatency = describe("command_latency_seconds",
		"How long clients waited for a command: for the whole batch it was executed in, its commit included.",
		"command")
	isReady       = describe("ready", "Whether clients are served and writes accepted, as /readyz says.")
	fsyncTime     = describe("fsync_latency_seconds", "How long the disk took to fsync the op log.")
	errorsTotal   = describe("error_replies_total", "Error replies by the word they begin with.", "prefix")
	certificateTo = describe("tls_certificate_expiry_timestamp_seconds", "Until when the certificate in "+
		"use is valid.")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	declare(ch, serverFigures)
	declare(ch, commandFigures)
	declare(ch, storeFigures)
	declare(ch, snapshotFigures)
	declare(ch, tableFigures)
	declare(ch, clusterFigures)
	declare(ch, ledFigures)
	declare(ch, shardFigures)
	declare(ch, transferFigures)
	declare(ch, replicaFigures)
	declare(ch, regionFigures)
	declare(ch, peerFigures)
	ch <- commandLatency
	ch <- fsyncTime
	ch <- isReady
	ch <- errorsTotal
	ch <- certificateTo
}

// Collect implements prometheus.Collector: it reads all figures, or only whether the
// server is ready while there is none.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ch <- prometheus.MustNewConstMetric(isReady, prometheus.GaugeValue,
		bool01((*Monitor)(c).notReady() == ""))
	if c.server == nil {
		return
	}
	collectServer(ch, c.server)
	if c.tls != nil {
		expiry := float64(c.tls.Expiry().Unix())
		ch <- prometheus.MustNewConstMetric(certificateTo, prometheus.GaugeValue, expiry)
	}
	if shard, replicas, member := c.server.ShardFigures(); member {
		show(ch, clusterFigures, &shard)
		for id, led := range shard.Led {
			show(ch, ledFigures, &led, id)
		}
		show(ch, shardFigures, &shard, shard.Shard)
		show(ch, transferFigures, &shard.Given, shard.Shard, "given")
		show(ch, transferFigures, &shard.Fetched, shard.Shard, "fetched")
		for i := range replicas {
			show(ch, replicaFigures, &replicas[i], shard.Shard, replicas[i].Address)
		}
	}
	if region, member := c.server.RegionStatus(); member {
		show(ch, regionFigures, &region)
		for i := range region.Peers {
			show(ch, peerFigures, &region.Peers[i], region.Peers[i].Name)
		}
	}
	stats := c.store.Stats()
	show(ch, storeFigures, &stats)
	ch <- fsyncMetric(stats.Storage.Fsyncs)
	saved := snapshots{running: c.store.Saving()}
	saved.at, saved.took, saved.err = c.store.LastSnapshot()
	show(ch, snapshotFigures, &saved)
	for _, t := range c.store.Tables() {
		// One that was dropped a moment ago is left out.
		if info, err := c.store.TableInfo(t.Name); err == nil {
			show(ch, tableFigures, &info, t.Name)
		}
	}
}

// collectServer emits what the server and its commands have counted.
func collectServer(ch chan<- prometheus.Metric, s *server.Server) {
	figures := s.Figures()
	show(ch, serverFigures, &figures)
	called := s.CommandFigures()
	for i := range called {
		c := &called[i]
		show(ch, commandFigures, c, c.Name)
		if c.Latency.Count > 0 {
			ch <- latencyMetric(c)
		}
	}
	for _, e := range s.ErrorFigures() {
		ch <- prometheus.MustNewConstMetric(errorsTotal, prometheus.CounterValue, float64(e.Count),
			strings.ToValidUTF8(e.Prefix, "?"))
	}
}

// fsyncMetric is the histogram of fsyncs.
func fsyncMetric(f oplog.FsyncTimes) prometheus.Metric {
	counts := make(map[float64]uint64, len(f.Buckets))
	for i, n := range f.Buckets {
		counts[oplog.FsyncBounds[i].Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(fsyncTime, f.Count, f.Sum.Seconds(), counts)
}

// latencyMetric is one command's histogram.
func latencyMetric(c *observe.CommandFigures) prometheus.Metric {
	counts := make(map[float64]uint64, len(observe.LatencyBounds))
	for _, d := range observe.LatencyBounds {
		counts[d.Seconds()] = c.Latency.AtMost(d)
	}
	return prometheus.MustNewConstHistogram(commandLatency, c.Latency.Count, c.Latency.Sum.Seconds(), counts,
		c.Name)
}
