#!/bin/sh
# Before deb and rpm are unpacked: the user whose data it will be.
set -e
getent group fbfkv >/dev/null || groupadd --system fbfkv
getent passwd fbfkv >/dev/null ||
	useradd --system --gid fbfkv --home-dir /var/lib/fbfkv --shell /usr/sbin/nologin fbfkv
