// Reads patterns and names from stdin, matches them with Go's path.Match and writes the results to stdout: one JSON
// object per line.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path"
)

// Question is a pattern and a name to match with it.
type Question struct {
	Pattern string `json:"pattern"`
	Name    string `json:"name"`
}

// Answer reports whether the name matches, and whether the pattern is invalid (Bad).
type Answer struct {
	Matched bool `json:"matched"`
	Bad     bool `json:"bad"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	encoder := json.NewEncoder(out)
	for decoder.More() {
		var question Question
		if err := decoder.Decode(&question); err != nil {
			panic(err)
		}
		matched, err := path.Match(question.Pattern, question.Name)
		if err := encoder.Encode(Answer{Matched: matched, Bad: err != nil}); err != nil {
			panic(err)
		}
		// The test waits for each answer before it sends the next question.
		if err := out.Flush(); err != nil {
			panic(err)
		}
	}
}
