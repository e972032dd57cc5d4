package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"golang.org/x/sys/unix"
)

// Client calls the daemon of a lab over the socket in the lab's directory.
type Client struct {
	home Home
	http *http.Client
}

// NewClient returns a client of the lab in h. It does not connect: each call does, and returns ErrNotRunning if the
// daemon does not run.
func NewClient(h Home) *Client {
	return &Client{home: h, http: &http.Client{Transport: &http.Transport{DialContext: h.dialer(socketFile)}}}
}

// Status returns the current state of the lab.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", &s)
	return s, err
}

// Next waits until the lab's revision differs from revision, for at most 20 seconds, and returns the state then.
func (c *Client) Next(ctx context.Context, revision uint64) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status?after="+strconv.FormatUint(revision, 10), &s)
	return s, err
}

// Kill cuts a machine's power and returns when its process has ended.
func (c *Client) Kill(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/v1/machines/"+id+"/kill", &struct{}{})
}

// Volumes lists the account's volumes, in the order in which they were made.
func (c *Client) Volumes(ctx context.Context) ([]VolumeStatus, error) {
	var list []VolumeStatus
	err := c.call(ctx, http.MethodGet, "/v1/volumes", &list)
	return list, err
}

// WipeVolume makes a volume blank. It is an error if a machine has it.
func (c *Client) WipeVolume(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/v1/volumes/"+url.PathEscape(id)+"/wipe", &struct{}{})
}

// LoseVolume loses a volume with its content, whoever has it.
func (c *Client) LoseVolume(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/v1/volumes/"+url.PathEscape(id)+"/lose", &struct{}{})
}

// Scale sets the desired size of a group.
func (c *Client) Scale(ctx context.Context, group string, size int) error {
	return c.call(ctx, http.MethodPost, "/v1/groups/"+url.PathEscape(group)+"/size/"+strconv.Itoa(size), &struct{}{})
}

// Kubeconfig returns a new kubeconfig for this computer, with a certificate issued for this call.
func (c *Client) Kubeconfig(ctx context.Context) ([]byte, error) {
	var out struct{ Kubeconfig string }
	err := c.call(ctx, http.MethodGet, "/v1/kubeconfig", &out)
	return []byte(out.Kubeconfig), err
}

// Down asks the daemon to stop, and waits until it has.
func (c *Client) Down(ctx context.Context) error {
	if err := c.call(ctx, http.MethodPost, "/v1/down", &struct{}{}); err != nil {
		return err
	}
	return c.home.Gone(ctx)
}

// Shell connects to the machine's second serial line; the caller closes it.
func (c *Client) Shell(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	conn, err := c.home.dialer(socketFile)(ctx, "", "")
	if err != nil {
		return nil, notRunning(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lab/v1/machines/"+id+"/shell", nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "serial")
	if err := request.Write(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("asking for the serial line: %w", err), conn.Close())
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, request)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asking for the serial line: %w", err), conn.Close())
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = response.Body.Close(); _ = conn.Close() }()
		return nil, responseError(response)
	}
	return buffered{conn, in}, nil
}

// buffered is a connection whose first bytes may already be in a reader's buffer.
type buffered struct {
	net.Conn
	in io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// SetFault sets the fault of the machines that a group launches from now on.
func (c *Client) SetFault(ctx context.Context, group string, f Fault) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding a fault: %w", err)
	}
	return c.send(ctx, http.MethodPut, "/v1/groups/"+url.PathEscape(group)+"/fault", bytes.NewReader(body), &struct{}{})
}

// call sends one request without a body and decodes its answer.
func (c *Client) call(ctx context.Context, method, path string, into any) error {
	return c.send(ctx, method, path, nil, into)
}

func (c *Client) send(ctx context.Context, method, path string, body io.Reader, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, body)
	if err != nil {
		return fmt.Errorf("asking the lab %s: %w", c.home.Name, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking the lab %s: %w", c.home.Name, notRunning(err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return responseError(response)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of the lab %s: %w", c.home.Name, err)
	}
	return nil
}

// responseError returns the error in the daemon's answer.
func responseError(response *http.Response) error {
	var f failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Error == "" {
		return fmt.Errorf("the lab answers %s", response.Status)
	}
	return errors.New(f.Error)
}

// notRunning turns an error of connecting into ErrNotRunning if no daemon listens.
func notRunning(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return ErrNotRunning
	}
	return err
}
