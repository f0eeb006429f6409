package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEncodeArrays(t *testing.T) {
	const text = `
[[quantizer.overrides]]
match = ["a", "b.*"]
role = "weights"
plugin = "absmax"
sha256 = ""
bits = 8

[[quantizer.overrides]]
match = ["c"]
role = "both"
plugin = "none"

[optimizer]
plugin = "muon"
sha256 = ""
refresh_delay = 0

[optimizer.rest]
plugin = "adamw"
sha256 = ""
beta1 = 0.8
refresh_delay = 0

[[optimizer.groups]]
match = ["*"]
roles = ["head"]
rate = 0.5
weight_decay = 0.0
plugin = "sgd"
sha256 = ""

[[optimizer.groups]]
match = ["head"]
roles = ["matrix", "vector", "embedding", "head"]
rate = 1.0
refresh_delay = 2
`
	c := parse(t, small+text)
	got, err := c.Encode()
	if err != nil || !strings.Contains(string(got), text) {
		t.Errorf("%v: not written as it was read:\n%s", err, got)
	}
	roundTrip(t, c)
	other := parse(t, small+text, "quantizer.overrides[0].bits=3", "optimizer.groups[1].rate=0.1", `optimizer.groups[2]={match="a"}`)
	diffs, err := Diff(c, other)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range diffs {
		list = append(list, fmt.Sprintf("%s: %s, %s", d.Key, d.A, d.B))
	}
	want := []string{
		"quantizer.overrides[0].bits: 8, 3", "optimizer.groups[1].rate: 1.0, 0.1", `optimizer.groups[2].match: , ["a"]`,
		`optimizer.groups[2].roles: , ["matrix", "vector", "embedding", "head"]`, "optimizer.groups[2].rate: , 1.0",
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSetByIndex(t *testing.T) {
	const text = "[[quantizer.overrides]]\nmatch = \"a\"\nplugin = \"absmax\"\nbits = 8\n"
	c := parse(t, small+text, "quantizer.overrides[0].bits=3", ` "quantizer" . overrides [1] . match = "x[0]=y" # new`,
		`quantizer.overrides[1].plugin="none"`, `quantizer.overrides[2]={match="c", plugin="lsq"}`, `quantizer.overrides[0]."a[b]"="=."`)
	q := c.Quantizer
	if len(q.Overrides) != 3 || q.Overrides[1].Match[0] != "x[0]=y" || q.Overrides[1].Plugin != nil || q.Overrides[2].Plugin.Name != "lsq" {
		t.Fatalf("%+v", q.Overrides)
	}
	if diff := cmp.Diff(map[string]any{"a[b]": "=.", "bits": int64(3)}, q.Overrides[0].Plugin.Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, want := range map[string]string{
		"quantizer.overrides[0].bits": "--set quantizer.overrides[0].bits=3: quantizer.overrides[0].bits: no",
		"quantizer.overrides[0]":      "dir/demo.toml:14: quantizer.overrides[0]: no",
		"quantizer.overrides[2].bits": `--set quantizer.overrides[2]={match="c", plugin="lsq"}: quantizer.overrides[2].bits: no`,
	} {
		if got := c.ErrorAt(key, "no").Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	c = parse(t, small+text, `quantizer.overrides=[{match="b", plugin="none"}]`, `quantizer.overrides[0].match="c"`)
	if o := c.Quantizer.Overrides; len(o) != 1 || o[0].Match[0] != "c" || o[0].Plugin != nil {
		t.Errorf("%+v", o)
	}
	parse(t, small+text, "quantizer.overrides=[]", "optimizer.groups=[]")
	c = parse(t, small+text, "quantizer.overrides=[]", `quantizer.overrides[0]={match="z", plugin="none"}`)
	if o := c.Quantizer.Overrides; len(o) != 1 || o[0].Match[0] != "z" {
		t.Errorf("%+v", o)
	}
}

// The examples of the reference are right.
func TestSamples(t *testing.T) {
	for _, table := range new(Config).tables() {
		if table.list && table.sample == "" {
			t.Errorf("[[%s]] has no sample", table.name)
		}
		base := small
		if strings.Contains(table.sample, "[data]") {
			base = strings.Replace(small, "[data]\ntrain = \"a.tok\"\nvalidation = \"b.tok\"\n", "", 1)
		}
		roundTrip(t, parse(t, base+table.sample))
	}
}
