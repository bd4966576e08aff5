package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/server/tlstest"
)

// tlsNodes start servers with certificates and no other port, which may become nodes of clusters
// that are regions.
type tlsNodes struct {
	t      *testing.T
	flags  []string // of commands
	config *tls.Config
	args   []string
}

func newTLSNodes(t *testing.T) *tlsNodes {
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	own, ownKey := ca.Issue("client", time.Now().Add(time.Hour))
	return &tlsNodes{t, []string{"--tls", "--cacert", ca.File, "--cert", own, "--key", ownKey},
		ca.Client(own, ownKey), []string{
			"--cluster-enabled", "yes", "--port", "0", "--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-ca-cert-file", ca.File,
			"--tls-auth-clients", "yes", "--tls-cluster", "yes", "--tls-region", "yes",
			"--cluster-node-timeout", "2000"}}
}

func (n *tlsNodes) start() *server {
	return startServer(n.t, append([]string{"--tls-port", fmt.Sprint(freePorts(n.t, 1))}, n.args...)...)
}

// ask sends a command to the cluster of a node.
func (n *tlsNodes) ask(s *server, args ...any) string {
	n.t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.address()}, TLSConfig: n.config,
		MaxRedirects:    16,
		MaxRetryBackoff: 200 * time.Millisecond, ClusterStateReloadInterval: 500 * time.Millisecond})
	defer c.Close()
	var got any
	eventually(n.t, patience, fmt.Sprint(args, " is answered"), func() bool {
		var err error
		got, err = c.Do(context.Background(), args...).Result()
		return err == nil || err == redis.Nil
	})
	return fmt.Sprint(got)
}

func (n *tlsNodes) shows(s *server, key, want string) {
	n.t.Helper()
	eventually(n.t, patience, s.address()+" shows the sum", func() bool {
		return n.ask(s, "GET", key) == want
	})
}

// TestRegionClustersTLS: clusters that know each other by certificates are regions. One gets nodes,
// of which the other one learns; when the node that was named is lost, and the other region starts
// again, it goes on reading.
func TestRegionClustersTLS(t *testing.T) {
	t.Parallel()
	n := newTLSNodes(t)
	with := func(args ...string) []string { return append(args, n.flags...) }
	eu, us := n.start(), n.start()
	for _, s := range []*server{eu, us} {
		operate(t, 0, "is complete", with("create", s.address())...)
	}
	region(t, 0, "is the region eu", with("create", eu.address(), "eu")...)
	region(t, 0, "has caught up with eu", with("join", us.address(), "us", eu.address())...)
	n.ask(eu, "CINCRBY", "k", "a", 1)
	n.ask(us, "CINCRBY", "k", "b", 2)
	n.shows(eu, "k", "3")
	n.shows(us, "k", "3")

	added := []*server{n.start(), n.start()}
	operate(t, 0, "votes", with("add-node", strings.Join(addresses(added...), ","), us.address())...)
	for _, s := range append(added, us, eu) {
		region(t, 0, "one of 2", with("status", s.address())...)
	}
	n.ask(added[0], "CINCRBY", "k", "c", 3)
	n.shows(eu, "k", "6")
	eventually(t, patience, "the new nodes are known", func() bool {
		b, _ := os.ReadFile(filepath.Join(eu.dir, persistence.RegionsName))
		return strings.Contains(string(b), added[0].address()) &&
			strings.Contains(string(b), added[1].address())
	})
	us.kill()
	n.ask(added[1], "CINCRBY", "k", "d", 4)
	eu.restart()
	n.shows(eu, "k", "10")
	n.ask(eu, "CINCRBY", "k", "d", 4) // a retry elsewhere
	n.ask(eu, "CINCRBY", "k", "e", 5)
	n.shows(added[0], "k", "15")
	region(t, 0, "reading", with("status", eu.address())...)
	operate(t, 0, "", with("remove-node", added[0].address(), us.address())...)
	region(t, 0, "reading", with("status", added[1].address())...)
	eventually(t, patience, "the regions agree", func() bool {
		_, code := fbfkv(t, with("region", "verify", eu.address())...)
		return code == 0
	})
}
