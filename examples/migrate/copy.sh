#!/bin/bash
# Adds the counters of a Redis to those of fbfkv. May be run again if it breaks
# off: within the window a counter is added once. Keys may not hold line breaks.
#
#   copy.sh FROM-PORT TO-PORT [PATTERN]
set -euo pipefail
from=$1 to=$2 pattern=${3:-*}
redis-cli -p "$from" --scan --pattern "$pattern" | while read -r key; do
	value=$(redis-cli -p "$from" GET "$key")
	[[ -n $value ]] || continue # it has expired meanwhile
	redis-cli -p "$to" -e CINCRBY "$key" "copy:$key" "$value" >/dev/null
done
