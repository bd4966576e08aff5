#!/bin/sh
# After deb and rpm are unpacked. A new server is not started: its settings come first. One
# that runs goes on with the old program until somebody restarts it (docs/guide/upgrade.md).
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
