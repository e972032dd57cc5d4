#!/bin/sh
# Waits until systemd has decided about every unit named, or until the units in UNTIL have run if it is not empty, then
# prints what systemd decided on the second serial line.
# Usage: probe.sh SECONDS UNTIL UNIT...
# What is printed is in frames, "@begin NAME" to "@end NAME", so that nothing else on the line is taken for it.
limit=$1
until=$2
shift 2
exec >/dev/ttyS1 2>&1
export LC_ALL=C SYSTEMD_COLORS=0 SYSTEMD_PAGER=

frame() {
	name=$1
	shift
	echo "@begin $name"
	"$@"
	echo "@end $name"
}

# decided: no job is left but those of targets and of the units themselves (a daemon without its cluster tries
# for ever), and each unit's condition has been looked at, or nobody wants the unit to start.
decided() {
	systemctl list-jobs --no-legend --plain | while read -r _ unit _ _; do
		case " multi-user.target graphical.target $* " in
		*" $unit "*) ;;
		*) echo "$unit" ;;
		esac
	done | grep . >/dev/null && return 1 # not -q, which would leave early and break the pipe
	systemctl show --property=Job,ConditionTimestampMonotonic "$@" |
		awk -v RS= '/(^|\n)Job=[1-9]/ && /ConditionTimestampMonotonic=0(\n|$)/ { waits = 1 } END { exit waits }'
}

# have_run: every unit's start is over, well or not. The journal knows it longer than systemd, which forgets a unit that
# nothing refers to. A start that has only begun has a JOB_TYPE too, but no JOB_RESULT.
have_run() {
	for unit in "$@"; do
		jobs_of "$unit" | grep '"JOB_TYPE":"start"' >/dev/null || return 1
	done
}

# enough: what the report waits for.
enough() {
	if [ -n "$until" ]; then
		# shellcheck disable=SC2086 # several units
		have_run $until
	else
		decided "$@"
	fi
}

wait_until_decided() {
	while [ "$(cut -d. -f1 /proc/uptime)" -lt "$limit" ]; do
		if enough "$@"; then
			echo yes
			return
		fi
		echo waiting # a sign of life for who watches the line
		sleep 1
	done
	echo no
}

# files prints each role file in one line of base64.
files() {
	for file in /etc/sysconfig/*; do
		[ -f "$file" ] && echo "$file $(base64 -w0 "$file")"
	done
}

jobs_of() {
	for unit in "$@"; do set -- "$@" "UNIT=$unit" && shift; done
	journalctl --boot --output=json --output-fields=UNIT,JOB_TYPE,JOB_RESULT,MESSAGE _PID=1 "$@" | grep '"JOB_RESULT"'
}

show() {
	systemctl show --property="$properties" "$@"
}

properties=Id,LoadState,ActiveState,Result,UnitFileState,NRestarts,Job
properties=$properties,ConditionResult,ConditionTimestampMonotonic,AssertResult
properties=$properties,InactiveExitTimestampMonotonic,ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic

frame uptime cat /proc/uptime
frame decided wait_until_decided "$@"
frame show show "$@"
# journald may be behind with what systemd has told it: it has little of the processors at boot.
journalctl --sync
frame jobs jobs_of "$@"
frame failed systemctl list-units --failed --no-legend --plain
frame files files
frame network ls /sys/class/net
frame analyze systemd-analyze time
frame journal journalctl --boot --output=short-monotonic --no-hostname
frame report echo complete
