#!/bin/sh
# Before deb ("remove") and rpm (0 versions are left) take the program away; not before an
# upgrade. The data in /var/lib stays.
set -e
case $1 in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now fbfkv-backup.timer fbfkv
		systemctl stop 'fbfkv@*.service'
		systemctl disable fbfkv@.service # all that were enabled
	fi
	;;
esac
