package manifest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// publicFields are the names that a problem of a Secret may show. Any other name in
// its manifest may be a value that a slip of the keyboard made a key.
var publicFields = strings.Fields("apiVersion kind metadata data stringData type immutable " +
	"name generateName namespace labels annotations uid resourceVersion generation creationTimestamp " +
	"deletionTimestamp deletionGracePeriodSeconds finalizers ownerReferences managedFields selfLink")

// publicField cuts the path of a field of a Secret before the first name that is not
// known to be one. The line of the problem tells the place.
func publicField(field string) string {
	out := ""
	for _, step := range splitPath(field) {
		if !slices.ContainsFunc(publicFields, func(name string) bool { return strings.EqualFold(name, step) }) {
			break
		}
		out = strings.TrimPrefix(out+"."+step, ".")
	}
	return out
}

// validateSecret holds a Secret to what an API server would refuse. Nothing of its
// values is in a fault, but names of its keys are: see publicField.
func validateSecret(obj map[string]any) []fault {
	faults := metaFaults(obj, nil)
	faults = append(faults, unknownFields(obj, "data", "stringData", "type", "immutable")...)
	size := 0
	for key, value := range stringMap(obj, "data", &faults) {
		raw, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			faults = append(faults, fault{"data[" + key + "]", "an entry must be base64; write plain text under stringData instead"})
		}
		size += len(raw)
	}
	for _, value := range stringMap(obj, "stringData", &faults) {
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		faults = append(faults, fault{"data", fmt.Sprintf("holds %d bytes; at most %d are allowed", size, corev1.MaxSecretSize)})
	}
	return append(faults, typeFaults(obj)...)
}

// validateConfigMap does the same for a ConfigMap.
func validateConfigMap(obj map[string]any) []fault {
	faults := metaFaults(obj, nil)
	faults = append(faults, unknownFields(obj, "data", "binaryData", "immutable")...)
	stringMap(obj, "data", &faults)
	for key, value := range stringMap(obj, "binaryData", &faults) {
		if _, err := base64.StdEncoding.DecodeString(value); err != nil {
			faults = append(faults, fault{"binaryData[" + key + "]", "an entry must be base64"})
		}
	}
	return append(faults, typeFaults(obj)...)
}

func typeFaults(obj map[string]any) []fault {
	var faults []fault
	if v, ok := obj["type"]; ok {
		if _, ok := v.(string); !ok {
			faults = append(faults, fault{"type", "must be a string"})
		}
	}
	if v, ok := obj["immutable"]; ok && v != nil {
		if _, ok := v.(bool); !ok {
			faults = append(faults, fault{"immutable", "must be a boolean"})
		}
	}
	return faults
}

// unknownFields names every member of obj that its kind does not have.
func unknownFields(obj map[string]any, known ...string) []fault {
	var faults []fault
	for _, key := range slices.Sorted(maps.Keys(obj)) {
		switch key {
		case "apiVersion", "kind", "metadata":
			continue
		}
		if !slices.Contains(known, key) {
			faults = append(faults, unknownField(key))
		}
	}
	return faults
}

// stringMap reads a map of strings by valid keys; what is no such entry is a fault.
func stringMap(obj map[string]any, name string, faults *[]fault) map[string]string {
	if obj[name] == nil {
		delete(obj, name)
		return nil
	}
	in, ok := obj[name].(map[string]any)
	if !ok {
		*faults = append(*faults, fault{name, "must be a map of names to texts"})
		return nil
	}
	out := make(map[string]string, len(in))
	for _, key := range slices.Sorted(maps.Keys(in)) {
		for _, message := range validation.IsConfigMapKey(key) {
			*faults = append(*faults, fault{name + "[" + key + "]", message})
		}
		value, ok := in[key].(string)
		if !ok {
			*faults = append(*faults, fault{name + "[" + key + "]", "an entry must be a text; put quotes around a number or a boolean"})
			continue
		}
		out[key] = value
	}
	return out
}
