package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands"
)

// GroupCluster heads the settings of a node of a cluster.
const GroupCluster = "Cluster"

// ClusterConfig holds the cluster settings.
type ClusterConfig struct {
	Enabled     bool
	Port        int           // 0: 10000 more than the port for clients; see Config.ClusterPort
	NodeTimeout time.Duration // how long a node may be silent
	Secret      string        // "" if there is none
	TLS         bool          // nodes prove with certificates who they are
	// The addresses for other nodes and clients; "" and 0: the node finds them by itself.
	AnnounceIP       string
	AnnounceHostname string
	AnnouncePort     int
	AnnounceTLSPort  int
	AnnounceBusPort  int
	EndpointType     string        // one of commands.EndpointIP, …
	ReplicaMaxStale  time.Duration // 0: no limit
}

// shippedSecret is the placeholder in packaging/docker/cluster.conf.
const shippedSecret = "choose-a-secret-of-the-nodes"

// portDistance is how far the default cluster-port is from the port for clients.
const portDistance = 10000

// ClusterPort returns the port for other nodes, 0 if the settings do not say which.
func (c *Config) ClusterPort() int {
	switch {
	case c.Cluster.Port != 0:
		return c.Cluster.Port
	case c.Port != 0:
		return c.Port + portDistance
	case c.TLS.Port != 0:
		return c.TLS.Port + portDistance
	}
	return 0
}

// clusterFaults returns why these settings cannot be those of a node of a cluster.
func (c *Config) clusterFaults() (faults Faults) {
	if !c.Cluster.Enabled {
		return nil
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if err := c.checkFsync(); err != nil {
		fault("appendfsync %s: %v", c.AppendFsync, err)
	}
	switch port := c.ClusterPort(); {
	case port == 0:
		fault("cluster-enabled yes needs a port, or a cluster-port")
	case port > math.MaxUint16:
		fault("cluster-port would be %d, which is no port: set it", port)
	case port == c.Port || port == c.TLS.Port:
		fault("cluster-port is %d, as is a port for clients: give it its own", port)
	}
	if c.Cluster.TLS && c.TLS.Port == 0 && !c.TLS.hasFiles() {
		fault("tls-cluster needs tls-cert-file and tls-key-file")
	}
	if c.Cluster.Secret == shippedSecret {
		fault("cluster-secret is the placeholder of the shipped cluster.conf, which everybody knows: draw " +
			"one with openssl rand -hex 32")
	}
	switch {
	case c.Cluster.TLS && c.TLS.CACertFile == "" && c.TLS.CACertDir == "" && c.TLS.ClusterCACertFile == "":
		fault("tls-cluster yes needs the authorities to trust: tls-cluster-ca-cert-file, or " +
			"tls-ca-cert-file or tls-ca-cert-dir")
	case !c.Cluster.TLS && c.Cluster.Secret == "" && slices.ContainsFunc(c.Bind, isPublic):
		fault("with cluster-enabled yes and bind %s, others could pose as nodes: set tls-cluster to yes, "+
			"or set a cluster-secret",
			strings.Join(c.Bind, " "))
	}
	return faults
}

// Warnings returns what a start should say of settings that are allowed and probably not meant.
func (c *Config) Warnings() (all []string) {
	own := c.TLS.ClusterCACertFile
	if c.Cluster.Enabled && c.Cluster.TLS && c.TLS.Port != 0 && c.TLS.AuthClients != "no" &&
		(own == "" || own == c.TLS.CACertFile) {
		all = append(all, "the authorities that sign clients' certificates sign those of the cluster's "+
			"nodes too: whoever gets a server "+
			"certificate of them can be a node; give nodes an authority of their own, and set "+
			"tls-cluster-ca-cert-file")
	}
	return all
}

// isPublic reports whether an address of bind can be reached from other machines.
func isPublic(address string) bool {
	address = strings.TrimPrefix(address, "-")
	ip := net.ParseIP(address)
	return address != "localhost" && (ip == nil || !ip.IsLoopback())
}

// checkFsync refuses what a node must not promise to its shard.
func (c *Config) checkFsync() error {
	if c.Cluster.Enabled && c.AppendFsync != "always" {
		return errors.New("a node of a cluster (cluster-enabled yes) needs always")
	}
	return nil
}

// fillCluster gives package commands what the settings say of the cluster.
func (s *Server) fillCluster(c *commands.Cluster) {
	s.commands.Cluster = c
	if c == nil {
		return
	}
	c.HoldFor = func() time.Duration { return s.config.Load().Cluster.NodeTimeout }
	c.MaxStale = func() time.Duration { return s.config.Load().Cluster.ReplicaMaxStale }
	c.Endpoint = func() string { return s.config.Load().Cluster.EndpointType }
}

// ofEachNode are the settings in which nodes of a cluster differ for good reasons.
var ofEachNode = []string{"bind", "port", "tls-port", "dir", "backup-dir", "logfile", "aclfile",
	"metrics-addr", "cluster-port", "cluster-announce-ip",
	"cluster-announce-hostname", "cluster-announce-port", "cluster-announce-tls-port",
	"cluster-announce-bus-port",
	"tls-cert-file", "tls-key-file", "tls-key-file-pass", "tls-ca-cert-file", "tls-ca-cert-dir",
	"tls-cluster-ca-cert-file", "requirepass"}

// Digests returns hashes of the settings and of the users that should be equal on all nodes of a
// cluster. Each node has its own.
func (s *Server) Digests() (settings, users string) {
	var b strings.Builder
	for _, pair := range s.getConfig("*") {
		if !slices.Contains(ofEachNode, pair[0]) {
			fmt.Fprintf(&b, "%s %q\n", pair[0], pair[1])
		}
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:8])
	}
	return digest(b.String()), digest(s.commands.Users.File())
}

// Config returns the settings in force. They must not be changed.
func (s *Server) Config() *Config { return s.config.Load() }

// clusterSettings are the settings of GroupCluster.
var clusterSettings = []Setting{
	{
		Name: "cluster-enabled", Group: GroupCluster, Default: "no",
		Doc: "Make the server a node of a cluster. It serves no keys until fbfkv cluster create or " +
			"add-node has made it a member. appendfsync must be always.",
		kind: yesNo(func(c *Config) *bool { return &c.Cluster.Enabled }),
	}, {
		Name: "cluster-port", Group: GroupCluster, Default: "0",
		Doc: "The TCP port for the other nodes, on the addresses of bind. 0 is the port for clients " +
			"plus 10000.",
		kind: integer(func(c *Config) *int { return &c.Cluster.Port }, 0, math.MaxUint16),
	}, {
		Name: "cluster-node-timeout", Group: GroupCluster, Default: "1000",
		Doc: "How many milliseconds a leader may be silent before the other nodes elect another one; all " +
			"nodes need the same value. A request also waits so long for a shard without a leader, and a " +
			"region that starts for the others, also a server alone, before it writes.",
		kind: millis(func(c *Config) *time.Duration { return &c.Cluster.NodeTimeout }, 100, 600_000),
	}, {
		Name: "cluster-secret", Group: GroupCluster, Default: `""`,
		Doc: "The password of the nodes among each other, the same on all nodes. Not needed if tls-cluster " +
			"is yes. Set it in the configuration file or in one that it includes, not on the command line. " +
			"It is never shown.",
		kind: password(func(c *Config) *string { return &c.Cluster.Secret }).must(longSecret),
	}, {
		Name: "tls-cluster", Group: GroupCluster, Default: "no",
		Doc: "Nodes talk over TLS and show each other their certificates (tls-cert-file). An authority of " +
			"tls-cluster-ca-cert-file must have signed them, with the extended key usage serverAuth. Each " +
			"holder of such a certificate can be a node.",
		kind: yesNo(func(c *Config) *bool { return &c.Cluster.TLS }),
	}, {
		Name: "cluster-announce-ip", Group: GroupCluster, Default: `""`,
		Doc: "The address or name at which clients and nodes reach this node. Set it if it differs from " +
			"that of fbfkv cluster create, as behind address translation, or if the address may change and " +
			"a name does not.",
		kind: text(func(c *Config) *string { return &c.Cluster.AnnounceIP }, "<address>",
			253).must(goodNames),
	}, {
		Name: "cluster-announce-hostname", Group: GroupCluster, Default: `""`,
		Doc: "The node's name. Clients get it beside the address, and can check the certificate against it.",
		kind: text(func(c *Config) *string { return &c.Cluster.AnnounceHostname }, "<name>",
			253).must(goodNames),
	}, {
		Name: "cluster-announce-port", Group: GroupCluster, Default: "0",
		Doc:  "The port at which clients reach this node, if it differs from port; 0: port.",
		kind: integer(func(c *Config) *int { return &c.Cluster.AnnouncePort }, 0, math.MaxUint16),
	}, {
		Name: "cluster-announce-tls-port", Group: GroupCluster, Default: "0",
		Doc:  "Like cluster-announce-port, for tls-port.",
		kind: integer(func(c *Config) *int { return &c.Cluster.AnnounceTLSPort }, 0, math.MaxUint16),
	}, {
		Name: "cluster-announce-bus-port", Group: GroupCluster, Default: "0",
		Doc:  "Like cluster-announce-port, for cluster-port.",
		kind: integer(func(c *Config) *int { return &c.Cluster.AnnounceBusPort }, 0, math.MaxUint16),
	}, {
		Name: "cluster-preferred-endpoint-type", Group: GroupCluster, Default: commands.EndpointIP,
		Mutable: true,
		Doc: "How clients are told to reach nodes: by address, by hostname, or by port alone, for clients " +
			"that reach every node at the same address.",
		kind: choice(func(c *Config) *string { return &c.Cluster.EndpointType }, commands.EndpointIP,
			commands.EndpointHostname, commands.EndpointUnknown),
	}, {
		Name: "cluster-replica-max-stale", Group: GroupCluster, Default: "10", Mutable: true,
		Doc: "A replica that hears no leader, or lacks committed entries, answers clients that have sent " +
			"READONLY for so many seconds more; 0: for ever. Unless it is 0, a replica that has just " +
			"started answers only once it has everything.",
		kind: seconds(func(c *Config) *time.Duration { return &c.Cluster.ReplicaMaxStale }, 0, math.MaxInt32),
	},
}

// The conditions of single settings.

// longSecret refuses a secret that could be guessed from a handshake that somebody overheard.
func longSecret(c *Config) error {
	if n := len(c.Cluster.Secret); n > 0 && n < 16 {
		return errors.New("argument must be at least 16 bytes long")
	}
	return nil
}

// goodNames refuses what clients could misread in a redirection.
func goodNames(c *Config) error {
	for _, name := range []string{c.Cluster.AnnounceIP, c.Cluster.AnnounceHostname} {
		bad := func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
				strings.ContainsRune(".-_:", r))
		}
		if strings.ContainsFunc(name, bad) {
			return errors.New("argument may only hold letters, digits, dots, hyphens, underscores and colons")
		}
	}
	if strings.Contains(c.Cluster.AnnounceHostname, ":") {
		return errors.New("argument must be a name")
	}
	return nil
}
