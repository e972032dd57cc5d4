package reconcile_test

import "time"

// Models of how others do it, made from reading their sources: awslabs/aws-lambda-ddns-function (its last
// commit, 2020), meltwater/terraform-aws-asg-dns-handler v2.1.8 and external-dns v0.22.0. Each is given
// the best of its kind: no call is slow, EC2 and AutoScaling never throttle, and no event is lost.
var peers = []system{
	{"aws-lambda-ddns-function", runDDNS},
	{"asg-dns-handler (a name each)", runHandler},
	{"asg-dns-handler (one name)", runMultihost},
	{externalDNSModel, runExternalDNS},
}

const (
	ec2Call     = 40 * time.Millisecond
	route53Call = 80 * time.Millisecond
)

// lambda is one invocation that ends at its time limit.
type lambda struct {
	*storm
	p     *proc
	limit time.Time
}

// invokeAsync starts a Lambda as EventBridge and SNS do: after an error it is started again after one
// and after two minutes more.
func (s *storm) invokeAsync(limit time.Duration, body func(l *lambda) bool) {
	var try func(n int)
	try = func(n int) {
		ok := false
		s.spawn("lambda", func(p *proc) { ok = body(&lambda{s, p, s.now.Add(limit)}) }, func() {
			if !ok && n < 2 {
				s.after(time.Duration(n+1)*time.Minute, func() { try(n + 1) })
			}
		})
	}
	try(0)
}

func (l *lambda) alive() bool { return l.now.Before(l.limit) }

// calls makes n requests to EC2, AutoScaling or DynamoDB.
func (l *lambda) calls(n int) bool {
	for range n {
		if !l.alive() {
			return false
		}
		l.other++
		l.p.pause(ec2Call)
	}
	return l.alive()
}

// dns makes one request to Route 53 with the retries of boto3's default mode: four, after a random part
// of 1, 2, 4 and 8 seconds.
func (l *lambda) dns() bool {
	for n := range 5 {
		if !l.alive() {
			return false
		}
		l.p.pause(route53Call)
		if l.take() {
			return l.alive()
		}
		if n < 4 {
			l.p.pause(l.between(0, time.Second<<n))
		}
	}
	return false
}

// reads makes n requests to Route 53, each of which is needed for the next.
func (l *lambda) reads(n int) bool {
	for range n {
		if !l.dns() {
			return false
		}
	}
	return true
}

// runDDNS: one invocation for each machine that runs. It reads zones by listing all of them again and
// again, waits, and writes forward and reverse records for the zone tag and for the DHCP options, a second
// apart: eleven requests to Route 53. An error of a write is told to a topic and forgotten; one of a read
// ends the invocation.
func runDDNS(s *storm) {
	for i := range s.up {
		s.after(s.launched[i].Sub(epoch)+5*time.Second, func() {
			s.invokeAsync(90*time.Second, func(l *lambda) bool {
				if !l.calls(1) { // is its table there?
					return false
				}
				l.p.pause(time.Minute) // as its Python 3 version does, for the tags to appear
				// The machine, the table's item, the subnet, two attributes of the VPC; then the reverse zone.
				if !l.calls(5) || !l.reads(3) {
					return false
				}
				l.p.pause(l.between(0, time.Second))
				for zone := range 2 { // the zone tag's, then the DHCP options' one, which takes two calls to find
					if !l.calls(2*zone) || !l.reads(2) {
						return false
					}
					if l.write() {
						s.publish(i)
					}
					l.write() // the reverse record
				}
				return true
			})
		})
	}
}

// write is one of runDDNS's.
func (l *lambda) write() bool {
	l.p.pause(time.Second)
	if !l.dns() {
		l.calls(1)
		return false
	}
	return true
}

// runHandler: the launch hook of each machine starts one invocation, which writes the machine's record
// and only then lets it go on. The hook's result is ABANDON after 60 seconds, and the function has the
// default limit of 3 seconds.
func runHandler(s *storm) {
	s.hooked(func(i int, l *lambda) bool {
		if !l.calls(3) || !l.dns() { // the group's tag, the machine, its name tag
			return false
		}
		s.publish(i)
		return l.calls(1)
	})
}

// runMultihost: as proposed for it in 2021, and kept by forks: as before, but every machine's event describes and tags each machine of the group, one
// by one, and writes the whole list, however old, over whatever is there. Route 53 takes 400 values.
func runMultihost(s *storm) {
	s.hooked(func(_ int, l *lambda) bool {
		var listed []int
		for j, at := range s.launched {
			if !at.After(s.now) && !s.lost[j] {
				listed = append(listed, j)
			}
		}
		if !l.calls(2) || !l.calls(2*len(listed)) || !l.dns() || len(listed) > 400 {
			return false
		}
		for _, j := range listed {
			s.publish(j)
		}
		return l.calls(1)
	})
}

// hooked runs a handler for each launch; a machine whose hook nobody completes in time is given up.
func (s *storm) hooked(handle func(i int, l *lambda) bool) {
	for i := range s.up {
		s.after(s.launched[i].Sub(epoch), func() {
			done := false
			s.invokeAsync(3*time.Second, func(l *lambda) bool {
				if s.lost[i] {
					return true
				}
				done = handle(i, l) || done
				return done
			})
			s.after(time.Minute, func() { s.lost[i] = !done })
		})
	}
}

// runExternalDNS: every minute it lists the zones, the zone's records and the zones again, plans, and
// writes the name's set and its owner's TXT over what is there. Too many values for its own limit of a
// batch are skipped with a warning, too many for Route 53 in one set are refused; both in every cycle.
// The program itself is held against this where it can be (stormsOfExternalDNS).
func runExternalDNS(s *storm) {
	have := 0
	for at := 10 * time.Second; at < stormHorizon; at += time.Minute {
		s.after(at, func() {
			s.spawn("external-dns", func(p *proc) {
				l := &lambda{s, p, s.now.Add(time.Minute)}
				var in []int
				for i, up := range s.up {
					if !up.After(s.now) {
						in = append(in, i)
					}
				}
				if !l.reads(3) || len(in) == have || !l.reads(1) { // the zones once more before a change
					return
				}
				values := len(in) + 1
				if have > 0 {
					values *= 2 // an UPSERT counts twice
				}
				if values > 1000 || !l.dns() || len(in) > 400 {
					return
				}
				have = len(in)
				for _, i := range in {
					s.publish(i)
				}
			}, func() {})
		})
	}
}
