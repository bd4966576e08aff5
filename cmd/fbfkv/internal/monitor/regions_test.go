package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// TestRegionFigures: what a region shows of itself and of another one, which does not answer.
func TestRegionFigures(t *testing.T) {
	var node *regions.Node
	w, ready := startNode(t, Options{}, nil, func(o *server.Options) {
		meta := o.Store.Meta()
		err := o.Store.SetRegions(store.RegionSet{Group: 7, Version: 3, Members: []store.RegionMember{
			{Region: 0, Name: "eu", Partitions: meta.Partitions, Incarnation: meta.Incarnation,
				Address: "eu:6379"},
			{Region: 1, Name: "us", Partitions: 4, Incarnation: 9, Address: "us:6379"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		node, err = regions.Open(regions.Options{Store: o.Store, LastRetry: time.Hour,
			Dial: func(context.Context, string) (net.Conn, error) {
				return nil, errors.New("no way: a=b, c")
			}})
		if err != nil {
			t.Fatal(err)
		}
		o.Regions = node
	})
	t.Cleanup(func() { node.Close() })
	ready()
	for end := time.Now().Add(testwait.Limit); !node.Status().Peers[0].Failing; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other region never fails")
		}
	}
	for name, want := range map[string]float64{
		`fbfkv_region_up{region="us"}`: 0, `fbfkv_region_paused{region="us"}`: 0,
		`fbfkv_region_received_bytes_total{region="us"}`: 0, "fbfkv_region_members_version": 3,
		`fbfkv_region_ids_unchecked_total{region="us"}`: 0, "fbfkv_region_ills": 0,
		"fbfkv_region_reads":                        1,
		`fbfkv_region_digest_mismatch{region="us"}`: 0, `fbfkv_region_digest_missed{region="us"}`: 0,
		`fbfkv_region_digest_timestamp_seconds{region="us"}`: 0,
	} {
		if got := w.value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := w.value(`fbfkv_region_lag_entries{region="us"}`); !math.IsNaN(got) {
		t.Errorf("it is %v entries behind, and nobody has told it", got)
	}
	count := func(ids ...string) {
		for _, id := range ids {
			if err := w.client.Do(t.Context(), "CINCRBY", "k", id, 1).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	count("first") // before it nothing waits: what the log has by now is not for others
	before := w.value(`fbfkv_region_waiting_entries{region="us"}`)
	count("1", "2", "3")
	if got := w.value(`fbfkv_region_waiting_entries{region="us"}`); got != before+3 {
		t.Errorf("%v entries wait for a region, and then %v", before, got)
	}
	info := w.client.Info(t.Context(), "regions").Val()
	for _, want := range []string{"# Regions\r\nregion_member:1\r\nregion_name:eu\r\n",
		"region_takebacks:0\r\n", "\r\nregion0:name=us,state=failing,lag_ms=",
		",lag_ops=-1,waiting_ops=",
		",clock_skew_ms=0,digest_mismatch=0,digest_checked=0,digest_missed=0,ids_heard=0,ids_late=0,twins_seen=0,takebacks=0,ids_unchecked=0,last_error=no_way__a_b__c\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %q:\n%s", want, info)
		}
	}
	if err := node.Pause("us"); err != nil {
		t.Fatal(err)
	}
	if got := w.value(`fbfkv_region_paused{region="us"}`); got != 1 {
		t.Errorf("paused: %v", got)
	}
	if info := w.client.Info(t.Context(), "regions").Val(); !strings.Contains(info, ",state=paused,") ||
		!strings.Contains(info, ",last_error=\r\n") {
		t.Errorf("it shows an error of before:\n%s", info)
	}
	alone, ready := start(t, Options{})
	ready()
	if _, text := alone.get("/metrics"); strings.Contains(text, "fbfkv_region_") {
		t.Error("a server that is no region shows figures of regions")
	}
}

// pair starts two servers; join makes them the regions eu and us.
func pair(t *testing.T) (parts [2]*watched, do func(w *watched, args ...any) string, join func()) {
	var nodes [2]*regions.Node
	var addresses [2]string
	for i := range parts {
		w, ready := startNode(t, Options{}, nil, func(o *server.Options) {
			var err error
			if nodes[i], err = regions.Open(regions.Options{Store: o.Store,
				DigestPeriod: 60 * time.Millisecond, Block: 100 * time.Millisecond,
				Announce: func() string { return addresses[i] }}); err != nil {
				t.Fatal(err)
			}
			o.Regions = nodes[i]
		})
		t.Cleanup(func() { nodes[i].Close() })
		ready()
		parts[i], addresses[i] = w, w.client.Options().Addr
	}
	do = func(w *watched, args ...any) string {
		t.Helper()
		reply, err := w.client.Do(t.Context(), args...).Result()
		for end := time.Now().Add(testwait.Limit); err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN ") &&
			time.Now().Before(end); time.Sleep(time.Millisecond) { // it has not caught up yet
			reply, err = w.client.Do(t.Context(), args...).Result()
		}
		if err != nil {
			t.Fatal(args, err)
		}
		return fmt.Sprint(reply)
	}
	join = func() {
		t.Helper()
		do(parts[0], "REGION", "CREATE", "eu", addresses[0])
		admission, err := json.Marshal(nodes[1].Admission("us", addresses[1]))
		if err != nil {
			t.Fatal(err)
		}
		do(parts[1], "REGION", "JOIN", do(parts[0], "REGION", "ADMIT", string(admission)))
	}
	return parts, do, join
}

// awaits waits until a figure is what it should be.
func (w *watched) awaits(name string, is func(float64) bool) {
	w.t.Helper()
	for end := time.Now().Add(testwait.Limit); !is(w.value(name)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%s is %v; %s", name, w.value(name), w.client.Info(w.t.Context(), "regions").Val())
		}
	}
}

// TestRegionUncheckedOfRemoved: operations of a region that may count twice are shown also when it
// is no longer a member.
func TestRegionUncheckedOfRemoved(t *testing.T) {
	parts, do, join := pair(t)
	eu, us := parts[0], parts[1]
	do(eu, "CTABLE", "CREATE", "t", "PREFIX", "t:", "MODE", "APPROX") // which cannot tell whose an opid is
	do(us, "CTABLE", "CREATE", "t", "PREFIX", "t:", "REGIONS", "ALL")
	join()
	for _, w := range parts {
		do(w, "CINCRBY", "t:a", "op", "1")
	}
	eu.awaits("fbfkv_region_unchecked_total", func(f float64) bool { return f == 1 })
	if got := eu.value(`fbfkv_region_ids_unchecked_total{region="us"}`); got != 1 {
		t.Errorf("of us: %v", got)
	}
	do(eu, "REGION", "REMOVE", "eu", "us")
	if _, text := eu.get("/metrics"); strings.Contains(text, `{region="us"}`) {
		t.Error("a region that was removed is shown")
	}
	if got := eu.value("fbfkv_region_unchecked_total"); got != 1 {
		t.Errorf("of all: %v", got)
	}
	if info := eu.client.Info(t.Context(), "regions").Val(); !strings.Contains(info,
		"\r\nregion_ids_unchecked:1\r\n") || strings.Contains(info, "region0:") {
		t.Errorf("INFO:\n%s", info)
	}
}

// TestRegionDiffers: two regions that do not agree, as a table of one of them is told and that of
// the other is not, find that by themselves and show it; and that it is over.
func TestRegionDiffers(t *testing.T) {
	parts, do, join := pair(t)
	eu, us := parts[0], parts[1]
	do(eu, "CTABLE", "CREATE", "t", "PREFIX", "t:", "REGIONS", "ALL")
	do(us, "CTABLE", "CREATE", "t", "PREFIX", "t:", "REGIONS", "NONE")
	join()
	eu.awaits("fbfkv_region_ills", func(f float64) bool { return f == 1 })
	const ill = "table t has REGIONS ALL in eu and NONE in us: CTABLE ALTER t REGIONS NONE in eu"
	if status := do(eu, "REGION", "STATUS"); !strings.Contains(status, ill) {
		t.Error(status)
	}
	eu.awaits(`fbfkv_region_digest_timestamp_seconds{region="us"}`, func(f float64) bool { return f > 1.7e9 })
	if got := eu.value(`fbfkv_region_digest_mismatch{region="us"}`); got != 0 {
		t.Errorf("nothing was counted, and %v groups of slots differ", got)
	}
	do(eu, "CINCRBY", "t:a", "op", "1")
	eu.awaits(`fbfkv_region_digest_mismatch{region="us"}`, func(f float64) bool { return f == 1 })
	if info := eu.client.Info(t.Context(), "regions").Val(); !strings.Contains(info,
		",digest_mismatch=1,digest_checked=1") || !strings.Contains(info, "region_ills:2\r\n") {
		t.Errorf("INFO:\n%s", info)
	}
	do(eu, "CTABLE", "ALTER", "t", "REGIONS", "NONE")
	eu.awaits(`fbfkv_region_digest_mismatch{region="us"}`, func(f float64) bool { return f == 0 })
	if got := eu.value("fbfkv_region_ills"); got != 0 {
		t.Errorf("%v ills", got)
	}
}
