package main

import "github.com/urfave/cli/v2"

func completeCommand() *cli.Command {
	return &cli.Command{
		Name:  "complete",
		Usage: "print a cluster's complete configuration: every flag and field of every component, and the origin of each value",
		Flags: []cli.Flag{exampleFlag()},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			complete, err := readExample(c)
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, complete)
			}
			text, err := complete.YAML()
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(text)
			return err
		},
	}
}
