package observe

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// residentMemory is what of this process is in memory, in bytes; 0: unknown.
func residentMemory() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// totalMemory is the memory of the machine, in bytes; 0: unknown.
func totalMemory() uint64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return 0
	}
	return uint64(s.Totalram) * uint64(s.Unit)
}

// systemName is the system's name and release, as in "Linux 6.1.0 x86_64".
func systemName() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS + " " + runtime.GOARCH
	}
	arch := runtime.GOARCH
	if name, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]; ok {
		arch = name
	}
	return "Linux " + strings.TrimSpace(string(release)) + " " + arch
}
