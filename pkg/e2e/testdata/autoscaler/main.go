// Starts upstream's cluster-autoscaler in a lab, with the arguments that the manifest cannot have: where AWS is there, and shorter times.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

func main() {
	const upstream = "/upstream"
	args := slices.Concat(os.Args, strings.Fields(os.Getenv("LAB_ARGUMENTS")))
	fmt.Fprintf(os.Stderr, "starting %s: %v\n", upstream, syscall.Exec(upstream, args, os.Environ()))
	os.Exit(1)
}
