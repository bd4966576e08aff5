package top

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const infoBefore = "# Server\r\nrun_id:abc\r\nfbfkv_version:1.2.3\r\nuptime_in_seconds:7200\r\n\r\n# " +
	"Stats\r\noperations_applied:1000\r\n" +
	"operations_duplicate:10\r\n# " +
	"FBF\r\naof_last_write_status:ok\r\nappendfsync:always\r\nfilter_bytes:200000\r\nloading_hot_counters:2500000\r\nwaits_usec:100=10,200=10,inf=10\r\n" +
	"table_default:mode=exact,window_ms=120000,target_fpp=0.001,effective_fpp=0.0001,fills=0.5/0.25/0,ids=20000,memory=200000,applied=1000,duplicates=10,stale=0,refused=0\r\n"

// later is INFO two seconds after infoBefore.
var later = strings.NewReplacer("operations_applied:1000", "operations_applied:4000",
	"operations_duplicate:10", "operations_duplicate:50",
	"100=10,200=10,inf=10", "100=10,200=60,inf=110", "applied=1000", "applied=4000", "duplicates=10",
	"duplicates=50")

func TestScreen(t *testing.T) {
	now := time.Now()
	before := parse(infoBefore, now)
	after := parse(later.Replace(infoBefore), now.Add(2*time.Second))
	after.slow = []slowBatch{{at: now, took: 12 * time.Millisecond,
		args: []string{"SET", "evil\x1b]0;name\x07\u009b2J", "\xff"}, client: "1.2.3.4:5"}}
	sc := &screen{addr: "h:1", unicode: true}
	all := strings.Join(sc.lines(after, before, nil), "\n")
	for _, want := range []string{"h:1: ready (fbfkv 1.2.3, up 2 h, appendfsync always)",
		"1.50 k/s applied, 20/s duplicates",
		"4.00 k applied, 50 duplicates absorbed", "half within 200 us, 99 % within 200 us", "10.0 B each",
		"█▅▁", "default     1.50 k", ", 2.50 M still to be read into memory,",
		"12 ms  SET evil?]0;name??2J \ufffd  1.2.3.4:5"} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no %q in\n%s", want, all)
		}
	}
	for _, r := range all {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			t.Errorf("the terminal is sent %q", r)
		}
	}
	for what, other := range map[string]*sample{"a restart": parse(strings.Replace(infoBefore, "abc", "def",
		1), now), "nothing": nil,
		"a reset": parse(later.Replace(infoBefore), now)} {
		now := parse(infoBefore, now.Add(2*time.Second))
		if text := strings.Join(sc.lines(now, other, nil), "\n"); !strings.Contains(text,
			"-/s applied, -/s duplicates") {
			t.Errorf("rates after %s:\n%s", what, text)
		}
	}
	if text := sc.lines(after, nil, errors.New("gone"))[0]; !strings.HasPrefix(text, "h:1: NO ANSWER: gone") {
		t.Error(text)
	}
	frozen := parse(strings.Replace(infoBefore, "status:ok", "status:err", 1), now)
	if text := sc.lines(frozen, nil, nil)[0]; !strings.HasPrefix(text, "h:1: FROZEN") {
		t.Error(text)
	}
}

// TestScreenFits: nothing is wider or higher than the terminal, however small, whatever
// INFO says, or does not.
func TestScreenFits(t *testing.T) {
	now := time.Now()
	many := infoBefore
	for _, name := range []string{"a", "ü", strings.Repeat("long", 40)} {
		many += strings.Replace(infoBefore[strings.Index(infoBefore, "table_"):], "default", name, 1)
	}
	for _, text := range []string{"", "table_x:\r\ntable_:=,=\r\nwaits_usec:,inf=x,=3", infoBefore, many,
		many + "cluster_enabled:1\r\n# Cluster\r\nshard_0:leader=a,term=3\r\n"} {
		for _, size := range [][2]int{{1, 1}, {2, 3}, {20, 5}, {80, 24}, {200, 60}} {
			sc := &screen{addr: "h:1", width: size[0], height: size[1]}
			lines := sc.lines(parse(text, now), nil, nil)
			if len(lines) > size[1] {
				t.Errorf("%d lines on %d", len(lines), size[1])
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > size[0] {
					t.Errorf("%q is wider than %d", line, size[0])
				}
			}
		}
	}
}

// TestShard: a leader shows how far the others are, a follower whom it follows.
func TestShard(t *testing.T) {
	cluster := "# Replication\r\nrole:master\r\n# " +
		"Cluster\r\ncluster_enabled:1\r\nshard_term:7\r\nshard_leader_changes:2\r\nshard_commit_index:90\r\nshard_applied_index:85\r\n" +
		"shard_replica0:address=10.0.0.2:6379,index=85,lag_entries=5,lag_ms=31890,last_contact_ms=40\r\n" +
		"shard_replica1:address=10.0.0.3:6379,index=0,lag_entries=90,lag_ms=0,last_contact_ms=-1\r\n"
	follower := strings.NewReplacer("role:master",
		"role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\nmaster_link_status:up").Replace(cluster)
	follower, _, _ = strings.Cut(follower, "shard_replica0")
	for text, want := range map[string]string{
		cluster: "CLUSTER\nthis node leads; term 7, the leader changed 2 times; 90 entries committed, " +
			"85 applied\n10.0.0.2:6379          5 entries behind, 31.9 s; heard of 40 ms " +
			"ago\n10.0.0.3:6379          has not answered since this node leads\n\n",
		follower:   "CLUSTER\nthis node follows 10.0.0.1:6379, link up; term 7,",
		infoBefore: "default ",
	} {
		all := strings.Join(new(screen).lines(parse(text, time.Now()), nil, nil), "\n")
		if !strings.Contains(all, want) ||
			strings.Contains(all, "CLUSTER") != strings.HasPrefix(want, "CLUSTER") {
			t.Errorf("there is no %q in\n%s", want, all)
		}
	}
}
