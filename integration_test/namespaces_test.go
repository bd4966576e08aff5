package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// hosts are network namespaces behind one bridge: the machines of a cluster, as far as the
// network goes. The test itself reaches all of them.
type hosts struct {
	t      testing.TB
	bridge string
	subnet string // its first three numbers
	n      int
}

// newHosts makes some. That needs root, and the programs ip and iptables.
func newHosts(t testing.TB, n int) *hosts {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("FBFKV_CI") != "":
		t.Fatal("networks of their own can be made by root only: run the tests as root")
	default:
		t.Skip("networks of their own can be made by root only: run the test as root")
	}
	requireProgram(t, "ip", "install Debian's package iproute2")
	requireProgram(t, "iptables", "install Debian's package iptables")
	h := &hosts{t: t, n: n}
	for tries := 0; ; tries++ { // somebody else may have the same
		number := rand.IntN(1 << 16)
		h.bridge, h.subnet = fmt.Sprintf("fbfkv%04x", number),
			fmt.Sprintf("10.%d.%d", 64+number>>8%64, number&255)
		out, err := exec.Command("ip", "link", "add", h.bridge, "type", "bridge").CombinedOutput()
		if err == nil {
			break
		}
		if tries == 10 {
			if os.Getenv("FBFKV_CI") != "" {
				t.Fatalf("no network can be made: %s", out)
			}
			t.Skipf("no network can be made: %s", out)
		}
	}
	t.Cleanup(func() { exec.Command("ip", "link", "del", h.bridge).Run() })
	h.run("ip", "addr", "add", h.subnet+".254/24", "dev", h.bridge)
	h.run("ip", "link", "set", h.bridge, "up")
	for i := range n {
		space, outside := h.namespace(i), fmt.Sprintf("%s.%d", h.bridge, i)
		h.run("ip", "netns", "add", space)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", space).Run() })
		h.run("ip", "link", "add", outside, "master", h.bridge, "type", "veth", "peer", "name", "eth0",
			"netns", space)
		h.run("ip", "link", "set", outside, "up")
		for _, args := range []string{"addr add " + h.address(i) + "/24 dev eth0", "link set eth0 up",
			"link set lo up"} {
			h.run("ip", append([]string{"-n", space}, strings.Fields(args)...)...)
		}
	}
	return h
}

func (h *hosts) namespace(i int) string { return fmt.Sprintf("%s-%d", h.bridge, i) }

// address is where a host is reached.
func (h *hosts) address(i int) string { return fmt.Sprintf("%s.%d", h.subnet, i+1) }

// run runs a program that must succeed.
func (h *hosts) run(name string, args ...string) {
	h.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// drop drops packets at a host: a chain, what is before the others' addresses, and more that
// packets must match.
func (h *hosts) drop(i int, chain, which string, others []int, more ...string) {
	h.t.Helper()
	var list []string
	for _, other := range others {
		list = append(list, h.address(other))
	}
	rule := append([]string{"-A", chain, which, strings.Join(list, ",")}, more...)
	h.run("ip", append(append([]string{"netns", "exec", h.namespace(i), "iptables", "-w"}, rule...), "-j",
		"DROP")...)
}

// heal has every host hear the others again.
func (h *hosts) heal() {
	h.t.Helper()
	for i := range h.n {
		h.run("ip", "netns", "exec", h.namespace(i), "iptables", "-w", "-F")
	}
}
