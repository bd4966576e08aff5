package commands

import (
	"slices"
	"strconv"
	"strings"
)

// Why commands are refused that Redis has.
const (
	identityReason = "a counter's key is part of its operations' identity, so it cannot be moved or copied"
	integerReason  = "a counter holds a signed 64-bit integer only"
	pubsubReason   = "publish/subscribe is not supported"
	oneDBReason    = "there is one database"
	typeReason     = "keys here are counters, Bloom filters and count-min sketches"
	scriptReason   = "scripts are not supported; MULTI is atomic"
	moduleReason   = "there are no modules here"
	debugReason    = "it could break the server's guarantees"
	sentinelReason = "Sentinel is not supported"
	noBlockReason  = "no command waits for keys"
	noTouchReason  = "keys have no access times"
	rewriteReason  = "there is no append-only file to rewrite; every checkpoint trims the op log"
	figuresReason  = "INFO, SLOWLOG, LATENCY HISTORY and the metrics have all figures"
	newerReason    = "it is not in Redis 7.2, which this server follows"
)

// refusedCommands are what Redis, up to 8.6 and with the modules that it comes
// with, has and we do not. They are answered with the reason rather than as
// unknown, because a client may well expect them. They are not listed by COMMAND;
// but rules of users and rename-command may name them, so that both can be taken
// over from Redis. A name with a bar is a subcommand of the container before it.
var refusedCommands = slices.Concat(
	refusedAll(identityReason, `
		keyspace read slow: dump/2
		keyspace write fast: renamenx/3
		keyspace write slow: copy/-3 rename/3
		keyspace write slow dangerous: migrate/-6 restore/-4 restore-asking/-4`),
	refusedAll(oneDBReason, `
		keyspace write fast: move/3
		keyspace write fast dangerous: swapdb/3`),
	refusedAll(integerReason, `
		write string fast: append/3
		write string slow: setrange/4
		read string slow: lcs
		read bitmap fast: bitfield_ro getbit
		read bitmap slow: bitcount bitpos
		write bitmap slow: bitfield bitop setbit/4`),
	refusedAll(typeReason, `
		read list fast: llen
		read list slow: lindex lpos lrange
		write list fast: lpop lpush lpushx rpop rpush rpushx
		write list slow: linsert lmove lmpop lrem lset ltrim rpoplpush
		write list slow blocking: blmove blmpop blpop brpop brpoplpush
		read hash fast: hexists hget hlen hmget hstrlen httl hpttl hexpiretime hpexpiretime
		read hash slow: hgetall hkeys hrandfield hscan hvals
		write hash fast: hdel hincrby hincrbyfloat hmset hset hsetnx hexpire hexpireat hpexpire hpexpireat hpersist
		write hash fast: hgetdel hgetex hsetex
		read set fast: scard sismember smismember
		read set slow: sdiff sinter sintercard smembers srandmember sscan sunion
		write set fast: sadd smove spop srem
		write set slow: sdiffstore sinterstore sunionstore
		read sortedset fast: zcard zcount zlexcount zmscore zrank zrevrank zscore
		read sortedset slow: zdiff zinter zintercard zrandmember zrange zrangebylex zrangebyscore zrevrange
		read sortedset slow: zrevrangebylex zrevrangebyscore zscan zunion
		write sortedset fast: zadd zincrby zpopmax zpopmin zrem
		write sortedset fast blocking: bzpopmax bzpopmin
		write sortedset slow: zdiffstore zinterstore zmpop zrangestore zremrangebylex zremrangebyrank zremrangebyscore
		write sortedset slow: zunionstore
		write sortedset slow blocking: bzmpop
		read set sortedset list slow dangerous: sort_ro
		write set sortedset list slow dangerous: sort
		read hyperloglog slow: pfcount
		write hyperloglog fast: pfadd
		write hyperloglog slow: pfmerge
		hyperloglog admin slow dangerous: pfselftest
		write hyperloglog admin slow dangerous: pfdebug
		read geo slow: geodist geohash geopos georadius_ro georadiusbymember_ro geosearch
		write geo slow: geoadd georadius georadiusbymember geosearchstore
		slow: xgroup xinfo
		stream slow: xgroup|help xinfo|help
		read stream fast: xlen
		read stream slow: xinfo|consumers xinfo|groups xinfo|stream xpending xrange xrevrange
		read stream slow blocking: xread
		write stream fast: xack xadd xautoclaim xclaim xdel xsetid xackdel xdelex xcfgset
		write stream slow: xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid xtrim
		write stream slow blocking: xreadgroup
		read fast: vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange
		read slow: vsim
		write fast: vrem vsetattr
		write slow: vadd
		read cuckoo: cf.compact cf.count cf.exists cf.info cf.mexists cf.scandump
		write cuckoo: cf.add cf.addnx cf.del cf.insert cf.insertnx cf.loadchunk cf.reserve
		read topk: topk.count topk.info topk.list topk.query
		write topk: topk.add topk.incrby topk.reserve
		read tdigest: tdigest.byrank tdigest.byrevrank tdigest.cdf tdigest.info tdigest.max tdigest.min tdigest.quantile
		read tdigest: tdigest.rank tdigest.revrank tdigest.trimmed_mean
		write tdigest: tdigest.add tdigest.create tdigest.merge tdigest.reset
		read timeseries: ts.get ts.info ts.mget ts.mrange ts.mrevrange ts.queryindex ts.range ts.revrange
		write timeseries: ts.add ts.alter ts.create ts.createrule ts.decrby ts.del ts.deleterule ts.incrby ts.madd
		read json: json.arrindex json.arrlen json.debug json.get json.mget json.objkeys json.objlen json.resp json.strlen json.type
		write json: json.arrappend json.arrinsert json.arrpop json.arrtrim json.clear json.del json.forget json.merge json.mset
		write json: json.numincrby json.nummultby json.numpowby json.set json.strappend json.toggle
		read search: ft.aggregate ft.cursor ft.cursor|del ft.cursor|gc ft.cursor|read ft.dictdump ft.explain ft.explaincli
		read search: ft.hybrid ft.info ft.profile ft.search ft.spellcheck ft.sugget ft.suglen ft.syndump ft.tagvals
		read search slow dangerous: ft._list
		write search: ft.alter ft.aliasadd ft.aliasdel ft.aliasupdate ft.create ft.dictadd ft.dictdel ft.dropindex
		write search: ft.sugadd ft.sugdel ft.synupdate
		search admin dangerous: ft.config ft.config|get ft.config|help ft.config|set`),
	refusedAll(scriptReason, `
		slow: function script
		slow scripting: eval eval_ro evalsha evalsha_ro fcall fcall_ro function|dump function|help function|kill function|list
		slow scripting: function|stats script|debug script|exists script|flush script|help script|kill script|load
		write slow scripting: function|delete function|flush function|load function|restore`),
	refusedAll(pubsubReason, `
		pubsub fast: publish/3 spublish
		pubsub slow: psubscribe/-2 punsubscribe ssubscribe/-2 subscribe/-2 sunsubscribe unsubscribe
		slow: pubsub pubsub|help
		pubsub slow: pubsub|channels pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub`),
	refusedAll(newerReason, `
		read string fast: digest
		write string fast: delex
		write string slow: msetex`),
	refusedAll(moduleReason, `admin slow dangerous: module|load module|loadex module|unload`),
	refusedAll(debugReason, `admin slow dangerous: debug/-2`),
	refusedAll(figuresReason, `
		admin slow dangerous: latency|doctor latency|graph cluster|count-failure-reports
		slow: memory|doctor memory|malloc-stats memory|purge memory|stats cluster|links
		read fast: lolwut`),
	refusedAll(noBlockReason, `connection admin slow dangerous: client|unblock/-3`),
	refusedAll(noTouchReason, `connection slow: client|no-touch/3`),
	refusedAll("its name is CLUSTER REPLICAS", `admin slow dangerous: cluster|slaves/3`),
	refusedAll("its name is REPLICAOF", `admin slow dangerous: slaveof/3`),
	refusedAll(rewriteReason, `admin slow dangerous: bgrewriteaof/1`),
	refusedAll(sentinelReason, `admin slow dangerous: sentinel/-2`),
	refusedAll(noReplication, `admin slow dangerous: psync/-3 replconf sync/1`),
	refusedWith("FAILOVER requires connected replicas.", `admin slow dangerous: failover`),
	refusedAll("fbfkv cluster create gives the slots to shards", `
		admin slow dangerous: cluster|addslots cluster|addslotsrange cluster|delslots cluster|delslotsrange cluster|flushslots
		admin slow dangerous: cluster|migration cluster|setslot cluster|syncslots`),
	refusedAll("fbfkv cluster create makes a cluster, and fbfkv cluster add-node adds a node to it",
		`admin slow dangerous: cluster|meet cluster|replicate`),
	refusedAll("fbfkv cluster remove-node takes a node out of its cluster",
		`admin slow dangerous: cluster|forget cluster|reset`),
	refusedAll("a shard elects its leader by itself, and a leader that is stopped hands over first",
		`admin slow dangerous: cluster|failover`),
	refusedAll("every node has the configuration in its log",
		`admin slow dangerous: cluster|bumpepoch cluster|saveconfig cluster|set-config-epoch`),
	refusedAll(newerReason, `slow: cluster|slot-stats`),
)

// refusedAll declares commands that are refused for one reason. Every line names
// the ACL categories and, behind a colon, the commands; a number behind a name is
// its arity, without which any number of arguments is answered with the reason.
func refusedAll(reason, lines string) []Command {
	list := refusedWith("", lines)
	for i := range list {
		list[i].Refusal = strings.ToUpper(strings.ReplaceAll(list[i].Name, "|", " ")) +
			" is not supported: " + reason
	}
	return list
}

// refusedWith is refusedAll for commands that are answered with the same text.
func refusedWith(text, lines string) (list []Command) {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		categories, names, _ := strings.Cut(line, ":")
		acl := strings.Fields(categories)
		for i := range acl {
			acl[i] = "@" + acl[i]
		}
		for _, name := range strings.Fields(names) {
			name, arity, ok := strings.Cut(name, "/")
			n, err := strconv.Atoi(arity)
			if !ok {
				n = -1
			} else if err != nil {
				panic("commands: " + err.Error())
			}
			list = append(list, Command{Name: name, Arity: n, ACL: acl, Refusal: text})
		}
	}
	return list
}
