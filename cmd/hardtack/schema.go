package main

import (
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name:  "schema",
		Usage: "print the JSON Schema of cluster documents, by which editors complete and check them",
		Flags: []cli.Flag{&cli.StringFlag{Name: "kubernetes", Value: spec.DefaultVersion, Usage: "the `VERSION` of the documents, a minor version of Kubernetes: its flags and fields are known"}},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			data, err := spec.JSONSchema(c.String("kubernetes"))
			if err != nil {
				return usagef("--kubernetes: %w", err)
			}
			return printDocument(c, data)
		},
	}
}

func exampleCommand() *cli.Command {
	return &cli.Command{
		Name:  "example",
		Usage: "print a cluster document with every field, each explained by a comment; a document of one's own needs few of them",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			data, err := spec.Example()
			if err != nil {
				return err
			}
			return printDocument(c, data)
		},
	}
}
