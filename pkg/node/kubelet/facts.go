package kubelet

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DefaultRoute returns the interface of the IPv4 default route with the smallest metric, from the text of
// /proc/net/route (proc_pid_net(5)); "" if there is no default route.
func DefaultRoute(text string) string {
	name, best := "", uint64(math.MaxUint64)
	for line := range strings.Lines(text) {
		// Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT; addresses in hexadecimal.
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[1] != "00000000" || fields[7] != "00000000" {
			continue
		}
		flags, err := strconv.ParseUint(fields[3], 16, 16)
		metric, err2 := strconv.ParseUint(fields[6], 10, 32)
		const up, reject = 0x1, 0x200 // RTF_UP, RTF_REJECT of <linux/route.h>
		if err != nil || err2 != nil || flags&up == 0 || flags&reject != 0 || metric >= best {
			continue
		}
		name, best = fields[0], metric
	}
	return name
}

// MemTotal returns the machine's memory in bytes, from the text of /proc/meminfo.
func MemTotal(text string) (int64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kib, err := strconv.ParseInt(fields[1], 10, 53)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no line MemTotal in /proc/meminfo")
}
