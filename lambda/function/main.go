// Command function is the AWS Lambda function that keeps clusters' DNS records equal to their groups'
// members, by the messages of an SQS queue that EventBridge fills.
//
// Its rule: nothing but pkg/dns/function's handler, with Lambda's environment.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/function"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, err := function.Read(os.Getenv)
	if err == nil {
		var h *function.Handler
		if h, err = function.Connect(s, os.Stdout, log); err == nil {
			lambda.Start(h)
		}
	}
	fmt.Fprintln(os.Stderr, "hardtack-dns:", err)
	os.Exit(1)
}
