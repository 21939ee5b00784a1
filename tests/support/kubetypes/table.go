package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	openshiftv1 "github.com/openshift/api/apps/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// roots are the kinds that kube-inject decodes. A kind has one type, whatever the document's apiVersion.
var roots = []any{
	corev1.List{},
	corev1.Pod{},
	corev1.ReplicationController{},
	appsv1.DaemonSet{},
	appsv1.Deployment{},
	appsv1.ReplicaSet{},
	appsv1.StatefulSet{},
	batchv1.CronJob{},
	batchv1.Job{},
	openshiftv1.DeploymentConfig{},
}

// scalars are the types that have their own JSON encoding, with their names in the table.
var scalars = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "intOrString",
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.FieldsV1]():      "raw",
	reflect.TypeFor[runtime.RawExtension](): "raw",
}

// packages are the prefixes of type names in the table, by package path. The last element of each path is the version
// v1, which does not distinguish packages.
var packages = map[string]string{
	"k8s.io/api/core/v1":                   "core",
	"k8s.io/api/apps/v1":                   "apps",
	"k8s.io/api/batch/v1":                  "batch",
	"k8s.io/apimachinery/pkg/apis/meta/v1": "meta",
	"github.com/openshift/api/apps/v1":     "openshift",
}

type field struct {
	key  string
	kind string
	// omit is the option of the JSON tag: empty, "omitempty" or "omitzero".
	omit string
	// merge is how a strategic merge patch treats a list: empty to replace it, "merge", or "merge=" and the key of the
	// list's elements.
	merge string
}

type table struct {
	names []string
	types map[string]reflect.Type
}

// reachable returns all structs that the roots contain, directly or in fields of fields, sorted by name.
func reachable() (*table, error) {
	found := &table{types: map[string]reflect.Type{}}
	for _, root := range roots {
		if err := found.add(reflect.TypeOf(root)); err != nil {
			return nil, err
		}
	}
	slices.Sort(found.names)
	return found, nil
}

func (t *table) add(of reflect.Type) error {
	name, err := nameOf(of)
	if err != nil || t.types[name] != nil {
		return err
	}
	t.names, t.types[name] = append(t.names, name), of
	return each(of, func(_ field, in reflect.StructField) error {
		inner := in.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		if inner.Kind() != reflect.Struct || scalars[inner] != "" {
			return nil
		}
		return t.add(inner)
	})
}

// each calls visit for each field of a struct in the order in which encoding/json writes the fields. The fields of an
// embedded struct are in its place.
func each(of reflect.Type, visit func(field, reflect.StructField) error) error {
	for at := range of.NumField() {
		in := of.Field(at)
		tag := strings.Split(in.Tag.Get("json"), ",")
		if in.Anonymous && tag[0] == "" {
			if err := each(in.Type, visit); err != nil {
				return err
			}
			continue
		}
		if tag[0] == "" || tag[0] == "-" {
			return fmt.Errorf("%v.%s: no name in JSON", of, in.Name)
		}
		kind, err := kindOf(in.Type)
		if err != nil {
			return fmt.Errorf("%v.%s: %w", of, in.Name, err)
		}
		omit := ""
		for _, option := range tag[1:] {
			switch option {
			case "omitempty", "omitzero":
				// A field may have both options. Only a struct needs omitzero, because omitempty omits no struct.
				if omit == "" || in.Type.Kind() == reflect.Struct {
					omit = option
				}
			default:
				return fmt.Errorf("%v.%s: option %q", of, in.Name, option)
			}
		}
		if omit == "omitempty" && in.Type.Kind() == reflect.Struct {
			omit = ""
		}
		if err := visit(field{tag[0], kind, omit, mergeOf(in)}, in); err != nil {
			return err
		}
	}
	return nil
}

func mergeOf(in reflect.StructField) string {
	if !slices.Contains(strings.Split(in.Tag.Get("patchStrategy"), ","), "merge") {
		return ""
	}
	if key := in.Tag.Get("patchMergeKey"); key != "" {
		return "merge=" + key
	}
	return "merge"
}

func nameOf(of reflect.Type) (string, error) {
	prefix := packages[of.PkgPath()]
	if prefix == "" {
		return "", fmt.Errorf("%v: its package %s has no name here", of, of.PkgPath())
	}
	return prefix + "." + of.Name(), nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// kindOf returns the name of a type in the table, in Go's notation.
func kindOf(of reflect.Type) (string, error) {
	if name := scalars[of]; name != "" {
		return name, nil
	}
	inner := func(prefix string) (string, error) {
		name, err := kindOf(of.Elem())
		return prefix + name, err
	}
	switch kind := of.Kind(); kind {
	case reflect.Pointer:
		return inner("*")
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "", fmt.Errorf("bytes are not supported")
		}
		return inner("[]")
	case reflect.Map:
		if of.Key().Kind() != reflect.String {
			return "", fmt.Errorf("a key of %v is not supported", of.Key())
		}
		return inner("map[string]")
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		return kind.String(), nil
	case reflect.Struct:
		if of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler) {
			return "", fmt.Errorf("%v encodes itself", of)
		}
		return nameOf(of)
	default:
		return "", fmt.Errorf("%v is not supported", of)
	}
}

func printTable(to io.Writer) error {
	found, err := reachable()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(to)
	fmt.Fprintln(out, "# Structs that workloads reach, with their fields in the order of the Go types: key, type, what is omitted, how lists are merged.")
	fmt.Fprintln(out, "# Generated by tests/support/kubetypes (`make types`); do not edit.")
	for _, module := range modules() {
		fmt.Fprintln(out, "#", module)
	}
	for _, name := range found.names {
		fmt.Fprintf(out, "\n%s\n", name)
		err := each(found.types[name], func(of field, _ reflect.StructField) error {
			_, err := fmt.Fprintln(out, "  "+strings.Join(strings.Fields(of.key+" "+of.kind+" "+of.omit+" "+of.merge), " "))
			return err
		})
		if err != nil {
			return err
		}
	}
	return out.Flush()
}
