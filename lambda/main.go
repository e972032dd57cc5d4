// Command lambda is the AWS Lambda function that keeps clusters' DNS records equal to their groups'
// members, by the messages of an SQS queue that EventBridge fills.
//
// Its rule: an event is a poke. What it says only chooses the clusters to look at, each once for all
// messages of a batch; one that cannot be read is a poke for every cluster of the allow-list, and one
// for anything else is a poke for none.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, err := readSettings(os.Getenv)
	if err == nil {
		var h *handler
		if h, err = connect(s, os.Stdout, log); err == nil {
			lambda.Start(h)
		}
	}
	fmt.Fprintln(os.Stderr, "hardtack-dns:", err)
	os.Exit(1)
}
