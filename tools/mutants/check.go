package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/tools/process"
)

// check prints the mutants whose text does not occur exactly once in their file, and the file that has
// it now, if there is one. On demand it writes that into the list.
func check(all []mutant, move bool) (err error) {
	defer process.Catch(&err)
	root, files := productRoot(), make(map[string]string)
	walk(root, func(rel string) { files[rel] = string(process.Must(os.ReadFile(filepath.Join(root, rel)))) })
	lines := strings.Split(list, "\n")
	stale := 0
	for _, m := range all {
		_, err := m.edit(files[m.file])
		if err == nil {
			continue
		}
		stale++
		fmt.Printf("mutants.txt:%d: %s: %v", m.at, m.name, err)
		var found []string
		for rel, text := range files {
			if rel != m.file && len(m.places(text)) == 1 {
				found = append(found, rel)
			}
		}
		if slices.Sort(found); len(found) > 0 {
			fmt.Printf(", once in %s", strings.Join(found, ", "))
		}
		if fmt.Println(); move && len(found) == 1 {
			lines[m.at] = "file: " + found[0]
			stale--
		}
	}
	if move {
		path := filepath.Join(root, "tools", "mutants", "mutants.txt")
		process.Check(os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644))
	}
	if stale > 0 {
		return fmt.Errorf("the texts of %d of %d mutants are not where they should be", stale, len(all))
	}
	return nil
}
