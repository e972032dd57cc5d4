package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// longPoll is the longest that getStatus waits for a change.
const longPoll = 20 * time.Second

// serve serves the daemon's API on the lab's socket.
func (d *daemon) serve() (*wire, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", d.getStatus)
	mux.HandleFunc("POST /v1/down", d.postDown)
	mux.HandleFunc("POST /v1/machines/{id}/kill", d.postKill)
	mux.HandleFunc("POST /v1/machines/{id}/end", d.postEnd)
	mux.HandleFunc("POST /v1/machines/{id}/notice", d.postNotice)
	mux.HandleFunc("GET /v1/nodes/{name}/events", d.getEvents)
	mux.HandleFunc("POST /v1/machines/{id}/shell", d.postShell)
	mux.HandleFunc("POST /v1/groups/{name}/size/{size}", d.postSize)
	mux.HandleFunc("PUT /v1/groups/{name}/fault", d.putFault)
	mux.HandleFunc("GET /v1/volumes", d.getVolumes)
	mux.HandleFunc("POST /v1/volumes/{id}/wipe", d.postVolume((*host).wipe))
	mux.HandleFunc("POST /v1/volumes/{id}/lose", d.postVolume((*host).lose))
	mux.HandleFunc("GET /v1/kubeconfig", d.getKubeconfig)
	mux.HandleFunc("GET /v1/aws", d.getAWS)
	mux.Handle("/v2/", d.registry)
	return d.Home.newWire(socketFile, mux)
}

// failure is the body of an error.
type failure struct {
	Error string `json:"error"`
}

func writeError(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure{err.Error()}) // the client is gone
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// getStatus returns the status; with ?after=N as soon as its revision differs from N.
func (d *daemon) getStatus(w http.ResponseWriter, r *http.Request) {
	if after := r.FormValue("after"); after != "" {
		seen, err := strconv.ParseUint(after, 10, 64)
		if err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		d.board.after(r.Context(), seen, longPoll)
	}
	writeJSON(w, d.status())
}

func (d *daemon) postDown(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, struct{}{})
	// Send the answer before the shutdown closes this connection too.
	_ = http.NewResponseController(w).Flush() // the client is gone
	d.down()
}

func (d *daemon) postKill(w http.ResponseWriter, r *http.Request) {
	if err := d.host.kill(r.PathValue("id")); err != nil {
		writeError(w, http.StatusNotFound, err)
		return
	}
	writeJSON(w, struct{}{})
}

func (d *daemon) getVolumes(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, d.host.volumeStates())
}

// postVolume does something to a volume.
func (d *daemon) postVolume(do func(*host, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(d.host, r.PathValue("id")); err != nil {
			writeError(w, http.StatusConflict, err)
			return
		}
		writeJSON(w, struct{}{})
	}
}

// postSize sets a group's desired size.
func (d *daemon) postSize(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.PathValue("size"))
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	g, ok := d.Plan.groupIn(d.region.account, r.PathValue("name"))
	if !ok {
		writeError(w, http.StatusNotFound, fmt.Errorf("there is no group %q", r.PathValue("name")))
		return
	}
	if err := d.region.scale(r.Context(), d.Plan.AutoScaling(g), size); err != nil {
		writeError(w, http.StatusConflict, err)
		return
	}
	d.board.bump()
	writeJSON(w, struct{}{})
}

func (d *daemon) getKubeconfig(w http.ResponseWriter, r *http.Request) {
	text, err := d.cluster.kubeconfig(r.Context())
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	writeJSON(w, struct{ Kubeconfig string }{string(text)})
}

// postShell connects the client with the machine's second serial line.
func (d *daemon) postShell(w http.ResponseWriter, r *http.Request) {
	line, err := d.host.shell(r.PathValue("id"))
	if err != nil {
		writeError(w, http.StatusConflict, err)
		return
	}
	defer func() { _ = line.Close() }()
	conn, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, http.StatusInternalServerError, err)
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: serial\r\n\r\n"); err != nil {
		return
	}
	copyBoth(buffered{conn, rest}, line)
}

// copyBoth copies in both directions until one side ends.
func copyBoth(a, b io.ReadWriter) {
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(b, a); done <- struct{}{} }()
	go func() { _, _ = io.Copy(a, b); done <- struct{}{} }()
	<-done
}

// LogOf returns the path of a machine's console or journal, which stays when the lab is down. An error if the machine
// has not written it.
func (h Home) LogOf(id, file string) (string, error) {
	path := filepath.Join(h.machine(id), file)
	if _, err := os.Stat(path); err != nil {
		return "", errors.Join(errors.New("the machine has written no log yet"), err)
	}
	return path, nil
}
