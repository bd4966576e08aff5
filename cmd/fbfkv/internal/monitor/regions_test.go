package monitor

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

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
			{Region: 0, Name: "eu", Partitions: meta.Partitions, Incarnation: meta.Incarnation, Address: "eu:6379"},
			{Region: 1, Name: "us", Partitions: 4, Incarnation: 9, Address: "us:6379"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		node, err = regions.Open(regions.Options{Store: o.Store, LastRetry: time.Hour, Dial: func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("no way: a=b, c")
		}})
		if err != nil {
			t.Fatal(err)
		}
		o.Regions = node
	})
	t.Cleanup(func() { node.Close() })
	ready()
	for end := time.Now().Add(time.Minute); !node.Status().Peers[0].Failing; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other region never fails")
		}
	}
	for name, want := range map[string]float64{
		`fbfkv_region_up{region="us"}`: 0, `fbfkv_region_paused{region="us"}`: 0,
		`fbfkv_region_received_bytes_total{region="us"}`: 0, "fbfkv_region_members_version": 3, "fbfkv_region_ids_unchecked_total": 0, "fbfkv_region_ills": 0, "fbfkv_region_reads": 1,
	} {
		if got := w.value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := w.value(`fbfkv_region_lag_entries{region="us"}`); !math.IsNaN(got) {
		t.Errorf("it is %v entries behind, and nobody has told it", got)
	}
	info := w.client.Info(t.Context(), "regions").Val()
	for _, want := range []string{"# Regions\r\nregion_member:1\r\nregion_name:eu\r\n", "region_takebacks:0\r\n", "\r\nregion0:name=us,state=failing,lag_ms=",
		",lag_ops=-1,", ",clock_skew_ms=0,last_error=no_way__a_b__c\r\n"} {
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
	if info := w.client.Info(t.Context(), "regions").Val(); !strings.Contains(info, ",state=paused,") || !strings.Contains(info, ",last_error=\r\n") {
		t.Errorf("it shows an error of before:\n%s", info)
	}
	alone, ready := start(t, Options{})
	ready()
	if _, text := alone.get("/metrics"); strings.Contains(text, "fbfkv_region_") {
		t.Error("a server that is no region shows figures of regions")
	}
}
