package kubelet

import (
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Reservation is the part of a machine that pods cannot use. Memory is in MiB, CPU in thousandths of a CPU.
type Reservation struct {
	// Kube is for the kubelet, the container runtime and the system, System for the control plane on the same
	// machine. Eviction is the memory that must stay free: the kubelet evicts pods when less is free.
	KubeMemory   int64 `json:"kube_memory_mib"`
	KubeCPU      int64 `json:"kube_cpu_milli"`
	SystemMemory int64 `json:"system_memory_mib"`
	Eviction     int64 `json:"eviction_mib"`
	// Capped reports that the sum exceeded three quarters of the memory and was reduced to that.
	Capped bool `json:"capped,omitempty"`
}

// step is one step of a formula: a share, in parts per ten thousand, of the amount up to upTo.
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

// steps applies a formula to an amount.
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

// reserve computes the reservation of a machine. At least a quarter of the memory is left to pods: without any the
// kubelet does not start.
func reserve(memory int64, cpus int, roles role.Set) Reservation {
	mib := memory >> 20
	r := Reservation{KubeMemory: steps(mib, memorySteps), KubeCPU: steps(int64(cpus)*1000, cpuSteps), Eviction: eviction}
	if mib < smallMachine {
		r.KubeMemory = smallReserved
	}
	for _, assigned := range roles {
		r.SystemMemory += int64(max(0, assigned.Profile().Reserve))
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
