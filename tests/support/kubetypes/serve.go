package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// Request is a document and the name of its type in the table. The strategic merge patch, if there is one, is applied
// to the document, which is JSON then.
type Request struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Patch string `json:"patch"`
}

// Answer is the document as YAML and as JSON, which has the fields in the type's order, or the error if it cannot be
// parsed.
type Answer struct {
	YAML  string `json:"yaml"`
	JSON  string `json:"json"`
	Error string `json:"error,omitempty"`
}

func serve(in io.Reader, to io.Writer) error {
	found, err := reachable()
	if err != nil {
		return err
	}
	decoder, out := json.NewDecoder(in), bufio.NewWriter(to)
	encoder := json.NewEncoder(out)
	for {
		var request Request
		if err := decoder.Decode(&request); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(answer(found.types[request.Type], request)); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// answer parses a document as the type and serializes it, as kube-inject does with sigs.k8s.io/yaml.
func answer(of reflect.Type, request Request) Answer {
	if of == nil {
		return Answer{Error: fmt.Sprintf("unknown type %q", request.Type)}
	}
	object := reflect.New(of).Interface()
	if request.Patch != "" {
		patched, err := strategicpatch.StrategicMergePatch([]byte(request.Text), []byte(request.Patch), object)
		if err != nil {
			return Answer{Error: err.Error()}
		}
		request.Text = string(patched)
	}
	if err := yaml.Unmarshal([]byte(request.Text), object); err != nil {
		return Answer{Error: err.Error()}
	}
	asJSON, err := json.Marshal(object)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	asYAML, err := yaml.Marshal(object)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return Answer{YAML: string(asYAML), JSON: string(asJSON)}
}

// modules returns the Go modules that define the types, with their versions.
func modules() []string {
	var found []string
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasPrefix(module.Path, "k8s.io/api") || module.Path == "github.com/openshift/api" {
			found = append(found, module.Path+" "+module.Version)
		}
	}
	return found
}
