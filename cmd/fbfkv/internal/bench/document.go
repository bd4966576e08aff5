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

// between replaces what stands in a document between the two marks of a name.
func between(document, name, text string) (string, error) {
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	before, rest, ok := strings.Cut(document, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("there are no lines %q and %q", strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}

// rewrite replaces what stands in a file between the two marks of a name.
func rewrite(file, name, text string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	document, err := between(string(b), name, text)
	if err != nil {
		return fmt.Errorf("--into: %s: %w", file, err)
	}
	return os.WriteFile(file, []byte(document), 0o644)
}

// The tables of `fbfkv bench table` in a document.
const (
	goalsMark   = "table"
	profileMark = "table-profile"
)

// write writes what is asked for into the document and the picture. Without
// any row the document stays as it is.
func (t *table) write(ctx context.Context) error {
	if t.plot != "" && len(t.profiles) > 0 {
		if err := writeBars(t.plot, "What the processors do", "operations in a pipeline", t.profiles); err != nil {
			return err
		}
	}
	if t.into == "" || len(t.done) == 0 {
		return nil
	}
	text := t.describeRun(ctx)
	for _, err := range t.failed {
		text += "\nNot measured: " + strings.ReplaceAll(err.Error(), "\n", "; ") + "\n"
	}
	err := rewrite(t.into, goalsMark, text+"\n"+markdown(t.done))
	if err == nil {
		err = t.writeRaw()
	}
	if err == nil && len(t.profiles) > 0 {
		err = rewrite(t.into, profileMark, spentMarkdown("pipeline", t.profiles))
	}
	return err
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
	disturbed := t.quiet.String()
	if disturbed != "" {
		disturbed += "\n"
	}
	return fmt.Sprintf("Measured on %s: %s beside %s, on %d processors (%s), %d rounds of %.1f s each.\n%s", time.Now().UTC().Format("2006-01-02"),
		build, redis, runtime.NumCPU(), processorName(), t.rounds, t.seconds, disturbed)
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
	b.WriteString("| row | what | measured | rounds | goal | met | others | made of |\n| --- | --- | --- | --- | --- | --- | ---: | --- |\n")
	for _, r := range rows {
		goal, met := fmt.Sprintf("at least %.4g", r.Goal), "yes"
		if r.AtMost {
			goal = fmt.Sprintf("at most %.4g", r.Goal)
		}
		switch {
		case r.NoGoal:
			goal, met = "—", "—"
		case !r.OK:
			met = "**no**"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %.2f | %.2f to %.2f | %s | %s | %.0f %% | %s |\n", r.Name, r.What, r.Measured, r.Lowest, r.Most, goal, met, 100*r.Steal, r.Note)
	}
	return b.String()
}
