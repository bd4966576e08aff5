package integration

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// redisReady is what redis-server logs when it serves.
var redisReady = regexp.MustCompile("Ready to accept connections")

// normalisers make equal what must differ between two servers, and nothing
// else: each is given Redis' reply and ours and changes one or both.
var normalisers = map[string]func(redis, ours *reply){
	// sorted: the order of an array's elements, or a map's pairs, is free.
	"sorted": func(redis, ours *reply) { redis.sort(); ours.sort() },
	// near: integers may differ by what passes between two commands.
	"near": func(redis, ours *reply) { liken(redis, ours, closeEnough) },
	// int: integers may differ, the number and place of them may not.
	"int": func(redis, ours *reply) { liken(redis, ours, func(a, b int64) bool { return true }) },
	// positive: as int, if both are greater than 0.
	"positive": func(redis, ours *reply) {
		liken(redis, ours, func(a, b int64) bool { return a > 0 && b > 0 })
	},
	// client: fields of CLIENT LIST and INFO whose values are the server's own,
	// and those that Redis has since 7.2.
	"client": func(redis, ours *reply) {
		redis.replace(clientField, "$1=?")
		ours.replace(clientField, "$1=?")
		ours.replace(newerClientField, "")
	},
	// hello: version, server and id in the reply of HELLO.
	"hello": func(redis, ours *reply) { maskHello(redis); maskHello(ours) },
	// changes: of INFO only rdb_changes_since_last_save.
	"changes": func(redis, ours *reply) { onlyChanges(redis); onlyChanges(ours) },
	// any: the step is there for its effect, such as cleaning up.
	"any": func(redis, ours *reply) { *redis, *ours = reply{}, reply{} },
	// type: only the kind of the reply.
	"type": func(redis, ours *reply) { onlyKind(redis); onlyKind(ours) },
}

// closeEnough accepts five seconds in milliseconds or in seconds, whatever the
// integer counts: a busy machine takes its time between two commands.
func closeEnough(a, b int64) bool {
	d := max(a-b, b-a)
	return a > 0 && b > 0 && (d <= 5 || a > 10000 && d <= 5000)
}

// liken makes integers of two replies of the same shape equal where same
// accepts them.
func liken(redis, ours *reply, same func(a, b int64) bool) {
	if redis.kind != ours.kind || len(redis.elements) != len(ours.elements) {
		return
	}
	for i := range redis.elements {
		liken(&redis.elements[i], &ours.elements[i], same)
	}
	a, err1 := strconv.ParseInt(redis.text, 10, 64)
	b, err2 := strconv.ParseInt(ours.text, 10, 64)
	if err1 == nil && err2 == nil && same(a, b) {
		redis.text, ours.text = "<integer>", "<integer>"
	}
}

// sort orders the elements of an array, or the pairs of a map; in RESP2 a map
// is an array, whose pairs it keeps together if every other element is a
// string of letters: CONFIG GET.
func (r *reply) sort() {
	if r.kind != '%' {
		slices.SortFunc(r.elements, func(a, b reply) int { return strings.Compare(a.String(), b.String()) })
		return
	}
	pairs := make([][2]reply, len(r.elements)/2)
	for i := range pairs {
		pairs[i] = [2]reply{r.elements[2*i], r.elements[2*i+1]}
	}
	slices.SortFunc(pairs, func(a, b [2]reply) int { return strings.Compare(a[0].String(), b[0].String()) })
	for i, p := range pairs {
		r.elements[2*i], r.elements[2*i+1] = p[0], p[1]
	}
}

// clientField is a field of a client's line that two servers cannot agree on:
// ids, addresses, descriptors, times and sizes of memory.
var clientField = regexp.MustCompile(`\b(id|addr|laddr|fd|age|idle|qbuf|qbuf-free|argv-mem|multi-mem|rbs|rbp|obl|oll|omem|tot-mem|events)=(\S*)`)

// newerClientField is a field that Redis 7.0 does not have yet.
var newerClientField = regexp.MustCompile(` (lib-name|lib-ver|watch|tot-net-in|tot-net-out|tot-cmds|io-thread)=[^ \n]*`)

// replace replaces what matches in every text.
func (r *reply) replace(pattern *regexp.Regexp, with string) {
	for i := range r.elements {
		r.elements[i].replace(pattern, with)
	}
	r.text = pattern.ReplaceAllString(r.text, with)
}

// maskHello replaces what HELLO says of the server itself.
func maskHello(r *reply) {
	for i := 0; i+1 < len(r.elements); i += 2 {
		switch r.elements[i].text {
		case "server", "version", "id":
			r.elements[i+1].text = "?"
		}
	}
}

// onlyChanges drops all of INFO but rdb_changes_since_last_save.
func onlyChanges(r *reply) {
	*r = reply{kind: r.kind, text: regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(r.text)}
}

// onlyKind drops all but the kind of a reply.
func onlyKind(r *reply) { *r = reply{kind: r.kind, text: "?"} }
