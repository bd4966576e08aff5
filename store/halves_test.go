package store

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runnerFiles are the half of the package that has locks, disks, goroutines and clocks. All other
// files are the machine: what one partition remembers, how that is decided and redone.
const runnerFiles = `backup changes check check_views checkpoint clock doc execute export fetch
	followchanges followshard followsnapshot maintain move movein moveload partition proof pull pullwire
	rebuild recover regiondigest regiondrop regionflush regionshare regionstate regionstore replica route
	saving scan snapshot stats store tables tablesearch take tell top walk warm writeback`

// fromRunner is what the machine uses of the runner all the same: a row of the table of entries says
// how another region's entry of its kind is taken.
var fromRunner = []string{"taker", "pulledEntry", "takeApplied", "takeCursor", "takeHeard", "takeLost",
	"takeOwed", "takeLevelled"}

// fromOutside are the packages that the machine must not use at all, or only by the names given.
var fromOutside = map[string]string{
	"sync": "", "sync/atomic": "", "os": "", "io/fs": "", "net": "", "context": "", "log/slog": "",
	"time":                               "Duration Hour Millisecond Milliseconds Second",
	"github.com/fbfkv/fbfkv/persistence": "Content Entries Hash HoldKey ID Key Number Object Page RowKey Seq Slot",
	"github.com/fbfkv/fbfkv/persistence/oplog": "SectionOverhead",
	"github.com/cockroachdb/pebble/v2/vfs":     "",
}

// TestHalves: the machine rests on nothing of the runner, and on nothing that has a lock, a disk, a
// goroutine or a clock. So deciding and redoing are functions of what a machine remembers and of
// what a turn is told.
func TestHalves(t *testing.T) {
	files, machine := parsePackage(t)
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	checked := typeCheck(t, files, machine, info)
	runner := strings.Fields(runnerFiles)
	isRunner := func(pos token.Pos) bool {
		name := strings.TrimSuffix(filepath.Base(files.Position(pos).Filename), ".go")
		return slices.Contains(runner, name)
	}
	for _, f := range machine {
		if isRunner(f.Pos()) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or a channel", files.Position(n.Pos()))
			case *ast.Ident:
				switch o := info.Uses[n]; {
				case o == nil || o.Pkg() == nil:
				case o.Pkg() == checked:
					if isRunner(o.Pos()) && !slices.Contains(fromRunner, o.Name()) {
						t.Errorf("%s: %s is the runner's", files.Position(n.Pos()), o.Name())
					}
				default:
					if names, is := fromOutside[o.Pkg().Path()]; is &&
						!slices.Contains(strings.Fields(names), o.Name()) {
						t.Errorf("%s: %s of %s", files.Position(n.Pos()), o.Name(), o.Pkg().Path())
					}
				}
			}
			return true
		})
	}
}

// parsePackage parses the files of this package that are not tests.
func parsePackage(t *testing.T) (*token.FileSet, []*ast.File) {
	names, err := filepath.Glob("*.go")
	must(t, err)
	files := token.NewFileSet()
	var all []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, 0)
		must(t, err)
		all = append(all, f)
	}
	return files, all
}

// typeCheck finds what each identifier of the files stands for.
func typeCheck(t *testing.T, files *token.FileSet, all []*ast.File, info *types.Info) *types.Package {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		".").Output()
	must(t, err)
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	config := types.Config{Importer: importer.ForCompiler(files, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := config.Check("store", files, all, info)
	must(t, err)
	return checked
}
