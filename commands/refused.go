package commands

// Why commands are refused that Redis has.
const (
	identityReason = "a counter's key is part of its operations' identity, so it cannot be moved or copied"
	integerReason  = "a counter holds a signed 64-bit integer only"
	pubsubReason   = "there is no publish/subscribe here"
	oneDBReason    = "there is one database"
)

// refused declares a command of Redis that has no meaning for counters. It is
// answered with the reason and not listed by COMMAND.
func refused(name string, arity int, shown, reason string) Command {
	return Command{Name: name, Arity: arity, Refusal: shown + " is not supported: " + reason}
}

// refusedCommands are answered with a reason rather than as unknown, because
// a client may well expect them.
var refusedCommands = []Command{
	refused("rename", 3, "RENAME", identityReason),
	refused("renamenx", 3, "RENAMENX", identityReason),
	refused("copy", -3, "COPY", identityReason),
	refused("restore", -4, "RESTORE", identityReason),
	refused("dump", 2, "DUMP", identityReason),
	refused("migrate", -6, "MIGRATE", identityReason),
	refused("move", 3, "MOVE", oneDBReason),
	refused("swapdb", 3, "SWAPDB", oneDBReason),
	refused("append", 3, "APPEND", integerReason),
	refused("setrange", 4, "SETRANGE", integerReason),
	refused("setbit", 4, "SETBIT", integerReason),
	refused("incrbyfloat", 3, "INCRBYFLOAT", integerReason),
	refused("subscribe", -2, "SUBSCRIBE", pubsubReason),
	refused("psubscribe", -2, "PSUBSCRIBE", pubsubReason),
	refused("ssubscribe", -2, "SSUBSCRIBE", pubsubReason),
	refused("publish", 3, "PUBLISH", pubsubReason),
	refused("watch", -2, "WATCH", "a transaction here is one atomic batch without optimistic locking"),
}
