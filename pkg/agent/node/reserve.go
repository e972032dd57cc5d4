package node

import (
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Reservation is what of a machine is not for pods. Memory is in MiB, CPU in thousandths.
type Reservation struct {
	// Kube is for the kubelet, the container runtime and the system, System for the control plane on the same
	// machine, Eviction what must stay free: below it the kubelet ends pods.
	KubeMemory   int64 `json:"kubeMemoryMiB"`
	KubeCPU      int64 `json:"kubeCPUMilli"`
	SystemMemory int64 `json:"systemMemoryMiB"`
	Eviction     int64 `json:"evictionMiB"`
	// Capped says that the sum was more than three quarters of the memory, and was cut to that.
	Capped bool `json:"capped,omitempty"`
}

// step is one step of a formula: of the amount up to upTo, a share in parts per ten thousand.
type step struct{ upTo, share int64 }

// The formula of Google Kubernetes Engine, which Azure and others take over ("Plan GKE Standard node sizes",
// Resource reservations): of memory 25% of the first 4 GiB, 20% of the next 4, 10% of the next 8, 6% up to
// 128 GiB and 2% of the rest, and 255 MiB of a machine that has less than 1 GiB; of CPUs 6% of the first,
// 1% of the second, 0.5% of the next two and 0.25% of the others. It keeps 100 MiB for eviction besides.
var (
	memorySteps = []step{{4 << 10, 2500}, {8 << 10, 2000}, {16 << 10, 1000}, {128 << 10, 600}, {1 << 62, 200}}
	cpuSteps    = []step{{1000, 600}, {2000, 100}, {4000, 50}, {1 << 62, 25}}
)

const (
	smallMachine  = 1 << 10 // MiB
	smallReserved = 255     // MiB
	eviction      = 100     // MiB
)

// What the daemons of a role hold, in MiB. An idle control plane of 1.36 had 307 (API server), 138 (controller manager)
// and 107 MB (scheduler) resident, in which the program's text counts three times, and etcd 53; the rest is for the
// objects of a small cluster.
var roleMemory = map[role.Role]int64{role.Masters: 640, role.Etcd: 128}

// steps adds up a formula.
func steps(amount int64, formula []step) int64 {
	var sum, from int64
	for _, s := range formula {
		if amount <= from {
			break
		}
		sum += (min(amount, s.upTo) - from) * s.share
		from = s.upTo
	}
	return sum / 10000
}

// reserve computes the reservation of a machine. At least a quarter of the memory is left to pods: the kubelet
// does not start where nothing is.
func reserve(memory int64, cpus int, roles role.Set) Reservation {
	mib := memory >> 20
	r := Reservation{KubeMemory: steps(mib, memorySteps), KubeCPU: steps(int64(cpus)*1000, cpuSteps), Eviction: eviction}
	if mib < smallMachine {
		r.KubeMemory = smallReserved
	}
	for _, one := range roles {
		r.SystemMemory += roleMemory[one]
	}
	most := mib*3/4 - r.Eviction
	if over := r.KubeMemory + r.SystemMemory - most; over > 0 {
		r.Capped = true
		fromSystem := min(over, r.SystemMemory)
		r.SystemMemory -= fromSystem
		r.KubeMemory = max(0, r.KubeMemory-(over-fromSystem))
	}
	return r
}
