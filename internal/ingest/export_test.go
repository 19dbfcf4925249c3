package ingest

import (
	"cmp"
	"net/http"
	"slices"
)

// Operation is a path and method that the router serves.
type Operation struct {
	Method, Path string
	// Verb is empty for what is asked without a key.
	Verb Verb
}

// Operations are all that the router serves.
func Operations() []Operation {
	var list []Operation
	for at, r := range paths {
		path := "/v1/namespaces/{namespace}/" + at.kind
		if at.named {
			path += map[string]string{kindEvents: "/{webhookId}", kindEndpoints: "/{name}"}[at.kind]
		}
		if at.sub != "" {
			path += "/" + at.sub
		}
		for name, m := range map[string]method{http.MethodGet: r.get, http.MethodPost: r.post, http.MethodDelete: r.delete} {
			if m.do != nil {
				list = append(list, Operation{name, path, m.verb})
			}
		}
	}
	for path := range openPaths {
		list = append(list, Operation{http.MethodGet, path, ""})
	}
	slices.SortFunc(list, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method)) })
	return list
}
