package data

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzManifest: a manifest that is accepted is the same when it is written again.
func FuzzManifest(f *testing.F) {
	text, err := json.Marshal(Manifest{Version: manifestVersion, Inputs: []string{"a", "é"}, ValFraction: 0.25, Seed: 1 << 63, Train: Part{Tokens: 1 << 40, SHA256: "ab"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"inputs":null,"skipped":{"binary":-1}} x`))
	f.Add([]byte(`{"version":2,"read":[{"format":"jsonl"}],"train":{"shards":[{"file":"x"}]}}`))
	f.Add([]byte(`{"version":3}`))
	f.Add([]byte(`{"version":1,"unknown":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Manifest
		if m.parse(data) != nil {
			return
		}
		if m.Version < 1 || m.Version > manifestVersion {
			t.Fatalf("version %d is accepted", m.Version)
		}
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var again Manifest
		if err := again.parse(text); err != nil {
			t.Fatal(err)
		}
		back, err := json.MarshalIndent(again, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), string(back)); diff != "" {
			t.Fatalf("the manifest changed:\n%s", diff)
		}
	})
}

// FuzzInclude: a malformed pattern is refused, however it is malformed, and another one
// matches a file by its name alone unless it has a slash.
func FuzzInclude(f *testing.F) {
	f.Add("*.go", "a/b.go")
	f.Add("a/[^x]?\\*", "a/yz*")
	f.Add("a/[", "a/b")
	f.Add("**/x/**/*", "x/a/b")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		found, err := newFinder(&PrepareOptions{Include: []string{pattern}, Out: "out"})
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(pattern)) {
				t.Fatalf("no pattern in %v", err)
			}
			return
		}
		matched := found.matches(name, name)
		if !strings.Contains(pattern, "/") && matched != found.matches(name, "deep/"+name) {
			t.Fatalf("%q matches %q: %v, in another folder %v", pattern, name, matched, !matched)
		}
	})
}
