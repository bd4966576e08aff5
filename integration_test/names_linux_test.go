package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named are nodes that know each other by names, on a machine with a network and a file of hosts of
// its own, as containers do. Each node has an address there, which may change.
type named struct {
	t     *testing.T
	space string
	conf  string
	at    map[string]string // addresses by name
	nodes map[string]*server
}

// startNamed starts nodes with the settings of the image, a file that is mounted beside these, and the
// arguments that each name has.
func startNamed(t *testing.T, mounted string, args map[string][]string) *named {
	t.Helper()
	h := newHosts(t, 1)
	n := &named{t: t, space: h.namespace(0), conf: filepath.Join(t.TempDir(), "fbfkv.conf"),
		at: map[string]string{}, nodes: map[string]*server{}}
	image, err := os.ReadFile("../packaging/docker/fbfkv.conf")
	if err != nil {
		t.Fatal(err)
	}
	also := filepath.Join(t.TempDir(), "mounted.conf")
	os.WriteFile(also, []byte(mounted), 0o600)
	os.WriteFile(n.conf, []byte(strings.ReplaceAll(string(image), "/etc/fbfkv/conf.d/*.conf", also)), 0o600)
	t.Cleanup(func() { os.RemoveAll(filepath.Join("/etc/netns", n.space)) })
	for i, name := range slices.Sorted(maps.Keys(args)) {
		n.at[name] = fmt.Sprintf("127.0.1.%d", i+1)
	}
	n.writeHosts()
	for _, name := range slices.Sorted(maps.Keys(args)) {
		s := &server{t: t, dir: t.TempDir(), namespace: n.space,
			args: append([]string{n.conf}, args[name]...)}
		n.nodes[name] = s
		n.start(name)
		t.Cleanup(s.cleanup)
	}
	return n
}

// start starts a node on the address that its name has.
func (n *named) start(name string) {
	n.t.Helper()
	n.nodes[name].start("--bind", n.at[name], "--metrics-addr", n.at[name]+":9379", "--port", "6379",
		"--log-format", "text")
}

// writeHosts tells the nodes the addresses of all. It writes the file that processes have mounted.
func (n *named) writeHosts() {
	n.t.Helper()
	dir := filepath.Join("/etc/netns", n.space)
	text := ""
	for name, address := range n.at {
		text += fmt.Sprintf("%s %s %s.default.svc\n", address, name, name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// run runs a program where the nodes are, and returns what it prints and its exit status.
func (n *named) run(password, name string, args ...string) (string, int) {
	n.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", n.space, name}, args...)...)
	cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
	out, _ := cmd.CombinedOutput() // the status says it
	return string(out), cmd.ProcessState.ExitCode()
}

// list returns the lists behind a key of a YAML file, which are written as in JSON.
func list(t *testing.T, text, key string) (all [][]string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?s)\b`+key+`: (\["[^\]]*\])`).FindAllStringSubmatch(text, -1) {
		var words []string
		if err := json.Unmarshal([]byte(m[1]), &words); err != nil {
			t.Fatalf("%s: %v in %s", key, err, m[1])
		}
		all = append(all, words)
	}
	return all
}

// TestComposeFile starts the three nodes of the compose file as that says, and makes a cluster of them.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../packaging/docker/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile("../packaging/docker/cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{}
	for _, words := range list(t, string(file), "command")[:3] {
		args[words[len(words)-1]] = words
	}
	if out, code := fbfkv(t, "--check-config", "../packaging/docker/cluster.conf"); code == 0 ||
		!strings.Contains(out, "placeholder") {
		t.Errorf("the placeholder of the secret: %d, %s", code, out)
	}
	n := startNamed(t, strings.Replace(string(settings), "choose-a-secret-of-the-nodes",
		strings.Repeat("5", 64), 1), args)
	create := list(t, string(file), "entrypoint")[0]
	for _, want := range []string{"is complete", "exists already"} {
		if out, code := n.run("secret", program, create[1:]...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%v: %d, want %q\n%s", create, code, want, out)
		}
	}
	health := list(t, string(file), "test")[0][2]
	for name, at := range n.at {
		eventually(t, patience, name+" is healthy", func() bool {
			_, code := n.run("", program, health, "--url", "http://"+at+":9379/readyz")
			return code == 0
		})
	}
	var out string
	eventually(t, patience, "a client is not told of an election", func() bool {
		out, _ = n.run("secret", "redis-cli", "-c", "-h", "fbfkv-3", "CINCRBY", "visits", "req-1", "1")
		return !strings.HasPrefix(out, "CLUSTERDOWN")
	})
	if strings.TrimSpace(out) != "1" {
		t.Errorf("a client is told: %s", out)
	}
}

// TestKubernetesManifests starts the pods of three StatefulSets as the manifests say, has the job make them a
// cluster, and gives pods other addresses: they are known by their names.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	var text [2]string
	for i, name := range []string{"shard", "cluster"} {
		b, err := os.ReadFile("../packaging/kubernetes/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		text[i] = string(b)
	}
	job := list(t, text[1], "command")[0]
	args := map[string][]string{}
	for _, address := range job[len(job)-9:] {
		name := strings.TrimSuffix(address, ":6379")
		pod, _, _ := strings.Cut(name, ".")
		words := strings.Join(list(t, text[0], "args")[0], " ")
		args[name] = strings.Fields(strings.NewReplacer("$(POD_NAME)", pod, "$(POD_NAMESPACE)", "default",
			// the test's directory and log are its own
			" --dir /data/fbfkv", "", " --log-format json", "").Replace(words))
	}
	n := startNamed(t, "requirepass the-password\ncluster-secret 0123456789abcdef0123456789abcdef\n", args)
	for _, want := range []string{"is complete", "exists already"} {
		if out, code := n.run("the-password", program, job[1:]...); code != 0 ||
			!strings.Contains(out, want) {
			t.Fatalf("the job: %d, want %q\n%s", code, want, out)
		}
	}
	status := func(any string) (string, int) {
		return n.run("the-password", program, "cluster", "status", any+":6379")
	}
	var out string
	var shards []string
	eventually(t, patience, "three shards have leaders", func() bool {
		var code int
		out, code = status("fbfkv-b-1.fbfkv-nodes")
		shards = strings.Split(out, "\nshard ")[1:]
		return code == 0 && len(shards) == 3
	})
	for i, shard := range shards {
		shard, _, _ = strings.Cut(shard, "leadership returns") // after an election, which nobody asked for
		if set := fmt.Sprintf("fbfkv-%c-", 'a'+i); strings.Count(shard, set) != 3 {
			t.Errorf("a shard is not %s:\n%s", set, shard)
		}
	}
	count := func(via, opid, want string) {
		t.Helper()
		eventually(t, patience, "the counter is counted", func() bool {
			out, _ = n.run("the-password", "redis-cli", "-c", "-h", via, "CINCRBY", "visits", opid, "1")
			return strings.TrimSpace(out) == want
		})
	}
	count("fbfkv-a-2.fbfkv-nodes", "op-1", "1")

	// One pod after the other comes back elsewhere.
	for i, name := range []string{"fbfkv-a-0.fbfkv-nodes", "fbfkv-a-1.fbfkv-nodes", "fbfkv-b-0.fbfkv-nodes"} {
		n.nodes[name].kill()
		n.at[name] = fmt.Sprintf("127.0.2.%d", i+1)
		n.writeHosts()
		n.start(name)
		eventually(t, patience, name+" is back", func() bool {
			var code int
			out, code = status("fbfkv-c-2.fbfkv-nodes")
			return code == 0
		})
		if !strings.Contains(out, name+".default.svc:6379") {
			t.Errorf("the cluster knows %s by another name:\n%s", name, out)
		}
	}
	count("fbfkv-a-0.fbfkv-nodes", "op-1", "1")
	count("fbfkv-b-0.fbfkv-nodes", "op-2", "2")
}
