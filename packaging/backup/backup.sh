#!/bin/sh
# Sends a backup to a store, reads it back, and tries whether it can be restored. Only then
# does the server count it as successful (fbfkv_backup_last_success_timestamp_seconds, and
# the alert FbfkvNoBackup). A stream that breaks off anywhere on its way is refused.
#
#   BACKUP_REMOTE  where to, as rclone names it: s3:bucket/fbfkv, or a directory
#   FBFKV_HOST     the server's address; 127.0.0.1 unless set
#   FBFKV_PORT     the server's port; 6379 unless set
#   FBFKV_USER     a user with +backup; the user default unless set
#   REDISCLI_AUTH  that user's password
#
# Let the store remove what is old (a lifecycle rule, or rclone delete --min-age 30d).
set -eu
host=${FBFKV_HOST:-127.0.0.1} port=${FBFKV_PORT:-6379}
to=$BACKUP_REMOTE/$(date -u +%Y%m%d-%H%M%S).tar
fbfkv backup "$host:$port" --user "${FBFKV_USER:-}" - | rclone rcat "$to"
rclone cat "$to" | fbfkv verify "$host:$port" --user "${FBFKV_USER:-}" -
