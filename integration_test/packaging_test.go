package integration

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestStaticBuild runs the build commands of the Dockerfile and of make build, and
// expects programs that need nothing of the system they run on. They build everything
// anew, which takes minutes: that is left to continuous integration.
func TestStaticBuild(t *testing.T) {
	t.Parallel()
	for file, version := range map[string]string{"../packaging/docker/Dockerfile": "7.8.9",
		"../Makefile": ""} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^(?:RUN |\t)(CGO_ENABLED=0 go build -trimpath .*-pgo=cmd/fbfkv/release.pgo -ldflags "-s -w.*" -o )(\S+)( \./cmd/fbfkv)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s: a go build that makes a static program, optimized, stripped and without paths, "+
				"was not found", file)
		}
		if os.Getenv("FBFKV_CI") == "" {
			continue
		}
		built := filepath.Join(t.TempDir(), "fbfkv")
		cmd := exec.Command("sh", "-c", string(m[1])+built+string(m[3]))
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "VERSION="+version)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", m[0], err, out)
		}
		f, err := elf.Open(built)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 ||
			f.Section(".interp") != nil {
			t.Errorf("%s: it is not static: %v, %v", file, libraries, err)
		}
		if f.Section(".symtab") != nil || f.Section(".debug_info") != nil ||
			f.Section(".zdebug_info") != nil {
			t.Errorf("%s: it is not stripped", file)
		}
		if out, err := exec.Command(built, "--version").Output(); err != nil ||
			!strings.HasPrefix(string(out), "fbfkv "+version) {
			t.Errorf("%s: --version: %s, %v", file, out, err)
		}
	}
}

// TestPackagedSettings starts the program as the packages do.
func TestPackagedSettings(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../packaging/systemd/fbfkv.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ExecStart=/usr/bin/fbfkv /etc/fbfkv/fbfkv.conf --dir /var/lib/fbfkv\n",
		"Type=notify\n"} {
		if !strings.Contains(string(unit), want) {
			t.Errorf("the unit lacks %q", want)
		}
	}
	for _, file := range []string{"systemd/fbfkv.conf", "docker/fbfkv.conf", "docker/compose.conf"} {
		s := &server{t: t, dir: t.TempDir(),
			args: []string{"../packaging/" + file, "--metrics-addr", "127.0.0.1:0",
				"--log-format", "text", "--requirepass", "", "--bind", "127.0.0.1"}}
		s.start()
		s.dial().want("+PONG", "PING")
		s.stop()
	}
}

// TestInstances starts three instances of the unit's template as systemd would, with the settings
// that the packages bring, and makes a cluster of them.
func TestInstances(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../packaging/systemd/instance.conf")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ExecStart=\nExecStart=/usr/bin/fbfkv (.+)$`).FindSubmatch(text)
	if m == nil ||
		!strings.Contains(string(text), "\nStateDirectory=\nStateDirectory=fbfkv-%i fbfkv-%i-backups\n") {
		t.Fatal("an instance has no command or no directory for its own")
	}
	shared, _ := filepath.Abs("../packaging/systemd/cluster.conf")
	root := t.TempDir()
	var all []*server
	for i := range 3 {
		port := fmt.Sprint(freePorts(t, 1))
		os.WriteFile(filepath.Join(root, port+".conf"), fmt.Appendf(nil, "include %s\nmetrics-addr "+
			"127.0.0.1:0\n", shared), 0o600)
		args, dir, _ := strings.Cut(strings.NewReplacer("%i", port, "/etc/fbfkv", root, "/var/lib",
			root).Replace(string(m[1])), " --dir ")
		all = append(all, &server{t: t, dir: dir, args: strings.Fields(args)})
		all[i].start()
		t.Cleanup(all[i].cleanup)
	}
	operate(t, 0, "is complete", append([]string{"create"}, addresses(all...)...)...)
	counts(t, 1, "a", all...)
	if want := filepath.Join(root, "fbfkv-"+all[0].port()); all[0].dir != want {
		t.Errorf("an instance uses %s, and systemd makes %s", all[0].dir, want)
	}
}

// TestImage: whatever the image sets, an argument after its name or a file that is mounted
// sets otherwise; and all that it copies is there.
func TestImage(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile("../packaging/docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dockerfile), "\nENTRYPOINT [\"/fbfkv\", \"/etc/fbfkv/fbfkv.conf\"]\n") {
		t.Error("the image does not start with its file of settings alone")
	}
	for _, copied := range regexp.MustCompile(`(?m)^COPY ([a-zA-Z/. ]+) /\S+$`).FindAllStringSubmatch(string(dockerfile), -1) {
		for _, file := range strings.Fields(copied[1]) {
			if _, err := os.Stat("../" + file); err != nil {
				t.Errorf("the image copies %v", err)
			}
		}
	}
	settings, err := os.ReadFile("../packaging/docker/fbfkv.conf")
	if err != nil {
		t.Fatal(err)
	}
	mounted := t.TempDir()
	file := filepath.Join(t.TempDir(), "fbfkv.conf")
	os.WriteFile(file, []byte(strings.ReplaceAll(string(settings), "/etc/fbfkv/conf.d", mounted)), 0o644)
	os.WriteFile(filepath.Join(mounted, "mine.conf"),
		[]byte("bind 127.0.0.1\nappendfsync no\nmaxclients 77\n"), 0o644)
	s := &server{t: t, dir: t.TempDir(), args: []string{file, "--metrics-addr", "127.0.0.1:0", "--maxclients",
		"78"}}
	s.start()
	c := s.dial()
	c.want(`["bind" "127.0.0.1"]`, "CONFIG", "GET", "bind")
	c.want(`["appendfsync" "no"]`, "CONFIG", "GET", "appendfsync")
	c.want(`["maxclients" "78"]`, "CONFIG", "GET", "maxclients")
	s.stop()
}

// TestBackupScript runs the script of the timer and the CronJob, with a directory for a
// store: the backup is there, can be restored, and the server knows of it. With a store
// that loses the end of its input, the script fails and the server knows of none.
func TestBackupScript(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"fbfkv-backup.service", "Dockerfile"} {
		if text, err := os.ReadFile("../packaging/backup/" + file); err != nil ||
			!strings.Contains(string(text), "/backup.sh") {
			t.Errorf("%s does not run the script: %v", file, err)
		}
	}
	for _, keeps := range []string{"cat", "head -c 5000"} {
		s := startServer(t)
		c := s.dial()
		c.want(":1", "CINCRBY", "page:home", "op-1", "1")
		c.want("+OK", "ACL", "SETUSER", "saver", "on", ">copy-cat", "+backup")
		bin, remote := t.TempDir(), t.TempDir()
		os.WriteFile(filepath.Join(bin, "rclone"),
			[]byte("#!/bin/sh\ncase $1 in rcat) "+keeps+" >$2;; cat) cat $2;; esac\n"), 0o755)
		os.Symlink(program, filepath.Join(bin, "fbfkv"))
		cmd := exec.Command("../packaging/backup/backup.sh")
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "BACKUP_REMOTE="+remote,
			"FBFKV_PORT="+s.port(), "FBFKV_USER=saver",
			"REDISCLI_AUTH=copy-cat", "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		made, _ := filepath.Glob(filepath.Join(remote, "*.tar"))
		good := keeps == "cat"
		if (err == nil) != good || len(made) != 1 ||
			(infoField(c, "backup_last_success_time") != "0") != good {
			t.Errorf("with a store that does %s: %v %v\n%s", keeps, err, made, out)
		}
	}
}

// TestUnits has systemd look at the units, with our program where the packages put it.
func TestUnits(t *testing.T) {
	t.Parallel()
	requireProgram(t, "systemd-analyze", "install Debian's package systemd")
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	installed := map[string]string{"systemd/fbfkv.service": "fbfkv.service",
		"backup/fbfkv-backup.service": "fbfkv-backup.service",
		"backup/fbfkv-backup.timer":   "fbfkv-backup.timer",
		"systemd/instance.conf":       "fbfkv@.service.d/instance.conf"}
	for unit, name := range installed {
		text, err := os.ReadFile("../packaging/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		script, _ := filepath.Abs("../packaging/backup/backup.sh")
		text = []byte(strings.NewReplacer("/usr/bin/fbfkv", program, "/usr/lib/fbfkv/backup.sh",
			script).Replace(string(text)))
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		os.WriteFile(path, text, 0o644)
		switch name {
		case "fbfkv.service":
			template := filepath.Join(dir, "fbfkv@.service")
			os.WriteFile(template, text, 0o644)
			args = append(args, path, template)
		case "fbfkv@.service.d/instance.conf": // read with the template
		default:
			args = append(args, path)
		}
	}
	if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestReleaseFiles: what goreleaser packs is there, and it builds as the image does.
func TestReleaseFiles(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(config)
	for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "-pgo=cmd/fbfkv/release.pgo",
		"-s -w -X main.version={{ .Version }}",
		"goos: [linux, darwin]", "goarch: [amd64, arm64]", "formats: [deb, rpm]", "algorithm: sha256",
		`maintainer: "{{ .Env.MAINTAINER }}"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the release lacks %q", want)
		}
	}
	files := regexp.MustCompile(`(?m)^ +(?:- src|preinstall|postinstall|preremove): (\S+)$`).FindAllStringSubmatch(text, -1)
	if len(files) < 10 {
		t.Errorf("only %d files are packed", len(files))
	}
	for _, m := range files {
		source, err := os.ReadFile("../" + m[1])
		if err != nil {
			t.Error(err)
		} else if strings.HasSuffix(m[1], ".sh") {
			if out, err := exec.Command("sh", "-n", "../"+m[1]).CombinedOutput(); err != nil ||
				!strings.HasPrefix(string(source), "#!/bin/sh\n") {
				t.Errorf("%s: %v %s", m[1], err, out)
			}
		}
	}
	// The unit's paths are where the packages put things.
	for _, path := range []string{"bindir: /usr/bin\n", "dst: /etc/fbfkv/fbfkv.conf\n",
		"dst: /usr/lib/fbfkv/backup.sh\n",
		"- src: packaging/systemd/fbfkv.service\n        dst: /usr/lib/systemd/system/fbfkv@.service\n",
		"dst: /usr/lib/systemd/system/fbfkv@.service.d/instance.conf\n", "dst: /etc/fbfkv/cluster.conf\n"} {
		if !strings.Contains(text, path) {
			t.Errorf("the packages lack %q", path)
		}
	}
}
