package config

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
)

// TestReservedNames checks that no plugin may declare a parameter with the name of a key or table
// that this package reads itself.
func TestReservedNames(t *testing.T) {
	for _, table := range new(Config).pluginTables() {
		for _, name := range table.names() {
			plugin := sdk.Description{Name: "p", Parameters: []sdk.Parameter{sdk.Bool(name, true, "")}}
			if plugin.Check() == nil {
				t.Errorf("a plugin may have the parameter %s, which is the host's key in %s", name,
					table.title())
			}
		}
	}
}

func TestQuantizerOverrides(t *testing.T) {
	c := parse(t, small+`[quantizer]
plugin = "quest"
bits = 4
[[quantizer.overrides]]
match = "layers.0.*"
plugin = "absmax"
bits = 8
[[quantizer.overrides]]
match = ["layers.0.mlp.*", "layers.1.attn.qkv.input"]
role = "activations"
plugin = "none"
bits = 3
[[quantizer.overrides]]
role = "weights"
match = "*.out"
plugin = "lsq"
`)
	q := c.Quantizer
	want := []Override{
		{Table: "quantizer.overrides[0]", Match: []string{"layers.0.*"}, Role: "both",
			Plugin: &Plugin{Table: "quantizer.overrides[0]", Name: "absmax",
				Params: map[string]any{"bits": int64(8)}}},
		{Table: "quantizer.overrides[1]", Match: []string{"layers.0.mlp.*", "layers.1.attn.qkv.input"},
			Role: "activations"},
		{Table: "quantizer.overrides[2]", Match: []string{"*.out"}, Role: "weights",
			Plugin: &Plugin{Table: "quantizer.overrides[2]", Name: "lsq"}},
	}
	if diff := cmp.Diff(want, q.Overrides); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		role, name string
		want       *Plugin
	}{
		{RoleWeights, "layers.0.attn.qkv", q.Overrides[0].Plugin},
		{RoleWeights, "layers.0.attn.out", q.Overrides[2].Plugin}, // the last match applies
		{RoleActivations, "layers.0.attn.out", q.Overrides[0].Plugin},
		{RoleWeights, "layers.0.mlp.w1", q.Overrides[0].Plugin}, // overrides[1] is for activations
		{RoleActivations, "layers.0.mlp.input", nil},
		{RoleActivations, "layers.1.attn.qkv.input", nil},
		{RoleActivations, "layers.1.mlp.input", q.Activations},
		{RoleWeights, "layers.1.mlp.w1", q.Weights},
	} {
		if got := q.For(c.role, c.name); got != c.want {
			t.Errorf("%s of %s: %+v, want %+v", c.role, c.name, got, c.want)
		}
	}
	if o := q.Override(RoleWeights, "layers.1.mlp.w1"); o != nil {
		t.Errorf("override %s decides about a weight that none matches", o.Table)
	}
	if got := len(q.Plugins()); got != 4 {
		t.Errorf("%d plugins, want 4", got)
	}
	if got, want := c.ErrorAt(q.Overrides[1].Table, "no effect").
		Error(), "dir/demo.toml:21: quantizer.overrides[1]: no effect"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := c.ErrorAt(q.Overrides[0].Plugin.Path("bits"), "odd").
		Error(), "dir/demo.toml:20: quantizer.overrides[0].bits: odd"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestBackwardQuantizers checks that the tables of the backward pass have no default and do not
// inherit from [quantizer].
func TestBackwardQuantizers(t *testing.T) {
	plain := parse(t, small+"[quantizer]\nplugin = \"quest\"\n")
	if q := plain.Quantizer; q.Gradients != nil || q.Backward != nil {
		t.Errorf("without their tables: %+v", q)
	}
	c := parse(t, small+`[quantizer]
plugin = "quest"
[quantizer.gradients]
plugin = "mxfp4"
rotation = "32"
[[quantizer.overrides]]
match = "layers.1.*"
role = "backward"
plugin = "absmax"
[[quantizer.overrides]]
match = "layers.0.*"
plugin = "none"
`)
	q := c.Quantizer
	if q.For(RoleGradients, "layers.0.mlp.w1") != q.Gradients ||
		q.For(RoleBackward, "layers.0.mlp.w1") != nil ||
		q.For(RoleBackward, "layers.1.mlp.input") != q.Overrides[0].Plugin ||
		q.For(RoleWeights, "layers.1.mlp.w1") != q.Weights {
		t.Errorf("%+v", q)
	}
	forward := q.Forward()
	if forward.Gradients != nil || forward.Backward != nil || forward.Weights != q.Weights ||
		len(forward.Overrides) != 1 || len(q.Overrides) != 2 {
		t.Errorf("forward alone: %+v", forward)
	}
	if plain.Fingerprint() == c.Fingerprint() {
		t.Error("the fingerprint is that without them")
	}
}

func TestOptimizerPartition(t *testing.T) {
	c := parse(t, small+`[optimizer]
plugin = "muon"
momentum = 0.95
rest = "adamw"
[[optimizer.groups]]
match = ["embedding", "head"]
plugin = "sgd"
momentum = 0.9
rate = 0.5
weight_decay = 0
[[optimizer.groups]]
roles = ["head", "vector"]
match = "*norm*"
rate = 2
`, "optimizer.rest.beta1=0.8", `optimizer.groups[2]={roles="matrix"}`, "optimizer.groups[2].weight_decay=0.3")
	zero, some := 0.0, 0.3
	want := Optimizer{
		Plugin: Plugin{Table: "optimizer", Name: "muon", Params: map[string]any{"momentum": 0.95}},
		Rest:   &Plugin{Table: "optimizer.rest", Name: "adamw", Params: map[string]any{"beta1": 0.8}},
		Groups: []Group{
			{"optimizer.groups[0]", []string{"embedding", "head"}, tensorRoles,
				&Plugin{Table: "optimizer.groups[0]", Name: "sgd", Params: map[string]any{"momentum": 0.9}},
				0.5, &zero, nil},
			{"optimizer.groups[1]", []string{"*norm*"}, []string{"head", "vector"}, nil, 2, nil, nil},
			{"optimizer.groups[2]", []string{"*"}, []string{"matrix"}, nil, 1, &some, nil},
		},
	}
	if diff := cmp.Diff(want, c.Optimizer); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	o := c.Optimizer
	for _, c := range []struct {
		role, name string
		want       *Group
	}{
		{"head", "head", &o.Groups[0]}, // the first match applies
		{"embedding", "embedding", &o.Groups[0]},
		{"vector", "layers.0.attn_norm", &o.Groups[1]},
		{"vector", "bias", nil}, // name and role must both match
		{"matrix", "layers.0.attn_norm", &o.Groups[2]},
		{"matrix", "layers.0.attn.qkv", &o.Groups[2]},
	} {
		if got := o.Group(c.role, c.name); got != c.want {
			t.Errorf("%s %s: group %+v, want %+v", c.role, c.name, got, c.want)
		}
	}
	if got := len(o.Plugins()); got != 3 {
		t.Errorf("%d plugins, want 3", got)
	}
}

// TestRefreshDelay checks that each optimizer table has a delay, and that a group can have its own.
// It is not a parameter of the plugin. Its default does not change the fingerprint.
func TestRefreshDelay(t *testing.T) {
	c := parse(t, small+`[optimizer]
plugin = "soap"
refresh_delay = 3
[optimizer.rest]
refresh_delay = 1
[[optimizer.groups]]
match = "head"
plugin = "shampoo"
[[optimizer.groups]]
match = "embedding"
plugin = "shampoo"
refresh_delay = 7
[[optimizer.groups]]
roles = "vector"
refresh_delay = 0
[[optimizer.groups]]
match = "*.out"
rate = 2
`)
	roundTrip(t, c)
	o := &c.Optimizer
	for _, want := range []struct {
		group *Group
		p     *Plugin
		delay int
		key   string
	}{
		{nil, &o.Plugin, 3, "optimizer.refresh_delay"},
		{nil, o.Rest, 1, "optimizer.rest.refresh_delay"},
		{&o.Groups[0], o.Groups[0].Plugin, 0, "optimizer.groups[0].refresh_delay"},
		{&o.Groups[1], o.Groups[1].Plugin, 7, "optimizer.groups[1].refresh_delay"},
		{&o.Groups[2], &o.Plugin, 0, "optimizer.groups[2].refresh_delay"},
		{&o.Groups[3], &o.Plugin, 3, "optimizer.refresh_delay"},
		{&o.Groups[3], o.Rest, 1, "optimizer.rest.refresh_delay"},
	} {
		if delay, key := o.Delay(want.group, want.p); delay != want.delay || key != want.key {
			t.Errorf("%+v, %s: %d by %s, want %d by %s", want.group, want.p.Name, delay, key, want.delay,
				want.key)
		}
	}
	for _, p := range o.Plugins() {
		if len(p.Params) > 0 {
			t.Errorf("%s: the plugin is given %v", p.Table, p.Params)
		}
	}
	if _, err := Parse("dir/demo.toml", []byte(small+"[optimizer]\nrefresh_delay = -1\n"),
		nil); err == nil ||
		!strings.Contains(err.Error(),
			"optimizer.refresh_delay: found the integer -1; want an integer from 0 to 1000000") {
		t.Errorf("a delay of -1: %v", err)
	}
	prints := map[string]bool{}
	for _, text := range []string{"", "[optimizer]\nrefresh_delay = 0\n",
		"[optimizer.rest]\nrefresh_delay = 0\n"} {
		prints[parse(t, small+text).Fingerprint()] = true
	}
	if len(prints) != 1 {
		t.Error("the default, written out, changes the fingerprint")
	}
}

func TestRest(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		overrides []string
		want      Plugin
	}{
		"absent": {"", nil, Plugin{Name: "adamw"}},
		"string": {"[optimizer]\nrest = \"sgd\"\n", nil, Plugin{Name: "sgd"}},
		"table": {"[optimizer.rest]\nplugin = \"sgd\"\nmomentum = 0.9\n", nil,
			Plugin{Name: "sgd", Params: map[string]any{"momentum": 0.9}}},
		"parameters only": {"[optimizer.rest]\nbeta1 = 0.8\n", nil,
			Plugin{Name: "adamw", Params: map[string]any{"beta1": 0.8}}},
		"set": {"", []string{`optimizer.rest="sgd"`}, Plugin{Name: "sgd"}},
		"set on a string": {"[optimizer]\nrest = \"sgd\"\n", []string{"optimizer.rest.momentum=1"},
			Plugin{Name: "sgd", Params: map[string]any{"momentum": int64(1)}}},
		"set on a set string": {"", []string{`optimizer.rest="sgd"`, "optimizer.rest.momentum=1"},
			Plugin{Name: "sgd", Params: map[string]any{"momentum": int64(1)}}},
		"string set on a table": {"[optimizer.rest]\nbeta1 = 0.8\n", []string{`optimizer.rest="sgd"`},
			Plugin{Name: "sgd"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, *parse(t, small+c.text, c.overrides...).Optimizer.Rest,
				values); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

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
	if got := string(c.Encode()); !strings.Contains(got, text) {
		t.Errorf("not written as it was read:\n%s", got)
	}
	roundTrip(t, c)
	other := parse(t, small+text, "quantizer.overrides[0].bits=3", "optimizer.groups[1].rate=0.1",
		`optimizer.groups[2]={match="a"}`)
	var list []string
	for _, d := range Diff(c, other) {
		list = append(list, fmt.Sprintf("%s: %s, %s", d.Key, d.A, d.B))
	}
	want := []string{
		"quantizer.overrides[0].bits: 8, 3", "optimizer.groups[1].rate: 1.0, 0.1",
		`optimizer.groups[2].match: , ["a"]`,
		`optimizer.groups[2].roles: , ["matrix", "vector", "embedding", "head"]`,
		"optimizer.groups[2].rate: , 1.0",
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSetByIndex(t *testing.T) {
	const text = "[[quantizer.overrides]]\nmatch = \"a\"\nplugin = \"absmax\"\nbits = 8\n"
	c := parse(t, small+text, "quantizer.overrides[0].bits=3",
		` "quantizer" . overrides [1] . match = "x[0]=y" # new`,
		`quantizer.overrides[1].plugin="none"`, `quantizer.overrides[2]={match="c", plugin="lsq"}`,
		`quantizer.overrides[0]."a[b]"="=."`)
	q := c.Quantizer
	if len(q.Overrides) != 3 || q.Overrides[1].Match[0] != "x[0]=y" || q.Overrides[1].Plugin != nil ||
		q.Overrides[2].Plugin.Name != "lsq" {
		t.Fatalf("%+v", q.Overrides)
	}
	if diff := cmp.Diff(map[string]any{"a[b]": "=.", "bits": int64(3)},
		q.Overrides[0].Plugin.Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, want := range map[string]string{
		"quantizer.overrides[0].bits": "--set quantizer.overrides[0].bits=3: " +
			"quantizer.overrides[0].bits: no",
		"quantizer.overrides[0]":      "dir/demo.toml:14: quantizer.overrides[0]: no",
		"quantizer.overrides[2].bits": `--set quantizer.overrides[2]={match="c", plugin="lsq"}: quantizer.overrides[2].bits: no`,
	} {
		if got := c.ErrorAt(key, "no").Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	c = parse(t, small+text, `quantizer.overrides=[{match="b", plugin="none"}]`,
		`quantizer.overrides[0].match="c"`)
	if o := c.Quantizer.Overrides; len(o) != 1 || o[0].Match[0] != "c" || o[0].Plugin != nil {
		t.Errorf("%+v", o)
	}
	parse(t, small+text, "quantizer.overrides=[]", "optimizer.groups=[]")
	c = parse(t, small+text, "quantizer.overrides=[]",
		`quantizer.overrides[0]={match="z", plugin="none"}`)
	if o := c.Quantizer.Overrides; len(o) != 1 || o[0].Match[0] != "z" {
		t.Errorf("%+v", o)
	}
}

// TestSamples checks that the examples in the reference are valid.
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

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"head", "head", true}, {"head", "heads", false}, {"head", "ahead", false},
		{"layers.0.*", "layers.0.attn.qkv", true}, {"layers.0.*", "layers.01", false},
		{"layers.0.*", "layers.0.", true},
		{"*.down", "layers.3.mlp.down", true}, {"*.down", "down", false},
		{"*.down", "a.down.input", false},
		{"*", "", true}, {"*", "anything", true}, {"**", "x", true},
		{"layers.*.mlp.*", "layers.10.mlp.w1", true}, {"layers.*.mlp.*", "layers.10.attn.out", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a.c.b.c", true}, {"a*bc*cd", "abcd", false},
		{"*a*b*", "ba", false},
		{"layers.?", "layers.1", false}, {"layers.[0]", "layers.0", false}, {"Head", "head", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("matches(%q, %q) = %t", c.pattern, c.name, got)
		}
	}
}

// TestMatchesLikeRegexp checks that a pattern equals the regular expression with .* for *.
func TestMatchesLikeRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(alphabet string, n int) string {
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 20_000 {
		pattern, name := word("ab.*", 7), word("ab.", 9)
		like := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if got, want := matches(pattern, name), like.MatchString(name); got != want {
			t.Fatalf("matches(%q, %q) = %t", pattern, name, got)
		}
	}
}

// TestFormerKeys checks that keys of earlier versions are ignored with the values that had no
// effect, and reported with others.
func TestFormerKeys(t *testing.T) {
	file := func(offload string, from, to int) string {
		return fmt.Sprintf("%s[device]\noffload = %q\n[[quantizer.overrides]]\nlayers = 0\nfrom = %d\n"+
			"to = %d\nplugin = \"none\"\n", small, offload, from, to)
	}
	want := parse(t, small+"[[quantizer.overrides]]\nlayers = 0\nplugin = \"none\"\n")
	if got := parse(t, file("none", 1, 0)); got.Fingerprint() != want.Fingerprint() {
		t.Error("former keys change the fingerprint")
	}
	for key, text := range map[string]string{"device.offload": file("states", 1, 0),
		"quantizer.overrides[0].from": file("none", 2, 0),
		"quantizer.overrides[0].to":   file("none", 1, 9)} {
		if _, err := Parse("run.toml", []byte(text), nil); err == nil ||
			!strings.Contains(err.Error(), key+": found ") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestRolesOfTheirOwn checks that keys, values, queries and the head are only quantized by their
// own tables, and by overrides of their roles.
func TestRolesOfTheirOwn(t *testing.T) {
	plain := parse(t, small+"[quantizer]\nplugin = \"quest\"\n")
	c := parse(t, small+`[quantizer]
plugin = "quest"
[quantizer.keys]
plugin = "absmax"
bits = 3
[quantizer.head]
plugin = "absmax"
[[quantizer.overrides]]
match = "layers.1.*"
role = "values"
plugin = "absmax"
[[quantizer.overrides]]
match = "head.input"
role = "head"
plugin = "none"
`)
	for _, role := range []string{RoleKeys, RoleValues, RoleQueries, RoleHead} {
		if plain.Quantizer.Quantizes(role) || plain.Quantizer.For(role, "layers.1.attn.keys") != nil {
			t.Errorf("without their tables %s are quantized", role)
		}
		if want := role != RoleQueries; c.Quantizer.Quantizes(role) != want {
			t.Errorf("%s are quantized: %t", role, !want)
		}
	}
	q := c.Quantizer
	if q.For(RoleKeys, "layers.1.attn.keys") != q.Keys || q.Keys.Params["bits"] != int64(3) ||
		q.For(RoleValues, "layers.0.attn.values") != nil ||
		q.For(RoleValues, "layers.1.attn.values") != q.Overrides[0].Plugin ||
		q.For(RoleHead, "head.input") != nil || q.For(RoleHead, "head") != q.Head {
		t.Errorf("%+v", q)
	}
	if f := q.Forward(); f.Keys != q.Keys || f.Head != q.Head || len(f.Overrides) != 2 {
		t.Errorf("forward alone: %+v", f)
	}
	again := parse(t, string(c.Encode()))
	if a := c.Fingerprint(); a != again.Fingerprint() || a == plain.Fingerprint() {
		t.Error("the fingerprint of the written configuration is another one, or that without them")
	}
}

// TestWithoutWeights checks that WithoutWeights keeps the quantizers of all other roles.
func TestWithoutWeights(t *testing.T) {
	q := parse(t, small+`[quantizer]
plugin = "quest"
[quantizer.keys]
plugin = "absmax"
[[quantizer.overrides]]
match = "layers.0.*"
role = "all"
plugin = "none"
[[quantizer.overrides]]
match = "layers.1.*"
role = "both"
plugin = "lsq"
[[quantizer.overrides]]
match = "layers.1.attn.out"
role = "weights"
plugin = "none"
`).Quantizer
	without := q.WithoutWeights()
	for _, layer := range []string{"layers.0.", "layers.1."} {
		for role, name := range map[string]string{RoleActivations: "attn.out.input",
			RoleKeys: "attn.keys", RoleValues: "attn.values"} {
			if got, want := without.For(role, layer+name), q.For(role, layer+name); got != want {
				t.Errorf("%s of %s: %v, want %v", role, layer, got, want)
			}
		}
		if got := without.For(RoleWeights, layer+"mlp.down"); got != nil {
			t.Errorf("the weights of %s have %v", layer, got)
		}
	}
	if len(without.Overrides) != 3 {
		t.Errorf("%d overrides, want activations and keys of the one, activations of the other",
			len(without.Overrides))
	}
}
