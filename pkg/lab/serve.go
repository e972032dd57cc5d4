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

// longPoll is how long an answer waits for news.
const longPoll = 20 * time.Second

// serve answers clients on the lab's socket.
func (d *Daemon) serve() (*wire, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", d.getStatus)
	mux.HandleFunc("POST /v1/down", d.postDown)
	mux.HandleFunc("POST /v1/machines/{id}/kill", d.postKill)
	mux.HandleFunc("POST /v1/machines/{id}/shell", d.postShell)
	mux.HandleFunc("POST /v1/groups/{name}/size/{size}", d.postSize)
	mux.HandleFunc("PUT /v1/groups/{name}/fault", d.putFault)
	mux.HandleFunc("GET /v1/kubeconfig", d.getKubeconfig)
	mux.HandleFunc("GET /v1/aws", d.getAWS)
	return d.home.newWire(socketFile, mux)
}

// failure is the body of an answer that is none.
type failure struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure{err.Error()}) // the client is gone
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// getStatus answers with the status; with ?after=N only once its revision is another than N.
func (d *Daemon) getStatus(w http.ResponseWriter, r *http.Request) {
	if after := r.FormValue("after"); after != "" {
		seen, err := strconv.ParseUint(after, 10, 64)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		d.board.after(r.Context(), seen, longPoll)
	}
	answer(w, d.status())
}

func (d *Daemon) postDown(w http.ResponseWriter, _ *http.Request) {
	answer(w, struct{}{})
	// The answer leaves before the end begins, which closes this connection too.
	_ = http.NewResponseController(w).Flush() // the client is gone
	d.down()
}

func (d *Daemon) postKill(w http.ResponseWriter, r *http.Request) {
	if err := d.host.kill(r.PathValue("id")); err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	answer(w, struct{}{})
}

// postSize changes how many machines a group keeps.
func (d *Daemon) postSize(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.PathValue("size"))
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	g, ok := d.plan.group(r.PathValue("name"))
	if !ok {
		refuse(w, http.StatusNotFound, fmt.Errorf("there is no group %q", r.PathValue("name")))
		return
	}
	if err := d.region.account.AutoScaling().SetDesired(g.Scaling, size); err != nil {
		refuse(w, http.StatusConflict, err)
		return
	}
	d.news()
	answer(w, struct{}{})
}

func (d *Daemon) getKubeconfig(w http.ResponseWriter, r *http.Request) {
	text, err := d.cluster.kubeconfig(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, struct{ Kubeconfig string }{string(text)})
}

// postShell turns the connection into the machine's second serial line.
func (d *Daemon) postShell(w http.ResponseWriter, r *http.Request) {
	line, err := d.host.shell(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusConflict, err)
		return
	}
	defer func() { _ = line.Close() }()
	conn, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: serial\r\n\r\n"); err != nil {
		return
	}
	join(buffered{conn, rest}, line)
}

// join copies both ways until one side ends.
func join(a, b io.ReadWriter) {
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(b, a); done <- struct{}{} }()
	go func() { _, _ = io.Copy(a, b); done <- struct{}{} }()
	<-done
}

// LogOf is where a machine's console or journal is; it stays when the lab is down.
func (h Home) LogOf(id, file string) (string, error) {
	path := filepath.Join(h.machine(id), file)
	if _, err := os.Stat(path); err != nil {
		return "", errors.Join(errors.New("the machine has said nothing"), err)
	}
	return path, nil
}
