#!/bin/bash
# redis-cli against fbfkv: see clients_test.go for what the steps are for.
#
#   rediscli.sh host:port 2|3
set -euo pipefail
host=${1%:*} port=${1##*:} protocol=$2
flags=(-h "$host" -p "$port" -"$protocol")
cli() { redis-cli "${flags[@]}" "$@"; }
expect() { [[ $1 == "$2" ]] || { echo "got $1, want $2" >&2; exit 1; }; }

# increment adds 1 to a counter exactly once: the same opid until there is an
# answer. -e makes redis-cli fail on an error reply too; timeout ends it if the server
# is silent.
increment() {
	local opid=$RANDOM-$RANDOM-$RANDOM-$SECONDS
	until timeout 2 redis-cli "${flags[@]}" -e CINCRBY "$1" "$opid" 1 2>/dev/null; do sleep 0.02; done
}

expect "$(cli CLIENT INFO | grep -o 'resp=[23]')" "resp=$protocol"
expect "$(for i in {0..99}; do echo "CINCRBY pipeline op-$i 1"; done | redis-cli -h "$host" -p "$port" --pipe | tail -1)" \
	"errors: 0, replies: 100"
expect "$(printf 'MULTI\nCINCRBY transaction op 5\nGET transaction\nEXEC\n' | cli | tail -2 | xargs)" "5 5"
expect "$(cli CSEEN transaction other)" ""
expect "$(cli CINCRBY transaction op 6)" "MISMATCH opid was used with another delta"
[[ $(cli FBF.ADD filter item) =~ ^(1|\(true\))$ ]]

echo ready
count=0
while read -rt 0.001 || (($? > 128)); do # until standard input is closed
	expect "$(increment load:0)" $((++count))
done
echo applied $count
