package main

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
)

// FuzzMadeWith: the account of a run is shown, or refused by the name of its file.
func FuzzMadeWith(f *testing.F) {
	f.Add([]byte(`{"build":{"go":"go1.27","simd":true},"plugins":[{"table":"optimizer","name":"adamw","version":"1","sha256":"ff"}]}`))
	f.Add([]byte(`{"plugins":[null]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := madeWith(text)
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

// FuzzSet: a setting of "plugins test" is the value that is written, or text; a declared
// string is never anything else.
func FuzzSet(f *testing.F) {
	for _, seed := range []string{"bits=4", "form=paper", `form="paper"`, "c=1e3", "c=inf", "c=1979-05-27", "c={a=1}", "c=1\nd=2", "c=[1", "form=12"} {
		f.Add(seed)
	}
	about := sdk.Description{Name: "a", Parameters: []sdk.Parameter{sdk.String("form", "", ""), sdk.Int("bits", 4, 2, 8, ""), sdk.Float("c", 1, 0, 2, "")}}
	f.Fuzz(func(t *testing.T, set string) {
		p := pluginTest{sets: []string{set}}
		for name, v := range p.settings(about) {
			if _, isText := v.(string); name == "form" && !isText {
				t.Fatalf("%q gives a %T", set, v)
			}
		}
		_, _ = about.Resolve(p.settings(about))
	})
}
