// Prints the table of Kubernetes' types by which the injector parses and serializes documents. Also parses and
// serializes documents by the Go types themselves, for tests that compare both results.
package main

import (
	"fmt"
	"os"
)

const usage = `usage: kubetypes table | serve
  table  print the table: each struct that a workload reaches, with its fields in the order of the type
  serve  read and write documents: one JSON request a line on stdin, one answer a line on stdout
`

func main() {
	var err error
	switch command := append(os.Args[1:], "")[0]; command {
	case "table":
		err = printTable(os.Stdout)
	case "serve":
		err = serve(os.Stdin, os.Stdout)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
