package controllers

import (
	"encoding/json"
	"fmt"
)

// converted gives an object of the API as its apply configuration: the two have one JSON
// form, in which what is unset is left out.
func converted[A any](from any) *A {
	b, err := json.Marshal(from)
	if err == nil {
		into := new(A)
		if err = json.Unmarshal(b, into); err == nil {
			return into
		}
	}
	panic(fmt.Sprintf("%T has no apply configuration of its form: %v", from, err))
}
