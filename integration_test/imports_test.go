package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fbfkv/fbfkv/"

// mayImport is the table of the architecture: which of our packages each
// package may import, tests included. cmd, integration_test and examples are
// not listed: they may import all, and nobody may import them.
var mayImport = map[string]string{
	"server": "commands commands/acl commands/observe regions store server/rawio resp " +
		"server/peercert server/tlstest",
	"server/peercert": "",
	"server/tlstest":  "",
	"server/rawio":    "",
	"resp":            "",
	"commands": "commands/acl commands/glob commands/hotkeys commands/observe commands/tracking " +
		"regions store resp",
	"commands/observe":  "commands/acl store resp",
	"commands/tracking": "resp",
	"commands/hotkeys":  "",
	"commands/acl":      "commands/glob",
	"commands/glob":     "",
	"store": "fbf fbf/paper persistence persistence/crashtest persistence/disk " +
		"persistence/oplog store/coding store/part store/seen store/sketch internal/longlock",
	"store/seen":         "persistence store/coding store/part",
	"store/sketch":       "store/coding",
	"store/part":         "store/coding",
	"regions":            "resp server/tlstest store store/part internal/longlock",
	"store/coding":       "",
	"fbf":                "fbf/internal/frame",
	"fbf/paper":          "fbf/internal/frame",
	"fbf/internal/frame": "",
	"cluster": "cluster/raftgroup cluster/raftmsg cluster/wire persistence persistence/crashtest " +
		"persistence/disk persistence/oplog store server/peercert server/tlstest internal/longlock",
	"cluster/raftgroup": "cluster/raftmsg persistence persistence/crashtest persistence/disk persistence/oplog " +
		"internal/longlock",
	"cluster/raftmsg": "",
	"cluster/wire":    "persistence/disk",
	"node": "cluster cluster/raftgroup commands commands/acl persistence persistence/disk " +
		"persistence/oplog regions server store",
	"internal/sim":          "cluster node persistence/crashtest regions resp server store store/sketch",
	"internal/longlock":     "",
	"internal/raced":        "",
	"internal/testwait":     "",
	"persistence":           "persistence/crashtest persistence/disk persistence/oplog internal/longlock",
	"persistence/oplog":     "persistence/crashtest persistence/disk internal/longlock",
	"persistence/disk":      "internal/longlock",
	"persistence/crashtest": "",
}

// testAids are the packages that any test may import, and nothing else.
var testAids = []string{"internal/raced", "internal/testwait"}

// entrances are the packages that may import everything.
var entrances = []string{"cmd/", "integration_test", "examples/"}

// onlyIn lists libraries that are one package's secret.
var onlyIn = map[string][]string{
	"github.com/tidwall/redcon": {"resp"},
	// store knows its file system's interface, and nothing else of Pebble.
	"github.com/cockroachdb/pebble/v2": {"persistence", "persistence/crashtest"},
	"github.com/spf13/cobra":           {"cmd/fbfkv"},
	"github.com/hashicorp/raft":        {"cluster", "cluster/raftgroup", "cluster/raftmsg"},
	"net": {"server", "server/tlstest", "cluster", "cluster/raftgroup", "cluster/wire", "regions", "node",
		"internal/sim"},
}

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// TestImports holds every package to mayImport: a request only ever moves
// right, and no package knows one to its left.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath+"/", module)
		name = strings.TrimSuffix(name, "/")
		if isEntrance(name) {
			continue
		}
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("package %s has no row in mayImport", name)
			continue
		}
		for i, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			ours, ok := strings.CutPrefix(imported, module)
			aid := i >= len(p.Imports) && slices.Contains(testAids, ours)
			if ok && ours != name && !aid && !slices.Contains(strings.Fields(allowed), ours) {
				t.Errorf("%s imports %s; it may import: %s", name, ours, allowed)
			}
		}
		for _, imported := range p.Imports {
			if owners := onlyIn[imported]; owners != nil && !slices.Contains(owners, name) {
				t.Errorf("%s imports %s, which is the secret of %v", name, imported, owners)
			}
		}
	}
}

// maxModules bounds what users get with the program. What only measures, plots or
// breaks is in the module tools. Nine of them are hashicorp/raft and what it logs and
// measures with.
const maxModules = 50

// TestModules counts the modules that the program is made of, our own among them.
func TestModules(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/fbfkv")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.Compact(modules)
	if len(modules) > maxModules {
		t.Errorf("%d modules, more than %d: %s", len(modules), maxModules, strings.Join(modules, " "))
	}
	for _, m := range modules {
		if strings.Contains(m, "gonum") || strings.Contains(m, "pprof") || strings.Contains(m, "go-redis") {
			t.Errorf("the program holds %s", m)
		}
	}
}

// isEntrance reports whether a package may import everything.
func isEntrance(name string) bool {
	for _, e := range entrances {
		if strings.HasPrefix(name, e) {
			return true
		}
	}
	return false
}

// listPackages runs go list on the whole module.
func listPackages(t *testing.T) (all []goPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
