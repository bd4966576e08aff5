package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// program is the path of the binary under test.
var program string

// TestMain builds the program once for all tests.
func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait about as long as they work, so more than one a core may run. With many more, nodes that
	// get no processor would elect leaders all the time.
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	redis.SetLogger(quiet{}) // that a server is gone is nothing to report here
	os.Exit(buildAndRun(m))
}

// quiet drops what go-redis has to say.
type quiet struct{}

// Printf implements go-redis' logger.
func (quiet) Printf(context.Context, string, ...any) {}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fbfkv-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Open to other users: a test starts the program as one who may not write.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	program = filepath.Join(dir, "fbfkv")
	args := []string{"build", "-o", program}
	if raced.On {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/fbfkv/fbfkv/cmd/fbfkv")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
