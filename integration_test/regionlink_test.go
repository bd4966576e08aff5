package integration

import (
	"fmt"
	"strings"
	"testing"
)

// TestRegionLink: packets between two regions are dropped, one way or both, and nobody is told.
// What both count meanwhile counts once. They log in at each other by ACL users.
func TestRegionLink(t *testing.T) {
	t.Parallel()
	const password, peer = "a-password", "another-one"
	h := newHosts(t, 2)
	var all []*server
	for i := range 2 {
		s := &server{t: t, dir: t.TempDir(), namespace: h.namespace(i), password: password, args: []string{
			"--bind", h.address(i), "--port", "7000", "--requirepass", password,
			"--user", "peer on >" + peer + " +region.pull", "--region-user", "peer", "--region-password",
			peer}}
		s.start()
		t.Cleanup(s.cleanup)
		all = append(all, s)
	}
	login := []string{"--requirepass", password}
	region(t, 0, "is the region eu", append([]string{"create", all[0].address(), "eu"}, login...)...)
	region(t, 0, "has caught up with eu", append([]string{"join", all[1].address(), "us", all[0].address()},
		login...)...)
	shows := func(n int) {
		t.Helper()
		for _, s := range all {
			eventually(t, patience, s.address()+" shows the sum", func() bool {
				out, _ := redisAsk(s, "GET", "k")
				return out == fmt.Sprint(n)
			})
		}
	}
	for i, chains := range []string{"INPUT", "OUTPUT", "INPUT OUTPUT"} {
		for _, chain := range strings.Fields(chains) {
			h.drop(0, chain, map[string]string{"INPUT": "-s", "OUTPUT": "-d"}[chain], []int{1})
		}
		for _, s := range all {
			if _, err := redisAsk(s, "CINCRBY", "k", fmt.Sprint("op", i), 1); err != nil {
				t.Fatal(err)
			}
		}
		h.heal()
		shows(i + 1)
	}
	region(t, 0, "the regions agree", append([]string{"verify", all[0].address()}, login...)...)
}
