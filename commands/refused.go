package commands

import (
	"slices"
	"strings"
)

// Why commands are refused that Redis has.
const (
	identityReason = "a counter's key is part of its operations' identity, so it cannot be moved or copied"
	integerReason  = "a counter holds a signed 64-bit integer only"
	pubsubReason   = "there is no publish/subscribe here"
	oneDBReason    = "there is one database"
	typeReason     = "keys here are counters and forgetful Bloom filters"
	scriptReason   = "there are no scripts here; MULTI is atomic"
	debugReason    = "it could break what is promised"
)

// refused declares a command of Redis that has no meaning for counters. It is
// answered with the reason and not listed by COMMAND.
func refused(name string, arity int, shown, reason string) Command {
	return Command{Name: name, Arity: arity, Refusal: shown + " is not supported: " + reason}
}

// refusedAll declares several commands that are refused for one reason, with
// any number of arguments.
func refusedAll(reason, names string) (list []Command) {
	for _, name := range strings.Fields(names) {
		list = append(list, refused(name, -1, strings.ToUpper(name), reason))
	}
	return list
}

// refusedFamilies are the commands of Redis' other types, and of what else has
// no place here.
var refusedFamilies = slices.Concat(
	refusedAll(integerReason, "getbit bitcount bitpos bitfield bitfield_ro bitop lcs"),
	refusedAll(typeReason, `
		lpush rpush lpushx rpushx lpop rpop llen lindex linsert lset lrange ltrim lrem lpos lmove lmpop rpoplpush
		blpop brpop blmove blmpop brpoplpush
		hset hsetnx hmset hget hmget hgetall hdel hlen hstrlen hexists hkeys hvals hincrby hincrbyfloat hrandfield hscan
		sadd srem smove sismember smismember scard spop srandmember smembers sscan
		sinter sinterstore sintercard sunion sunionstore sdiff sdiffstore
		zadd zincrby zrem zcard zcount zscore zmscore zrank zrevrank zrange zrangestore zrangebyscore zrevrangebyscore
		zrangebylex zrevrangebylex zrevrange zlexcount zremrangebyrank zremrangebyscore zremrangebylex zrandmember
		zpopmin zpopmax zmpop bzpopmin bzpopmax bzmpop zinter zinterstore zintercard zunion zunionstore zdiff zdiffstore zscan
		pfadd pfcount pfmerge
		geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore
		xadd xrange xrevrange xlen xread xreadgroup xgroup xack xclaim xautoclaim xpending xinfo xdel xtrim xsetid
		sort sort_ro`),
	refusedAll(scriptReason, "eval evalsha eval_ro evalsha_ro script function fcall fcall_ro"),
	refusedAll(pubsubReason, "unsubscribe punsubscribe sunsubscribe spublish pubsub"),
)

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
	refused("debug", -2, "DEBUG", debugReason),
	refused("incrbyfloat", 3, "INCRBYFLOAT", integerReason),
	refused("subscribe", -2, "SUBSCRIBE", pubsubReason),
	refused("psubscribe", -2, "PSUBSCRIBE", pubsubReason),
	refused("ssubscribe", -2, "SSUBSCRIBE", pubsubReason),
	refused("publish", 3, "PUBLISH", pubsubReason),
}
