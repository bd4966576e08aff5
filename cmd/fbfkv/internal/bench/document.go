package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// The marks in a document between which the table is written.
const (
	tableBegin = "<!-- table: begin -->\n"
	tableEnd   = "<!-- table: end -->"
)

// writeInto writes the rows into the document, in place of those of an earlier
// run.
func (t *table) writeInto(ctx context.Context, rows []Row) error {
	b, err := os.ReadFile(t.into)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("--into: %s has no lines %q and %q", t.into, strings.TrimSpace(tableBegin), tableEnd)
	}
	text := before + tableBegin + t.describeRun(ctx) + "\n" + markdown(rows) + tableEnd + after
	return os.WriteFile(t.into, []byte(text), 0o644)
}

// describeRun says where and how the rows were measured.
func (t *table) describeRun(ctx context.Context) string {
	redis := "redis-server"
	if out, err := exec.CommandContext(ctx, t.redis, "--version").Output(); err == nil {
		for word := range strings.FieldsSeq(string(out)) {
			if v, ok := strings.CutPrefix(word, "v="); ok {
				redis += " " + v
			}
		}
	}
	build := "fbfkv"
	if out, err := exec.CommandContext(ctx, t.fbfkv, "--version").Output(); err == nil {
		build = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Measured on %s: %s beside %s, on %d processors (%s), %d rounds of %.1f s each.\n", time.Now().UTC().Format("2006-01-02"),
		build, redis, runtime.NumCPU(), processorName(), t.rounds, t.seconds)
}

// processorName is the model of this machine's processor, if the system tells.
func processorName() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}

// markdown writes rows as a table.
func markdown(rows []Row) string {
	var b strings.Builder
	b.WriteString("| row | what | measured | rounds | goal | met | made of |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		sign, met := "at least", "yes"
		if r.AtMost {
			sign = "at most"
		}
		if !r.OK {
			met = "**no**"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %.2f | %.2f to %.2f | %s %.4g | %s | %s |\n", r.Name, r.What, r.Measured, r.Lowest, r.Most, sign, r.Goal, met, r.Note)
	}
	return b.String()
}
