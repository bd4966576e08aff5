package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for a release:
//
//	go build -ldflags "-X main.version=1.2.3" ./cmd/fbfkv
var version string

// versionNumber returns the version without a "v": the release's, or the
// module's for a program built with go install, or "0.0.0-dev".
func versionNumber() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.0.0-dev"
}

// revision returns the commit that the program was built from, with a + if the
// files were not those of the commit; "" if it is not known.
func revision() string {
	commit, dirty := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+"
			}
		}
	}
	return commit + dirty
}

// versionLine describes the build: version, commit, compiler and platform.
func versionLine() string {
	commit := ""
	if r := revision(); r != "" {
		commit = " commit " + r
	}
	return fmt.Sprintf("fbfkv %s%s %s %s/%s", versionNumber(), commit, runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}
