// Metadata is the metadata service of a test container: it refuses user data once with each status of its arguments, and
// then has that of the file that comes first.
package main

import (
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds/imdstest"
)

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var faults []imdstest.Fault
	for _, word := range os.Args[2:] {
		status, err := strconv.Atoi(word)
		if err != nil {
			log.Fatal(err)
		}
		faults = append(faults, imdstest.Fault{Status: status})
	}
	service := &imdstest.Service{UserData: data, InstanceID: "i-0123456789abcdef0", Faults: map[string][]imdstest.Fault{"/latest/user-data": faults}}
	l, err := net.Listen("tcp", "127.0.0.1:8169") //nolint:noctx // it serves until it is killed
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal((&http.Server{Handler: service, ReadHeaderTimeout: time.Second}).Serve(l))
}
