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

// Client speaks to the daemon of a lab.
type Client struct {
	home Home
	http *http.Client
}

// NewClient speaks to the lab's daemon, whenever there is one.
func NewClient(h Home) *Client {
	return &Client{home: h, http: &http.Client{Transport: &http.Transport{DialContext: h.dialer(socketFile)}}}
}

// Status is the lab as it is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", &s)
	return s, err
}

// Next waits until the lab is not as it was at that revision, or for some seconds.
func (c *Client) Next(ctx context.Context, revision uint64) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status?after="+strconv.FormatUint(revision, 10), &s)
	return s, err
}

// Kill pulls a machine's plug, and returns when its process is gone.
func (c *Client) Kill(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/v1/machines/"+id+"/kill", &struct{}{})
}

// Scale changes how many machines a group keeps.
func (c *Client) Scale(ctx context.Context, group string, size int) error {
	return c.call(ctx, http.MethodPost, "/v1/groups/"+url.PathEscape(group)+"/size/"+strconv.Itoa(size), &struct{}{})
}

// Kubeconfig is a fresh one, with a certificate of its own.
func (c *Client) Kubeconfig(ctx context.Context) ([]byte, error) {
	var out struct{ Kubeconfig string }
	err := c.call(ctx, http.MethodGet, "/v1/kubeconfig", &out)
	return []byte(out.Kubeconfig), err
}

// Down asks the lab to end, and waits until it has.
func (c *Client) Down(ctx context.Context) error {
	if err := c.call(ctx, http.MethodPost, "/v1/down", &struct{}{}); err != nil {
		return err
	}
	return c.home.Gone(ctx)
}

// Shell is the machine's second serial line; the caller closes it.
func (c *Client) Shell(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	conn, err := c.home.dialer(socketFile)(ctx, "", "")
	if err != nil {
		return nil, absent(err)
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
		return nil, refused(response)
	}
	return buffered{conn, in}, nil
}

// buffered is a connection of which something has been read ahead.
type buffered struct {
	net.Conn
	in io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// SetFault changes what is wrong with the machines that a group launches from now on.
func (c *Client) SetFault(ctx context.Context, group string, f Fault) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding a fault: %w", err)
	}
	return c.send(ctx, http.MethodPut, "/v1/groups/"+url.PathEscape(group)+"/fault", bytes.NewReader(body), &struct{}{})
}

// call makes one request and reads its answer.
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
		return fmt.Errorf("asking the lab %s: %w", c.home.Name, absent(err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return refused(response)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of the lab %s: %w", c.home.Name, err)
	}
	return nil
}

// refused is the error that an answer holds.
func refused(response *http.Response) error {
	var f failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Error == "" {
		return fmt.Errorf("the lab answers %s", response.Status)
	}
	return errors.New(f.Error)
}

// absent says of an error in connecting that there is no daemon.
func absent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return ErrNotRunning
	}
	return err
}
