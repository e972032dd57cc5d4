package awsfake

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Credentials sign a principal's calls. The access key is a counter's; secret and token are random.
type Credentials struct {
	AccessKey, Secret string
	// Token is the session token of a role's credentials; empty for a user's.
	Token string
	// Expires is when they end; zero is never.
	Expires time.Time
}

// role is an IAM role or user; a user has long-lived credentials.
type role struct {
	name, id string
	user     bool
	policies []Policy
	// made roles come from a stack.
	made bool
	// trusts are the statements about tokens of its trust policy, and session how long credentials last at most, in seconds; zero is
	// roleSession.
	trusts  []trust
	session int
}

// key is an access key and its owner.
type key struct {
	Credentials
	role    *role
	session string
}

// principal is who made a call.
type principal struct {
	// name is the role's or the user's.
	name, arn, id string
	policies      []Policy
	context       map[string][]string
}

// AddRole makes a role, or replaces the policies of an existing role and thereby of its credentials.
//
// An account is open until its first role or user, unless it is Options.Closed: any access key may do everything and signatures are not checked,
// except for keys with SetPolicy and keys issued for roles of stacks. From then on every call must be signed with
// credentials that the account made, and may do what their policies allow. The first administrator comes from AddUser.
func (a *Account) AddRole(name string, policies ...Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identities.add(name, false, policies)
}

// AddManagedPolicy makes a managed policy, which roles of stacks may then have. There are none before, of AWS's own neither.
func (a *Account) AddManagedPolicy(arn string, policy Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identities.managed[arn] = policy
}

// AddUser makes a user, or replaces the policies of an existing one, and returns credentials that never end. A user
// without a policy may do nothing; with Administrator, everything.
func (a *Account) AddUser(name string, policies ...Policy) Credentials {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.identities.add(name, true, policies)
	return a.identities.issue(r, "", time.Time{})
}

// Administrator returns a policy that allows everything.
func Administrator() Policy {
	return Policy{{Actions: []string{"*"}, Resources: []string{"*"}}}
}

var sessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)

// Issue returns credentials for a session of a role that end after ttl, like those of a metadata service. For a
// machine, session is the instance's ID, and the calls carry ec2:SourceInstanceARN. It fails if the role does not
// exist (NoSuchEntity), or if the session's name or ttl is not valid.
func (a *Account) Issue(name, session string, ttl time.Duration) (Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.identities.roles["role/"+name]
	switch {
	case !ok:
		return Credentials{}, refuse("NoSuchEntity", "The role with name %s cannot be found.", name)
	case !sessionName.MatchString(session):
		return Credentials{}, malformed("Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", session)
	case ttl <= 0:
		return Credentials{}, malformed("credentials must last longer than %v", ttl)
	}
	return a.identities.issue(r, session, a.clock.Now().Add(ttl)), nil
}

// identities are an account's roles, users and access keys; they are behind the account's lock.
type identities struct {
	roles map[string]*role
	keys  map[string]key
	// profiles are the instance profiles, and the role of each.
	profiles map[string]string
	// providers are the OIDC identity providers by ARN.
	providers map[string]webProvider
	// managed are the managed policies by ARN.
	managed map[string]Policy
	serial  int
	random  io.Reader
	// shut accounts are closed without roles and users, too.
	shut bool
}

func newIdentities(o Options) identities {
	i := identities{roles: map[string]*role{}, keys: map[string]key{}, profiles: map[string]string{}, providers: map[string]webProvider{}, managed: map[string]Policy{}, random: o.Random, shut: o.Closed}
	if i.random == nil {
		i.random = rand.Reader
	}
	return i
}

// closed reports whether every call must be signed by known credentials. Roles that stacks make do not close an
// account: the creator of the stack could not go on.
func (i *identities) closed() bool {
	if i.shut {
		return true
	}
	for _, r := range i.roles {
		if !r.made {
			return true
		}
	}
	return false
}

func (i *identities) add(name string, user bool, policies []Policy) *role {
	kind, prefix := "role/", "AROA"
	if user {
		kind, prefix = "user/", "AIDA"
	}
	r := i.roles[kind+name]
	if r == nil {
		r = &role{name: name, user: user, id: prefix + strings.ToUpper(hexID(kind+name, 0, 17))}
		i.roles[kind+name] = r
	}
	r.policies = policies
	return r
}

func (i *identities) issue(r *role, session string, expires time.Time) Credentials {
	i.serial++
	c := Credentials{AccessKey: "AKIA" + strings.ToUpper(hexID("key", i.serial, 16)), Secret: i.secret(30), Expires: expires}
	if !r.user {
		c.AccessKey, c.Token = "ASIA"+c.AccessKey[4:], "IQoJ"+i.secret(60)
	}
	i.keys[c.AccessKey] = key{Credentials: c, role: r, session: session}
	return c
}

// secret returns n random bytes in base64.
func (i *identities) secret(n int) string {
	b := make([]byte, n)
	if _, err := io.ReadFull(i.random, b); err != nil {
		panic(fmt.Sprintf("awsfake: Options.Random: %v", err)) // crypto/rand never fails
	}
	return base64.StdEncoding.EncodeToString(b)
}

// principal returns who a key belongs to, with the condition keys that come with the credentials.
func (k key) principal() principal {
	p := principal{name: k.role.name, policies: k.role.policies, context: map[string][]string{}}
	if k.role.user {
		p.arn, p.id = "arn:aws:iam::"+owner+":user/"+k.role.name, k.role.id
	} else {
		p.arn, p.id = "arn:aws:sts::"+owner+":assumed-role/"+k.role.name+"/"+k.session, k.role.id+":"+k.session
		if strings.HasPrefix(k.session, "i-") {
			p.context["ec2:sourceinstancearn"] = []string{machineARN(k.session)}
		}
	}
	return p
}
