package main

import "github.com/urfave/cli/v2"

func lambdaCommand() *cli.Command {
	return &cli.Command{
		Name:        "lambda",
		Usage:       "examine the DNS function deployed on AWS",
		Subcommands: []*cli.Command{lambdaDoctorCommand()},
	}
}
