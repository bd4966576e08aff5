package monitor

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands"
)

// node is what a node of four knows of its shard, of which it is the first and the last has never answered
// it; and of three other shards, of which somebody leads one.
func node(change func(v *commands.ClusterView, s *commands.ClusterShard,
	p *commands.ClusterProgress)) (*commands.ClusterView, commands.ClusterProgress) {
	s := commands.ClusterShard{ID: "abcdef01" + strings.Repeat("9", 32),
		Slots: []commands.SlotRange{{First: 0, Last: 16383}}, Ready: true, Term: 7}
	for i := range 4 {
		s.Nodes = append(s.Nodes, commands.ClusterNode{ID: fmt.Sprintf("%040x", i+1), Host: "10.0.0.1",
			Port: 7001 + i})
	}
	p := commands.ClusterProgress{Term: 7, LeaderChanges: 3, LastIndex: 1200, Committed: 1100, Applied: 1100,
		Rebuilds: 2, Fenced: 4,
		Takeovers: 1, LastTakeover: 400 * time.Millisecond, Skew: -time.Second, MetaLed: true,
		Given: commands.Transfers{Finished: 5, Failed: 1, Bytes: 1 << 20},
		Nodes: map[string]commands.NodeProgress{
			s.Nodes[1].ID: {Index: 1200, LastContact: 20 * time.Millisecond},
			s.Nodes[2].ID: {Index: 100, LastContact: 5 * time.Second, Lag: 6 * time.Second},
		}}
	v := &commands.ClusterView{Node: s.Nodes[0].ID}
	change(v, &s, &p)
	other := []commands.ClusterNode{{ID: strings.Repeat("e", 40), Host: "10.0.0.2", Port: 7001}}
	v.Shards = []commands.ClusterShard{{ID: "0badbad0" + strings.Repeat("9", 32), Nodes: other,
		LostAt: time.Now()}, s, {ID: "00000001" + strings.Repeat("9", 32), Nodes: other},
		{ID: "00000002" + strings.Repeat("9", 32), Nodes: other, Leader: -1}}
	return commands.NewClusterView(*v), p
}

// TestShardFigures: what a node shows of its shard, and when it is ready.
func TestShardFigures(t *testing.T) {
	var view atomic.Pointer[commands.ClusterView]
	var progress atomic.Pointer[commands.ClusterProgress]
	set := func(change func(v *commands.ClusterView, s *commands.ClusterShard, p *commands.ClusterProgress)) {
		v, p := node(change)
		view.Store(v)
		progress.Store(&p)
	}
	set(func(*commands.ClusterView, *commands.ClusterShard, *commands.ClusterProgress) {})
	w, ready := startNode(t, Options{},
		&commands.Cluster{View: view.Load, Changed: func() <-chan struct{} { return nil },
			Progress: func() commands.ClusterProgress { return *progress.Load() }})
	ready()
	for name, want := range map[string]float64{
		`fbfkv_shard_has_leader{shard="abcdef01"}`: 1, `fbfkv_shard_has_leader{shard="0badbad0"}`: 0,
		`fbfkv_shard_has_leader{shard="00000001"}`: 1,
		`fbfkv_shard_has_leader{shard="00000002"}`: 0, "fbfkv_cluster_meta_has_leader": 1,
		`fbfkv_shard_leads{shard="abcdef01"}`: 1, `fbfkv_shard_term{shard="abcdef01"}`: 7,
		`fbfkv_shard_leader_changes_total{shard="abcdef01"}`:                          3,
		`fbfkv_shard_takeovers_total{shard="abcdef01"}`:                               1,
		`fbfkv_shard_takeover_last_duration_seconds{shard="abcdef01"}`:                0.4,
		`fbfkv_shard_log_index{shard="abcdef01"}`:                                     1200,
		`fbfkv_shard_commit_index{shard="abcdef01"}`:                                  1100,
		`fbfkv_shard_applied_index{shard="abcdef01"}`:                                 1100,
		`fbfkv_shard_rebuilds_total{shard="abcdef01"}`:                                2,
		`fbfkv_shard_fenced_entries_total{shard="abcdef01"}`:                          4,
		`fbfkv_shard_clock_skew_seconds{shard="abcdef01"}`:                            -1,
		`fbfkv_shard_fetching{shard="abcdef01"}`:                                      0,
		`fbfkv_shard_file_transfers_total{direction="given",shard="abcdef01"}`:        5,
		`fbfkv_shard_file_transfers_failed_total{direction="given",shard="abcdef01"}`: 1,
		`fbfkv_shard_file_transfer_bytes_total{direction="given",shard="abcdef01"}`:   1 << 20,
		`fbfkv_shard_file_transfers_total{direction="fetched",shard="abcdef01"}`:      0,
		`fbfkv_shard_replica_lag_entries{node="10.0.0.1:7002",shard="abcdef01"}`:      0,
		`fbfkv_shard_replica_lag_entries{node="10.0.0.1:7003",shard="abcdef01"}`:      1000,
		`fbfkv_shard_replica_lag_seconds{node="10.0.0.1:7003",shard="abcdef01"}`:      6,
		`fbfkv_shard_replica_silence_seconds{node="10.0.0.1:7003",shard="abcdef01"}`:  5,
		`fbfkv_shard_replica_silence_seconds{node="10.0.0.1:7004",shard="abcdef01"}`:  math.Inf(1),
	} {
		if got := w.value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	info := w.client.Info(t.Context(), "cluster").Val()
	for _, want := range []string{"shard_takeover_last_ms:400\r\n",
		"shard_files_given:begun=0,finished=5,failed=1,bytes=1048576\r\n", "shard_clock_skew_ms:-1000\r\n",
		"cluster_meta_has_leader:1\r\n", "cluster_shards_without_leader:2\r\n",
		"shard_replica1:address=10.0.0.1:7003,index=100,lag_entries=1000,lag_ms=6000,last_contact_ms=5000\r\n",
		"shard_replica2:address=10.0.0.1:7004,index=0,lag_entries=1100,lag_ms=0,last_contact_ms=-1\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %q:\n%s", want, info)
		}
	}
	follow := func(s *commands.ClusterShard) { s.Leader = 1 }
	for _, tt := range []struct {
		text   string
		change func(v *commands.ClusterView, s *commands.ClusterShard, p *commands.ClusterProgress)
	}{
		{"ready", func(*commands.ClusterView, *commands.ClusterShard, *commands.ClusterProgress) {}},
		{"is becoming the leader", func(_ *commands.ClusterView, s *commands.ClusterShard,
			_ *commands.ClusterProgress) {
			s.Ready = false
		}},
		{"ready", func(_ *commands.ClusterView, s *commands.ClusterShard, _ *commands.ClusterProgress) {
			follow(s)
		}},
		{"ready", func(_ *commands.ClusterView, s *commands.ClusterShard, p *commands.ClusterProgress) {
			follow(s)
			p.Applied = 100
		}},
		{"is catching up",
			func(_ *commands.ClusterView, s *commands.ClusterShard, p *commands.ClusterProgress) {
				follow(s)
				p.Applied = 99
			}},
		{"fetches the leader's files",
			func(_ *commands.ClusterView, s *commands.ClusterShard, p *commands.ClusterProgress) {
				follow(s)
				p.Fetching = true
			}},
		{"has no leader",
			func(_ *commands.ClusterView, s *commands.ClusterShard, _ *commands.ClusterProgress) {
				follow(s)
				s.LostAt = time.Now().Add(-time.Hour)
			}},
		{"ready", func(_ *commands.ClusterView, s *commands.ClusterShard, _ *commands.ClusterProgress) {
			follow(s)
			s.LostAt = time.Now()
		}},
		{"is not a member",
			func(v *commands.ClusterView, s *commands.ClusterShard, _ *commands.ClusterProgress) {
				v.Node = strings.Repeat("f", 40)
			}},
	} {
		set(tt.change)
		if _, text := w.get("/readyz"); !strings.Contains(text, tt.text) {
			t.Errorf("/readyz: %s, want %s", text, tt.text)
		}
	}
	w.value("fbfkv_ready")
	if _, text := w.get("/metrics"); strings.Contains(text, "fbfkv_shard_") {
		t.Error("a node that is no member shows a shard")
	}
}
