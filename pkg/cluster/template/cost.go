package template

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// The function's requests in a month of 730 hours, from lambda/template.yaml: one sweep a minute, 256 MB. While the queue
// is idle, Lambda polls it with five long polls of 20 s at a time ("Using Lambda with Amazon SQS").
const (
	hoursPerMonth = 730
	sweeps        = hoursPerMonth * 60
	pollsPerSweep = 5 * 3
	functionGB    = "0.25"
	// metrics is the number of metrics in Hardtack/DNS, alarms that of alarms in lambda/template.yaml.
	metrics = 10
	alarms  = 7
)

// Sheet is the monthly cost of a cluster's control parts: everything except its machines.
type Sheet struct {
	Cluster string `json:"cluster"`
	Region  string `json:"region"`
	Lines   []Line `json:"lines"`
	// USD is the sum of the lines with a known cost; Unknown names the parts of the other lines.
	USD     string   `json:"usd"`
	Unknown []string `json:"unknown"`
	// Without lists the costs that are not included.
	Without string `json:"without"`
}

// Line is the cost of one part.
type Line struct {
	Part string `json:"part"`
	// Quantity is the number of Units in a month; empty if it depends on the cluster's use.
	Quantity string `json:"quantity,omitempty"`
	Unit     string `json:"unit"`
	// Why explains the quantity.
	Why string `json:"why"`
	// Price is nil if the price for the region is unknown.
	Price *Price `json:"price"`
	// USD is the cost of the part; empty if the quantity or the price is unknown.
	USD string `json:"usd,omitempty"`
}

// Cost computes the cost of a cluster's control parts from a list of prices.
func Cost(c *spec.Complete, region string, list []Price) (Sheet, error) {
	s := Sheet{Cluster: c.Cluster.Name, Region: region, Unknown: []string{},
		Without: "the machines themselves, what they transfer, snapshots, and the secrets' and image's parameters"}
	total := new(big.Rat)
	for _, p := range parts(c) {
		line := Line{Part: p.part, Quantity: p.quantity, Unit: p.unit, Why: p.why, Price: find(list, p.item, region)}
		usd, err := line.compute()
		switch {
		case err != nil:
			return Sheet{}, fmt.Errorf("%s: %w", p.part, err)
		case usd == nil:
			s.Unknown = append(s.Unknown, p.part)
		default:
			line.USD = usd.FloatString(2)
			total.Add(total, usd)
		}
		s.Lines = append(s.Lines, line)
	}
	s.USD = total.FloatString(2)
	return s, nil
}

// thousands are the prefixes of units that are priced by the thousand or the million.
var thousands = map[string]int64{"thousand ": 1_000, "million ": 1_000_000}

// compute computes the cost of the line; nil if it is unknown.
func (l Line) compute() (*big.Rat, error) {
	if l.Price == nil {
		return nil, nil
	}
	usd, ok := new(big.Rat).SetString(l.Price.USD)
	if !ok {
		return nil, fmt.Errorf("%q is not a number of dollars", l.Price.USD)
	}
	if usd.Sign() == 0 {
		return usd, nil // the quantity does not matter
	}
	if l.Quantity == "" {
		return nil, nil
	}
	unit, by := l.Price.Unit, int64(1)
	for prefix, n := range thousands {
		if rest, ok := strings.CutPrefix(unit, prefix); ok {
			unit, by = rest, n
		}
	}
	if strings.TrimSuffix(unit, "s") != strings.TrimSuffix(l.Unit, "s") {
		return nil, fmt.Errorf("the price is by %s, and the quantity is in %s", l.Price.Unit, l.Unit)
	}
	quantity, ok := new(big.Rat).SetString(l.Quantity)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", l.Quantity)
	}
	return usd.Mul(usd, quantity).Quo(usd, big.NewRat(by, 1)), nil
}

// part is a line without its price.
type part struct{ part, item, quantity, unit, why string }

// parts returns the control parts of a cluster.
func parts(c *spec.Complete) []part {
	const idle = "one sweep a minute; events add to it"
	list := []part{
		{"private zone", "zone", "1", "zone-month", "shared by the clusters of a VPC"},
		{"DNS queries", "zone-query", "", "query", "as many as the machines ask, each at most once in 5 s a name"},
		{"requests to Route 53", "zone-request", fmt.Sprint(sweeps), "request", idle},
		{"requests to AutoScaling", "autoscaling-request", fmt.Sprint(sweeps), "request", idle},
		{"requests to EC2", "ec2-request", fmt.Sprint(sweeps), "request", idle},
		{"function's calls", "function-request", fmt.Sprint(sweeps), "request", idle},
		{"function's time", "function-time-arm64", mul(functionGB, sweeps), "GB-second", "256 MB on arm64, reckoned as a whole second a call"},
		{"queue", "queue-request", fmt.Sprint(sweeps * (pollsPerSweep + 2)), "request", "Lambda's long polls of an idle queue, and a message sent and deleted a minute"},
		{"AutoScaling's events", "service-event", "", "event", "one or two a machine that comes or goes"},
		{"schedule", "schedule", fmt.Sprint(sweeps), "invocation", "one a minute"},
		{"metrics", "metric", fmt.Sprint(metrics), "metric-month", "Hardtack/DNS"},
		{"alarms", "alarm", fmt.Sprint(alarms), "alarm-month", "lambda/template.yaml"},
		{"function's log", "log", "", "GB", "a few lines a sweep; not measured on AWS"},
	}
	gigabytes, machines, volumes := 0, 0, 0
	for _, g := range c.Groups {
		gigabytes += g.Size * g.AWS.Volume
		machines += g.Size
		if c.Volume(g) {
			volumes++
		}
	}
	list = append(list, part{"disks", "volume-gp3", fmt.Sprint(gigabytes), "GB-month", fmt.Sprintf("the roots of %d machines", machines)})
	list = append(list, volumeParts(c.Cluster.Etcd, volumes)...)
	list = append(list, backupParts(c)...)
	if c.Cluster.AWS.LoadBalancer != spec.LoadBalancerNone {
		list = append(list, part{"load balancer", "balancer-hour", fmt.Sprint(hoursPerMonth), "hour", "aws.loadBalancer"},
			part{"load balancer's traffic", "balancer-unit", "", "NLCU-hour", "as clients use it"})
	}
	if c.SecretsKey() != "" {
		list = append(list, part{"secrets' key", "key", "1", "key-month", "aws.secretsKey; each of its first two yearly rotations adds as much"},
			part{"secrets' key's requests", "key-request", "", "request", "each secret that a machine reads at its start and every hour, or writes"})
	}
	return list
}

// volumeParts are the volumes of etcd's members. A gp3 volume has 3000 operations and 125 MiB a second without a price.
func volumeParts(e spec.Etcd, volumes int) []part {
	if volumes == 0 {
		return nil
	}
	const baseIOPS, baseThroughput = 3000, 125
	list := []part{{"etcd's volumes", "volume-gp3", fmt.Sprint(volumes * e.Size), "GB-month", fmt.Sprintf("etcd.size of %d volumes; they are kept, and cost, when the stack is deleted", volumes)}}
	if more := volumes * (e.IOPS - baseIOPS); more > 0 {
		list = append(list, part{"etcd's operations", "volume-gp3-iops", fmt.Sprint(more), "IOPS-month", fmt.Sprintf("etcd.iops over %d", baseIOPS)})
	}
	if more := volumes * (e.Throughput - baseThroughput); more > 0 {
		list = append(list, part{"etcd's throughput", "volume-gp3-throughput", fmt.Sprint(more), "MiB/s-month", fmt.Sprintf("etcd.throughput over %d", baseThroughput)})
	}
	return list
}

// mul returns number times times, rounded to an integer. number is a decimal.
func mul(number string, times int64) string {
	r, _ := new(big.Rat).SetString(number)
	return r.Mul(r, big.NewRat(times, 1)).FloatString(0)
}
