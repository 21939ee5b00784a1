// Renders templates with Go's text/template and, on request, sprig's functions and Kubernetes' YAML: reads one JSON request per line from
// stdin, and writes one JSON response per line to stdout.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

// Request is a template with its data, which is decoded into untyped values.
type Request struct {
	Text  string          `json:"text"`
	Left  string          `json:"left"`
	Right string          `json:"right"`
	Sprig bool            `json:"sprig"`
	Data  json.RawMessage `json:"data"`
}

// Answer is the output of a template, and the error of parsing or executing it.
type Answer struct {
	Out     string `json:"out"`
	Parse   string `json:"parse,omitempty"`
	Execute string `json:"execute,omitempty"`
}

func toYaml(value any) (string, error) {
	out, err := yaml.Marshal(value)
	return string(out), err
}

func answer(request Request) Answer {
	empty := template.New("test").Delims(request.Left, request.Right)
	if request.Sprig {
		empty = empty.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{"toYaml": toYaml})
	}
	parsed, err := empty.Parse(request.Text)
	if err != nil {
		return Answer{Parse: err.Error()}
	}
	var data any
	if err := json.Unmarshal(request.Data, &data); err != nil {
		return Answer{Parse: err.Error()}
	}
	var out strings.Builder
	if err := parsed.Execute(&out, data); err != nil {
		return Answer{Out: out.String(), Execute: err.Error()}
	}
	return Answer{Out: out.String()}
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	decoder := json.NewDecoder(in)
	encoder := json.NewEncoder(out)
	for decoder.More() {
		var request Request
		if err := decoder.Decode(&request); err != nil {
			panic(err)
		}
		if err := encoder.Encode(answer(request)); err != nil {
			panic(err)
		}
		// The client waits for this answer before it sends the next request.
		if err := out.Flush(); err != nil {
			panic(err)
		}
	}
}
