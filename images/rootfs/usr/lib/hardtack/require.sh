#!/bin/sh
# Ends a start that cannot work, with the reason and the next step in one line of the journal.
# usage: require.sh [--any] FILE...
#
# systemd's Assert...= is for what the bake puts there: it logs no path and is not tried again. What comes
# at boot, like a certificate, may come later, so that this runs as ExecStartPre= of a unit that restarts.
set -eu

any=
if [ "${1:-}" = --any ]; then
	any=yes
	shift
fi

missing=
for file; do
	if [ -r "$file" ]; then
		[ -z "$any" ] || exit 0
	else
		missing="$missing $file"
	fi
done
[ -n "$missing" ] || exit 0

what="missing, or not readable by $(id -un)"
[ -z "$any" ] || what="none of these is there and readable by $(id -un)"
# <3> makes it an error in the journal.
echo "<3>$what:$missing (put them there, or wait for what makes them: this start is tried again)" >&2
exit 1
