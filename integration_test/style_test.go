package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits of our style: one subject per file, and functions that fit on a
// screen or two.
const (
	maxFileLines     = 900
	maxColumns       = 110 // a tab is 4; strings and drawings may go on
	maxFunctionLines = 85
	maxTestLines     = 110 // tables of cases are long and easy to read
)

// TestStyle holds every Go file to the project's style: no file or function
// without end, no init function, no note of something left undone, and a doc
// comment on everything exported.
func TestStyle(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "fbfkv-data"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			checkStyle(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkStyle checks one file.
func checkStyle(t *testing.T, path string) {
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > maxFileLines {
		t.Errorf("%s has %d lines, more than %d", path, n, maxFileLines)
	}
	if !strings.HasPrefix(path, "../tools/") {
		checkColumns(t, path, source)
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range f.Comments {
		for _, mark := range []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"} {
			if strings.Contains(group.Text(), mark) {
				t.Errorf("%s: a comment says %s", files.Position(group.Pos()), mark)
			}
		}
	}
	if strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "../tools/") {
		checkWaits(t, path, string(source))
	} else {
		checkLogKeys(t, files, f)
	}
	for _, d := range f.Decls {
		if function, ok := d.(*ast.FuncDecl); ok {
			checkFunction(t, files, function, strings.HasSuffix(path, "_test.go"))
		}
	}
}

// checkColumns checks that lines are not too long. Strings do not count, nor do comments with a
// drawing or a command, which are indented.
func checkColumns(t *testing.T, path string, source []byte) {
	text := regexp.MustCompile("(?s)`[^`]*`").ReplaceAllStringFunc(string(source), func(raw string) string {
		return strings.Repeat("\n", strings.Count(raw, "\n"))
	})
	text = regexp.MustCompile(`"(\\.|[^"\\\n])*"`).ReplaceAllString(text, "")
	for i, line := range strings.Split(text, "\n") {
		drawn := strings.HasPrefix(line, "//  ") || strings.HasPrefix(line, "//\t")
		n := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if n > maxColumns && !drawn {
			t.Errorf("%s:%d has %d columns, more than %d", path, i+1, n, maxColumns)
		}
	}
}

// fixedWait matches a wait of seconds or more.
var fixedWait = regexp.MustCompile(`(\.After\(|WithTimeout\(.*, |DialTimeout\(.*, |(end|deadline|soon) := time\.Now\(\)\.Add\(|` +
	`Deadline\(time\.Now\(\)\.Add\(|took >=? )(\d+ ?\* ?)?time\.(Second|Minute)`)

// checkWaits checks that a test which is the last word on something waits for testwait.Limit, so that no busy
// machine fails it. A line that waits less says why: time is virtual, or it tries again.
func checkWaits(t *testing.T, path, source string) {
	for i, line := range strings.Split(source, "\n") {
		if fixedWait.MatchString(line) && !strings.Contains(line, "// ") {
			t.Errorf("%s:%d waits for a time of its own, and not for testwait.Limit: %s", path, i+1,
				strings.TrimSpace(line))
		}
	}
}

// checkFunction checks one function.
func checkFunction(t *testing.T, files *token.FileSet, f *ast.FuncDecl, test bool) {
	at := files.Position(f.Pos())
	limit := maxFunctionLines
	if test {
		limit = maxTestLines
	}
	if n := files.Position(f.End()).Line - at.Line + 1; n > limit {
		t.Errorf("%s: %s has %d lines, more than %d", at, f.Name.Name, n, limit)
	}
	if f.Name.Name == "init" && f.Recv == nil {
		t.Errorf("%s: an init function", at)
	}
	if f.Name.IsExported() && f.Doc == nil && !test && isPublic(f) {
		t.Errorf("%s: %s has no doc comment", at, f.Name.Name)
	}
}

// isPublic reports whether an exported function is a method of an exported
// type, or no method.
func isPublic(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}

// logKey is what a key of a log line looks like: a machine reads it.
var logKey = regexp.MustCompile(`^"[a-z][a-z0-9_]*"$`)

// checkLogKeys checks the keys of everything that a file logs: in Debug, Info, Warn
// and Error they follow the message, in Log the context and the level too.
func checkLogKeys(t *testing.T, files *token.FileSet, f *ast.File) {
	first := map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "logVerbose": 1, "Log": 3,
		"With": 0}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := first[method.Sel.Name]
		if !ok || method.Sel.Name != "logVerbose" && !isLogger(method.X) {
			return true
		}
		for i := from; i < len(call.Args); i += 2 {
			key, ok := call.Args[i].(*ast.BasicLit)
			if call.Ellipsis == token.NoPos && (!ok || !logKey.MatchString(key.Value)) {
				t.Errorf("%s: the log's keys are words of a-z, 0-9 and _", files.Position(call.Args[i].Pos()))
			}
		}
		return true
	})
}

// isLogger reports whether an expression is a logger, by its name.
func isLogger(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return name == "slog" || strings.HasSuffix(strings.ToLower(name), "log") ||
		strings.HasSuffix(strings.ToLower(name), "logger")
}
