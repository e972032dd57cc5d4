// Command floor does nothing: what it takes to start is what any program in Go takes.
package main

import "os"

func main() { _, _ = os.Stdout.WriteString("floor\n") }
