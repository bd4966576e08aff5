package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each limiter lets three requests in: r1, r2 and r3, which are answered again as they were. A refused one
// may be let in later. In the libraries' own memory r1 counts twice.
const (
	nodeLimits = `express: r1 200/2, r1 200/2, r2 200/1, r2 200/1, r3 200/0, r4 429/0, r4 429/0, r1 200/2
express-memory: r1 200/2, r1 200/1, r2 200/0, r2 429/0, r3 429/0, r4 429/0, r4 429/0, r1 429/0
flexible: r1 200/2, r1 200/2, r2 200/1, r2 200/1, r3 200/0, r4 429/0, r4 429/0, r1 200/2
flexible-memory: r1 200/2, r1 200/1, r2 200/0, r2 429/0, r3 429/0, r4 429/0, r4 429/0, r1 429/0
express: none 429/0
express: r4 200/2, r4 200/2, r1 200/2, none 200/1, none 200/0, r4 200/2
flexible: r4 200/2, r4 200/2, r1 200/2, none 200/1, none 200/0, r4 200/2
express/a: r4 200/2
flexible/a: r4 200/2
failing/ok: f1 200/2, f2 200/1
failing/fail/: f3 500/0
failing/fail/: f3 500/0
failing/fail/: f4 500/0
failing/ok: f5 200/0, f6 429/0, f6 429/0
function?limit=1: l1 200/0, l2 429/0, l1 200/0
function?limit=2: l2 200/0
many: 100 100
2 2 refused at 4 3
0 null 3 3
refused at 5 0 3
1.5 [ '1.25', '0.25' ] 1.75 1 0.25
1 3
`
	pythonLimits = `flask: r1 200/2, r1 200/2, r2 200/1, r2 200/1, r3 200/0, r4 429/0, r4 429/0, r1 200/0
memory: r1 200/2, r1 200/1, r2 200/0, r2 429/0, r3 429/0, r4 429/0, r4 429/0, r1 429/0
flask: none 429/0
flask: r4 200/2, r4 200/2, r1 200/2, none 200/1, none 200/0, r4 200/0
flask: r4 200/2
flask: r4 200/1
many: none 200/899
True True False True True False 0 True
True True False False True False 0 True
True True 1
404 NOT FOUND 3
1.5 1.25 0.25 1.75 1 0.25
`
)

// limiters are programs that use the packages with the libraries that they have a store for.
var limiters = map[string]struct {
	program, want string
	command       func(t *testing.T, program string) *exec.Cmd
}{
	"node": {"clients/node/limiters.js", nodeLimits, func(t *testing.T, program string) *exec.Cmd {
		requireFile(t, "clients/node/node_modules/express-rate-limit", "run npm ci in integration_test/clients/node")
		example := installedNodeExample(t)[1]
		if err := os.Rename(program, example); err != nil {
			t.Fatal(err)
		}
		return exec.Command("node", example)
	}},
	"python": {"clients/python/limiters.py", pythonLimits, func(t *testing.T, program string) *exec.Cmd {
		requireFile(t, "/usr/lib/python3/dist-packages/flask_limiter", "install Debian's python3-flask-limiter")
		return python(t, program)
	}},
}

// TestLimiters: limiters of Node and Python that count in fbfkv count a request once, though a gateway sends
// it again, and though every seventh answer of the server is lost.
func TestLimiters(t *testing.T) {
	t.Parallel()
	for name, l := range limiters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(l.program)
			if err != nil {
				t.Fatal(err)
			}
			p := startRelay(t, startServer(t))
			limited := 0
			p.set(func(p *relay) {
				p.answer = func(args []string) string {
					if args[0] == "INCREX" {
						if limited++; limited%7 == 0 {
							p.cuts = 1
						}
					}
					return ""
				}
			})
			_, port, _ := net.SplitHostPort(p.Addr().String())
			program := filepath.Join(t.TempDir(), "program")
			text := strings.ReplaceAll(string(source), "6379", port)
			if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := l.command(t, program).CombinedOutput(); err != nil || string(out) != l.want {
				t.Errorf("%v, it prints\n%s", err, out)
			}
			p.set(func(*relay) {
				if limited < 100 {
					t.Errorf("only %d requests were limited", limited)
				}
			})
		})
	}
}

// TestClientReadmesShowLimiters expects what the READMEs show after their first program in the programs that
// TestLimiters runs.
func TestClientReadmesShowLimiters(t *testing.T) {
	t.Parallel()
	for name, l := range limiters {
		source, err := os.ReadFile(l.program)
		if err != nil {
			t.Fatal(err)
		}
		readme, err := os.ReadFile("../clients/" + name + "/README.md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```(?:js|python)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
		if len(blocks) < 3 {
			t.Errorf("the README for %s shows %d programs", name, len(blocks))
		}
		for _, block := range blocks[1:] {
			for line := range strings.Lines(block[1]) {
				if !strings.Contains(string(source), strings.TrimSpace(line)) {
					t.Errorf("%s does not have a line of the README: %s", l.program, line)
				}
			}
		}
	}
}

// TestAsyncTypes: what asyncio.pyi declares is what the class for asyncio has.
func TestAsyncTypes(t *testing.T) {
	t.Parallel()
	command := pythonScript("clients/python/stub.py")(t)
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil ||
		strings.TrimSpace(string(out)) == "" {
		t.Errorf("%v\n%s", err, out)
	}
}
