package ingest

import (
	_ "embed"
	"net/http"
	"strconv"
	"sync"

	"sigs.k8s.io/yaml"
)

// openAPISource describes the API (OpenAPI 3.1). It is written by hand, and held to the handlers by a test.
//
//go:embed openapi.yaml
var openAPISource []byte

// openAPI is the description as it is served.
var openAPI = sync.OnceValues(func() ([]byte, error) { return yaml.YAMLToJSON(openAPISource) })

// describe gives the API's description. It holds nothing of this installation, and needs no key.
func (s *Server) describe(w http.ResponseWriter) *Problem {
	doc, err := openAPI()
	if err != nil { // a defect of this package, which its tests would show
		return newProblem(http.StatusInternalServerError, "description-broken", "", "The description can't be read.")
	}
	h := w.Header()
	h.Set("Content-Type", mediaJSON)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(doc)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(doc)
	return nil
}
