package systemd_test

import "testing"

// TestMasks has each empty file of the image, by which a unit or a generator of Debian's is not started, take one away: Debian
// gives them other names now and then.
func TestMasks(t *testing.T) {
	_, out := minion(t).boot(t, `
cd /etc/systemd/system
units=0 generators=0 idle=""
for unit in $(find . -maxdepth 1 -type f -empty -printf '%f\n'); do
	units=$((units + 1))
	debians=/usr/lib/systemd/system/$(echo "$unit" | sed 's/@[^.]*/@/') # an instance is of its template
	[ -e "$debians" ] && [ "$(systemctl show --property=LoadState --value "$unit")" = masked ] || idle="$idle $unit"
done
cd /etc/systemd/system-generators
for generator in $(find . -type f -empty -printf '%f\n'); do
	generators=$((generators + 1))
	[ -x "/usr/lib/systemd/system-generators/$generator" ] || idle="$idle $generator"
done
echo "counted: $((units >= 10)) $((generators >= 4))"
echo "takes nothing away:$idle"
echo "lock: $(stat --file-system --format=%T /run/lock) $(stat --format=%a /run/lock)"
`)
	answers(t, out, map[string]string{"counted": "1 1", "takes nothing away": "", "lock": "tmpfs 1777"})
}
