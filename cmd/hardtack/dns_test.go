package main

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestDNSScripts runs each script against its own BIND: $SERVER, with $KEY that may change the zone k8s and $OTHERKEY
// that may not, and against a fake AWS account.
func TestDNSScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short was asked for: every script starts a name server")
	}
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	slow := zonetest.StartBIND(t, zonetest.BINDOptions{Minimum: 900})
	open := zonetest.StartBIND(t, zonetest.BINDOptions{Minimum: 900, Unsigned: true})
	shut := zonetest.StartBIND(t, zonetest.BINDOptions{NoTransfer: true})
	endpoint := awsRegion(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/dns", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			// Scripts run in parallel on one server; each has its own cluster, named after the script.
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			env.Setenv("CLUSTER", name)
			env.Setenv("SERVER", b.Addr)
			// SLOW keeps an SOA minimum of 900, OPEN takes unsigned updates, SHUT allows no transfers.
			for name, other := range map[string]zonetest.BIND{"SLOW": slow, "OPEN": open, "SHUT": shut} {
				env.Setenv(name, other.Addr)
				env.Setenv(name+"KEY", other.KeyFile)
			}
			env.Setenv("KEY", b.KeyFile)
			env.Setenv("OTHERKEY", b.OtherFile)
			env.Setenv("ON", "--zone-server="+b.Addr)
			for k, v := range map[string]string{"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "HOME": env.WorkDir} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// json FILE fails unless the file holds one JSON value.
			"json": func(ts *testscript.TestScript, neg bool, args []string) {
				if got := json.Valid([]byte(ts.ReadFile(args[0]))); got == neg {
					ts.Fatalf("%s is JSON: %v", args[0], got)
				}
			},
			// put NAME TYPE VALUE writes a record as another program would.
			"put": func(ts *testscript.TestScript, _ bool, args []string) {
				key, err := zone.ReadKey(b.KeyFile)
				ts.Check(err)
				z, err := zone.NewRFC2136(zone.RFC2136Config{Server: b.Addr, Key: key, Policy: record.DefaultPolicy()})
				ts.Check(err)
				ts.Check(z.CompareAndSwap(t.Context(), "", nil, []record.Set{{Name: args[0], Type: args[1], TTL: time.Minute, Values: args[2:]}}))
			},
		},
	})
}

// awsRegion is a fake account with the zone k8s and a group of masters of cluster aws.
func awsRegion(t *testing.T) string {
	t.Helper()
	a := awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0}})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	api := route53.New(route53.Options{Region: "eu-central-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("AKIDADMIN", "secret", "")})
	q := zone.Query{Name: "k8s", VPC: "vpc-0123456789abcdef0", Region: "eu-central-1"}
	if _, err := zone.CreateZone(t.Context(), api, q, "1"); err != nil {
		t.Fatal(err)
	}
	a.SetPolicy("AKIDNOBODY", awsfake.Policy{})
	a.SetPolicy("AKIDHALF", awsfake.Policy{{Actions: []string{"route53:List*", "route53:Get*", "route53:CreateHostedZone", "ec2:DescribeVpcs"}, Resources: []string{"*"}}})
	a.SetPolicy("AKIDNOVPC", awsfake.Policy{{Actions: []string{"route53:*"}, Resources: []string{"*"}}})
	err := a.AutoScaling().Create(awsfake.Group{Name: "masters", Max: 3, Desired: 3, Zones: []string{"eu-central-1a"},
		Tags: map[string]string{role.TagCluster: "aws", role.TagRole: "masters"}})
	if err != nil {
		t.Fatal(err)
	}
	a.Tick()
	return server.URL
}
