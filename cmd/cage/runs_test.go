package main

import (
	"strings"
	"testing"
)

// FuzzMadeWith checks that provenance.json gives rows of two columns, or an error with its name.
func FuzzMadeWith(f *testing.F) {
	f.Add([]byte(`{"build":{"go":"go1.27","simd":true},"plugins":[{"table":"optimizer","name":"adamw","version":"1","sha256":"ff"}]}`))
	f.Add([]byte(`{"plugins":[null]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := provenanceRows(text)
		if err != nil {
			if !strings.Contains(err.Error(), "provenance.json") {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		for _, r := range rows {
			if len(r) != 2 {
				t.Fatalf("a row of %d columns: %q", len(r), r)
			}
		}
	})
}
