package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// typeOf reads apiVersion and kind. Both come out empty for what does not mean to
// be a Kubernetes object, such as a chart's values.
func typeOf(obj map[string]any) (version, kind string, bad *fault) {
	if bad = misspelt(obj); bad != nil {
		return "", "", bad
	}
	_, hasVersion := obj["apiVersion"]
	_, hasKind := obj["kind"]
	_, hasMeta := obj["metadata"]
	if !hasVersion && !hasKind && !hasMeta {
		return "", "", nil
	}
	version, _ = obj["apiVersion"].(string)
	kind, _ = obj["kind"].(string)
	switch {
	case version == "":
		return "", "", &fault{"apiVersion", "required, as text; Doorstep's kinds have " + apiVersion}
	case kind == "":
		return "", "", &fault{"kind", "required, as text; Doorstep's kinds are WebhookEndpoint, RetryPolicy and DeliveryPool"}
	}
	if bad = wrongType(version, kind); bad != nil {
		return "", "", bad
	}
	return version, kind, nil
}

// wrongType finds what means to be one of the kinds that are read and is not.
func wrongType(version, kind string) *fault {
	group, _, grouped := strings.Cut(version, "/")
	own, core := ownKind(kind), coreKind(kind)
	switch {
	case group == "doorstep.dev" && kinds[version+"/"+strings.TrimSuffix(kind, "List")] == nil:
		if version != apiVersion {
			return &fault{"apiVersion", "this release reads doorstep.dev/v1alpha1 only; write that"}
		}
		return &fault{"kind", "no kind of doorstep.dev/v1alpha1; write WebhookEndpoint, RetryPolicy or DeliveryPool"}
	case own != "" && version != apiVersion && (own == "WebhookEndpoint" || !strings.Contains(group, ".") || strings.Contains(strings.ToLower(group), "doorstep")):
		return &fault{"apiVersion", "a " + own + " has apiVersion " + apiVersion + "; write that"}
	case core != "" && version != "v1" && (!grouped || group == "core"):
		return &fault{"apiVersion", "a " + core + " has apiVersion v1; write that"}
	case core != "" && version == "v1" && strings.TrimSuffix(kind, "List") != core:
		return &fault{"kind", "no kind of v1; write " + core}
	}
	return nil
}

// ownKind is the kind of Doorstep that is meant by kind, whatever its case; "" if
// none is.
func ownKind(kind string) string {
	return meant(kind, "WebhookEndpoint", "RetryPolicy", "DeliveryPool")
}

func coreKind(kind string) string { return meant(kind, "Secret", "ConfigMap") }

func meant(kind string, names ...string) string {
	for _, name := range names {
		if strings.EqualFold(kind, name) || strings.EqualFold(kind, name+"List") {
			return name
		}
	}
	return ""
}

// kindName is how every kind of Kubernetes is spelt (DNS labels in CamelCase).
var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// shownKind is a kind as a problem may show it: "" for one that can't be one, and so
// may be a value that the next line ran into.
func shownKind(kind string) string {
	if kindName.MatchString(kind) {
		return kind
	}
	return ""
}

// misspelt finds an apiVersion or a kind in letters of another case, in what means
// to be a Kubernetes object: it has both, or metadata, or a value of Doorstep's.
func misspelt(obj map[string]any) *fault {
	versionKey, version := spelt(obj, "apiVersion")
	kindKey, kind := spelt(obj, "kind")
	metaKey, _ := spelt(obj, "metadata")
	if metaKey == "" && (versionKey == "" || kindKey == "") && ownKind(kind) == "" && !strings.HasPrefix(version, "doorstep.dev/") {
		return nil
	}
	switch {
	case versionKey != "" && versionKey != "apiVersion":
		return &fault{versionKey, "the key is spelt apiVersion; write that"}
	case kindKey != "" && kindKey != "kind":
		return &fault{kindKey, "the key is spelt kind; write that"}
	}
	return nil
}

// spelt finds a key as it is written, rather in its proper case, with its value if
// that is a text.
func spelt(obj map[string]any, name string) (key, value string) {
	if v, ok := obj[name]; ok {
		value, _ = v.(string)
		return name, value
	}
	for _, key := range slices.Sorted(maps.Keys(obj)) {
		if strings.EqualFold(key, name) {
			value, _ = obj[key].(string)
			return key, value
		}
	}
	return "", ""
}
