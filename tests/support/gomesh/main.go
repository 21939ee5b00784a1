// Prints the fields of Istio's mesh configuration, from its published protobuf definition, in the format of the table
// by which the injector decodes it.
package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	mesh "istio.io/api/mesh/v1alpha1"
)

var wellKnown = map[protoreflect.FullName]string{
	"google.protobuf.Duration":    "duration",
	"google.protobuf.BoolValue":   "bool",
	"google.protobuf.Int32Value":  "int32",
	"google.protobuf.UInt32Value": "uint32",
	"google.protobuf.Int64Value":  "int64",
	"google.protobuf.UInt64Value": "uint64",
	"google.protobuf.DoubleValue": "double",
	"google.protobuf.StringValue": "string",
	"google.protobuf.Struct":      "any",
	"google.protobuf.Value":       "any",
	"google.protobuf.Any":         "any",
	"google.protobuf.Timestamp":   "string",
}

func kind(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		if known, ok := wellKnown[f.Message().FullName()]; ok {
			return known
		}
		return string(f.Message().FullName())
	case protoreflect.EnumKind:
		return string(f.Enum().FullName())
	default:
		return f.Kind().String()
	}
}

// presence returns "?" for a field whose zero value is written, and "" for other fields.
func presence(f protoreflect.FieldDescriptor) string {
	wrapper := f.Kind() == protoreflect.MessageKind && strings.HasSuffix(string(f.Message().FullName()), "Value") && wellKnown[f.Message().FullName()] != ""
	if !f.IsList() && !f.IsMap() && (wrapper || f.Kind() != protoreflect.MessageKind && f.HasPresence()) {
		return "?"
	}
	return ""
}

func main() {
	seen := map[protoreflect.FullName]bool{}
	queue := []protoreflect.MessageDescriptor{(&mesh.ProxyConfig{}).ProtoReflect().Descriptor(), (&mesh.MeshConfig{}).ProtoReflect().Descriptor()}
	enums := []protoreflect.EnumDescriptor{}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		if seen[m.FullName()] {
			continue
		}
		seen[m.FullName()] = true
		fmt.Println("message", m.FullName())
		for i := 0; i < m.Fields().Len(); i++ {
			f := m.Fields().Get(i)
			of, prefix := f, ""
			if f.IsMap() {
				of, prefix = f.MapValue(), "map "
			} else if f.IsList() {
				prefix = "list "
			}
			fmt.Printf("  %s %s%s%s\n", f.JSONName(), prefix, kind(of), presence(f))
			if of.Kind() == protoreflect.EnumKind && !seen[of.Enum().FullName()] {
				seen[of.Enum().FullName()] = true
				enums = append(enums, of.Enum())
			}
			if of.Kind() == protoreflect.MessageKind && wellKnown[of.Message().FullName()] == "" {
				queue = append(queue, of.Message())
			}
		}
	}
	for _, e := range enums {
		fmt.Println("enum", e.FullName())
		for i := 0; i < e.Values().Len(); i++ {
			fmt.Printf("  %s %d\n", e.Values().Get(i).Name(), e.Values().Get(i).Number())
		}
	}
}
