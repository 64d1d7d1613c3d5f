#!/bin/sh
# Run by systemd before and after the machine sleeps ($1: pre, post): the daemon closes the workers
# that would not survive it (server.sleep_closes) and brings them back, with their requests.
case "$1" in
  pre)
    systemctl --quiet is-active hearth.service || exit 0
    systemctl kill --kill-who=main --signal=SIGUSR1 hearth.service
    # A worker ends at once; its device is free a moment later.
    sleep 1
    ;;
  post)
    systemctl kill --kill-who=main --signal=SIGUSR2 hearth.service 2>/dev/null
    ;;
esac
exit 0
