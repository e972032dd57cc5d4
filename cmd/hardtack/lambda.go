package main

import "github.com/urfave/cli/v2"

func lambdaCommand() *cli.Command {
	return &cli.Command{
		Name:        "lambda",
		Usage:       "look after the DNS function that is deployed on AWS",
		Subcommands: []*cli.Command{lambdaDoctorCommand()},
	}
}
