package commands

import (
	"path/filepath"
)

var errBackupPath error = refusal("ERR BACKUP needs an absolute path")

// doBackup is BACKUP dir: a consistent copy of the data directory, made while
// operations go on. It answers when the copy is whole. The path is one of the
// server's machine, where its relative ones would mean little to a client.
func doBackup(c *Context) {
	dir := string(c.Args[1])
	if !filepath.IsAbs(dir) {
		c.fail(errBackupPath)
		return
	}
	c.ok(c.Store.Backup(filepath.Clean(dir)))
}

// backupCommands make copies of the data directory.
var backupCommands = []Command{
	{
		Name: "backup", Arity: 2, Flags: Admin | NoScript | NoAsyncLoading | NoMulti, Group: groupServer, Since: "0.1.0",
		Complexity: "O(N), where N is the size of the filters and, on another file system, of the data directory",
		Summary: "Writes a consistent copy of the data directory to a new directory on the server's machine and waits until it is " +
			"complete. Operations go on meanwhile. fbfkv restore makes a data directory from the copy.",
		Args: []Arg{strArg("directory")}, Run: doBackup, Audit: auditAll,
	},
}
