package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// outside serves the region's APIs on a port of this computer, for any program that has one of its access keys.
type outside struct {
	server *http.Server
	url    string
	done   chan struct{}
}

func newOutside(ctx context.Context, handler http.Handler) (*outside, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the region's own programs: %w", err)
	}
	o := &outside{server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, url: "http://" + l.Addr().String(), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		_ = o.server.Serve(l) // always an error: that it was closed
	}()
	return o, nil
}

func (o *outside) close() {
	_ = o.server.Close()
	<-o.done
}

// AWS is the access of a program on this computer to the region, as its owner, who may do everything.
type AWS struct {
	// Endpoint is the URL of all services.
	Endpoint string `json:"endpoint"`
	Region   string `json:"region"`
	// AccessKey and Secret are valid in the lab only.
	AccessKey string `json:"access_key"`
	Secret    string `json:"secret"`
	// VPC, Subnets and Zones are the network in which machines can be launched.
	VPC     string   `json:"vpc"`
	Subnets []string `json:"subnets"`
	Zones   []string `json:"availability_zones"`
}

// Environ returns the environment variables that point AWS's SDKs and CLI at the region.
func (a AWS) Environ() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + a.Endpoint, "AWS_REGION=" + a.Region, "AWS_DEFAULT_REGION=" + a.Region,
		"AWS_ACCESS_KEY_ID=" + a.AccessKey, "AWS_SECRET_ACCESS_KEY=" + a.Secret,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// aws returns the owner's access to the region.
func (r *region) aws() AWS {
	return AWS{
		Endpoint: r.outside.url, Region: regionName, AccessKey: r.key.AccessKeyID, Secret: r.key.SecretAccessKey,
		VPC: vpcID, Subnets: []string{subnetID}, Zones: []string{zoneName},
	}
}

func (d *daemon) getAWS(w http.ResponseWriter, _ *http.Request) { writeJSON(w, d.region.aws()) }

// AWS returns the owner's access to the lab's region.
func (c *Client) AWS(ctx context.Context) (AWS, error) {
	var a AWS
	err := c.call(ctx, http.MethodGet, "/v1/aws", &a)
	return a, err
}
