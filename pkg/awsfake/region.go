package awsfake

import (
	"maps"
	"net/http"
)

// place is the state that one region has separately: images, snapshots and parameters. Machines, groups, queues and
// events are in the home region only.
type place struct {
	images *Images
	ssm    *SSM
}

func newPlaces(a *Account, o Options) map[string]*place {
	places := map[string]*place{}
	for _, region := range append([]string{HomeRegion}, o.Regions...) {
		places[region] = &place{images: newImages(a, region, o), ssm: newSSM(a, region)}
	}
	return places
}

// place returns a region's state; for a region that is not in Options.Regions, the home region's.
func (a *Account) place(region string) *place {
	if p, ok := a.regional.places[region]; ok {
		return p
	}
	return a.regional.places[HomeRegion]
}

// Images returns the images and snapshots of the account's home region.
func (a *Account) Images() *Images { return a.ImagesIn(HomeRegion) }

// ImagesIn returns the images and snapshots of one of Options.Regions.
func (a *Account) ImagesIn(region string) *Images { return a.place(region).images }

// SSMIn returns the Parameter Store of one of Options.Regions.
func (a *Account) SSMIn(region string) *SSM { return a.place(region).ssm }

// nextSnapshot numbers the snapshots of all regions.
func (a *Account) nextSnapshot() int {
	a.tally.snapshots++
	return a.tally.snapshots
}

// regionalService is a service of which each region has an instance; a call's signature names the region.
type regionalService struct {
	account *Account
	in      func(*place) service
}

func (e regionalService) serve(c *call) (any, error) { return e.in(e.account.place(c.Region)).serve(c) }

func (e regionalService) needs(c *call) []need {
	return e.in(e.account.place(c.Region)).(resourced).needs(c)
}

// Traffic is the size of an action's requests and answers, in bytes of their bodies.
type Traffic struct{ Received, Sent int64 }

// tally counts calls.
type tally struct {
	calls   map[string]int
	refused map[string]int
	traffic map[string]Traffic
	// used are the permissions that roles and users have used, by their names.
	used map[string]map[string]int
	// serial numbers requests and zones, snapshots those that were started.
	serial, snapshots int
}

func newTally() tally {
	return tally{calls: map[string]int{}, refused: map[string]int{}, traffic: map[string]Traffic{}, used: map[string]map[string]int{}}
}

// use counts a permission that a caller has used.
func (t *tally) use(name, action string) {
	if t.used[name] == nil {
		t.used[name] = map[string]int{}
	}
	t.used[name][action]++
}

// Used returns how often a role or user has used each permission ("autoscaling:SetDesiredCapacity"), for calls too that were then
// refused for another reason. What is here is what its policies must allow, and what is not could be left out of them.
func (a *Account) Used(name string) map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tally.used[name])
}

// Traffic returns the traffic of each action over HTTP ("ebs:PutSnapshotBlock"), refused calls included.
func (a *Account) Traffic() map[string]Traffic {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tally.traffic)
}

// carried counts what a call and its answer carried.
func (a *Account) carried(c *call, received, sent int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tally.traffic[c.Service+":"+c.Action]
	a.tally.traffic[c.Service+":"+c.Action] = Traffic{t.Received + received, t.Sent + sent}
}

// countingWriter counts the bytes of an answer.
type countingWriter struct {
	http.ResponseWriter
	n int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n += int64(n)
	return n, err
}
