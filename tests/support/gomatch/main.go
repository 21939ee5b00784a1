// Matches names with Go's own path.Match: one JSON object a line on stdin, one a line on stdout.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path"
)

// Question is a pattern and a name.
type Question struct {
	Pattern string `json:"pattern"`
	Name    string `json:"name"`
}

// Answer is whether they match, or that the pattern is none.
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
		// Whoever asks waits for the answer.
		if err := out.Flush(); err != nil {
			panic(err)
		}
	}
}
