package main

import "github.com/urfave/cli/v2"

func lockCommand() *cli.Command {
	return &cli.Command{Name: "lock", Usage: "the components of the image, by digest"}
}
