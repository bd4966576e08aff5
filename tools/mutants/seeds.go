package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// Mutants meet simulated worlds of fresh seeds, in place of the tests that are named for them.

// sample returns so many mutants whose name and file match, at random, in the order of the list; 0: all.
func sample(mutants []mutant, name, file *regexp.Regexp, n int) (some []mutant) {
	for _, m := range mutants {
		if name.MatchString(m.name) && file.MatchString(m.file) && filepath.Ext(m.file) == ".go" {
			some = append(some, m)
		}
	}
	for n > 0 && len(some) > n {
		i := rand.IntN(len(some))
		some = append(some[:i], some[i+1:]...)
	}
	return some
}

// meetSeeds lets mutants of a copy of the product meet worlds until one fails, or they have taken
// so much CPU time. It prints which ones seeds catch: they need not catch all.
func meetSeeds(some []mutant, dir string, budget time.Duration) error {
	tools := process.Must(os.MkdirTemp("", "sim"))
	defer os.RemoveAll(tools)
	sim := filepath.Join(tools, "sim")
	if out, err := exec.Command("go", "build", "-o", sim, "./sim").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	caught, wrong := 0, 0
	for _, m := range some {
		verdict := m.mutated(dir, func() string { return m.meet(sim, dir, budget) })
		switch {
		case strings.HasPrefix(verdict, "caught"):
			caught++
		case strings.HasPrefix(verdict, "ERROR"):
			wrong++
		}
		fmt.Printf("%s  %s: %s\n", m.guarantee, m.name, verdict)
	}
	fmt.Printf("seeds catch %d of %d mutants within %v of CPU time each\n", caught, len(some)-wrong, budget)
	if wrong > 0 {
		return fmt.Errorf("%d mutants could not be tried", wrong)
	}
	return nil
}

// scenarios returns the simulator's scenarios that run a mutant's code.
func (m mutant) scenarios() string {
	switch {
	case strings.HasPrefix(m.file, "regions/"), strings.HasPrefix(m.file, "store/region"),
		strings.HasPrefix(m.file, "store/part/"):
		return "regions,regioncluster"
	case strings.HasPrefix(m.file, "cluster/"):
		return "cluster"
	}
	return ""
}

// meet runs worlds with the mutant that dir has.
func (m mutant) meet(sim, dir string, budget time.Duration) string {
	began := time.Now()
	out, err := exec.Command(sim, "-tree", dir, "-for", budget.String(), "-shrink", "0", "-scenario",
		m.scenarios()).CombinedOutput()
	took := time.Since(began).Round(time.Second)
	var exit *exec.ExitError
	again := regexp.MustCompile(`(?m)^again: .*`).Find(out)
	switch {
	case err == nil:
		return fmt.Sprintf("survives (%v)", took)
	case !errors.As(err, &exit) || again == nil:
		return fmt.Sprintf("ERROR: %v\n%s", err, out)
	}
	why := regexp.MustCompile(`(?m)^(FAILURE|panic:|fatal error:) .*`).Find(out)
	return fmt.Sprintf("caught (%v): %.200s; %s", took, why, again)
}
