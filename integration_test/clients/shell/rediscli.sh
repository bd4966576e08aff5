#!/bin/bash
# redis-cli against fbfkv: see clients_test.go for what the steps are for.
#
#   rediscli.sh host:port[,host:port…] 2|3 prefix
set -euo pipefail
IFS=, read -ra nodes <<<"$1"
protocol=$2 prefix=$3
follow=() # MOVED, of a cluster
((${#nodes[@]} == 1)) || follow=(-c)
at=0 limit=() # the node that is asked, and for how long
cli() { "${limit[@]}" redis-cli "${follow[@]}" -h "${nodes[at]%:*}" -p "${nodes[at]##*:}" "-$protocol" "$@"; }
expect() { [[ $1 == "$2" ]] || { echo "got $1, want $2" >&2; exit 1; }; }

# increment adds 1 to a counter exactly once: the same opid until there is an
# answer, of another node if this one does not know. -e makes redis-cli fail on an error
# reply too; timeout ends it if the server is silent.
increment() {
	local opid=$RANDOM-$RANDOM-$RANDOM-$SECONDS
	until value=$(cli -e CINCRBY "$1" "$opid" 1 2>/dev/null); do
		at=$(((at + 1) % ${#nodes[@]}))
		sleep 0.02
	done
	value=${value##*$'\n'}
	echo "counted $1 $opid $value"
}

expect "$(cli CLIENT INFO | grep -o 'resp=[23]')" "resp=$protocol"
if ((${#nodes[@]} == 1)); then # --pipe follows no MOVED
	expect "$(for i in {0..99}; do echo "CINCRBY ${prefix}pipeline op-$i 1"; done | redis-cli -h "${1%:*}" -p "${1##*:}" --pipe | tail -1)" \
		"errors: 0, replies: 100"
else
	for i in {0..99}; do echo "CINCRBY ${prefix}pipeline op-$i 1"; done | cli >/dev/null
fi
# The GET has redis-cli go to the leader before MULTI.
expect "$(printf '%s\n' "GET ${prefix}transaction" MULTI "CINCRBY ${prefix}transaction op 5" "GET ${prefix}transaction" EXEC | cli | tail -2 | xargs)" "5 5"
expect "$(cli CSEEN "${prefix}transaction" other)" ""
expect "$(cli CINCRBY "${prefix}transaction" op 6)" "MISMATCH opid was used with another delta"
[[ $(cli FBF.ADD "${prefix}filter" item) =~ ^(1|\(true\))$ ]]

echo ready
limit=(timeout 2)
count=0 keys=4
while read -rt 0.1 || (($? > 128)); do # until standard input is closed
	increment "${prefix}load:$((count % keys))"
	expect "$value" $((count++ / keys + 1))
done
echo applied $count
