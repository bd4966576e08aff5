package integration

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var updateNotice = flag.Bool("notice.update", false, "write NOTICE anew")

// licences are those that may be linked into the program, by words of their texts. One of
// another kind is for a human to decide on.
var licences = []struct{ name, words string }{
	{"Apache License 2.0", "Apache License"},
	{"BSD", "Redistribution and use in source and binary forms"},
	{"MIT", "Permission is hereby granted, free of charge"},
	// It asks that who gets the program learns where the source of these modules is.
	{"Mozilla Public License 2.0", "Mozilla Public License"},
}

// TestNotice expects in NOTICE the licence of each module that is linked into the program,
// and of each thing packed into it, on any system that it is released for, with or without C.
func TestNotice(t *testing.T) {
	t.Parallel()
	want := notice(t)
	if *updateNotice {
		if err := os.WriteFile("../NOTICE", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("../NOTICE"); err != nil || string(got) != want {
		t.Errorf("NOTICE is stale (%v): run go test ./integration_test -run TestNotice -notice.update", err)
	}
	text, err := os.ReadFile("../LICENSE")
	if err != nil || licenceOf(string(text)) != licences[0].name {
		t.Errorf("LICENSE: %v", err)
	}
	// npm and pip pack what is in the package's directory; Go adds it
	for _, client := range []string{"node", "python"} {
		if copied, err := os.ReadFile("../clients/" + client + "/LICENSE"); err != nil ||
			string(copied) != string(text) {
			t.Errorf("clients/%s/LICENSE is not LICENSE: %v", client, err)
		}
	}
}

// notice makes the text of NOTICE.
func notice(t *testing.T) string {
	modules := map[string]string{"the Go standard library": runtime.GOROOT(),
		"uPlot (of the status page)": "../cmd/fbfkv/internal/monitor/page/uplot"}
	for _, system := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(system, "/")
		for _, cgo := range []string{"0", "1"} {
			cmd := exec.Command("go", "list", "-deps", "-f",
				`{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`, "./cmd/fbfkv")
			cmd.Dir = ".."
			cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED="+cgo)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(out)) {
				if path, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
					modules[path] = dir
				}
			}
		}
	}
	byText := map[string][]string{} // the modules of each text
	for path, dir := range modules {
		found := 0
		for _, file := range licenceFiles(t, dir) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			clean := strings.TrimSpace(regexp.MustCompile(`[ \t\r]*\n`).ReplaceAllString(string(text), "\n"))
			if isNotice := strings.HasPrefix(filepath.Base(file), "NOTICE"); !isNotice {
				found++
				if clean = wholeLicence(t, path, clean); clean == "" {
					continue
				}
			}
			byText[clean] = append(byText[clean], path)
		}
		if found == 0 {
			t.Errorf("%s has no licence", path)
		}
	}
	return compose(byText, modules)
}

// licenceFiles lists the files with licences and notices in a module's folder.
func licenceFiles(t *testing.T, dir string) (files []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		for _, prefix := range []string{"LICENSE", "LICENCE", "COPYING", "NOTICE"} {
			if strings.HasPrefix(name, prefix) && !e.IsDir() {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return files
}

// licenceOf names the kind of a licence by its text, or returns "".
func licenceOf(text string) string {
	for _, l := range licences {
		if strings.Contains(strings.Join(strings.Fields(text), " "), l.words) {
			return l.name
		}
	}
	return ""
}

// wholeLicence returns the text to be shown of a licence: of the Apache License, which is
// our own, nothing.
func wholeLicence(t *testing.T, path, text string) string {
	kind := licenceOf(text)
	if kind == "" {
		t.Errorf("the licence of %s is of no kind that we know", path)
	}
	if strings.HasPrefix(strings.TrimSpace(text), "Apache License") {
		return ""
	}
	return text
}

// compose writes the modules, then each text once.
func compose(byText map[string][]string, modules map[string]string) string {
	var out strings.Builder
	out.WriteString("fbfkv\nCopyright the fbfkv authors\n\nLicensed under the Apache License, Version " +
		"2.0: see LICENSE.\n\n" +
		"The program is linked with the modules below. Those without a text of their own are under the " +
		"Apache License,\n" +
		"Version 2.0, too. All are used as they are published: the source of each is where its name says, " +
		"in the version that\n" +
		"`go version -m fbfkv` tells. A test keeps this file as it is (TestNotice in integration_test).\n\n")
	for _, path := range sorted(modules) {
		fmt.Fprintf(&out, "- %s\n", path)
	}
	texts := sorted(byText)
	for _, paths := range byText {
		slices.Sort(paths)
	}
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(byText[a][0], byText[b][0]) })
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(byText[text], "\n"), text)
	}
	return out.String()
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
