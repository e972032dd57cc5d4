#!/bin/sh
# Waits until files are there that come at boot: hardtack-agent wait, which says what it waits for, where one is missing.
# usage: wait.sh FILE[,FILE]...    of several with commas between them, one
#
# Mostly all are there, and a shell is started in a tenth of the time. As ExecStartPre=+ it has no sandbox, whose making
# would take as long again.
set -eu

missing=
for group; do
	shift
	set -- "$@" "--file=$group"
	found=
	IFS=,
	for file in $group; do
		[ ! -s "$file" ] || found=yes
	done
	unset IFS
	[ -n "$found" ] || missing=yes
done
[ -z "$missing" ] || exec /usr/lib/hardtack/bin/hardtack-agent wait "$@"
