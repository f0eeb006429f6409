package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		{"quantizer.overrides[0]", []string{"layers.0.*"}, "both",
			&Plugin{Table: "quantizer.overrides[0]", Name: "absmax", Params: map[string]any{"bits": int64(8)}}},
		{"quantizer.overrides[1]", []string{"layers.0.mlp.*", "layers.1.attn.qkv.input"}, "activations", nil},
		{"quantizer.overrides[2]", []string{"*.out"}, "weights", &Plugin{Table: "quantizer.overrides[2]", Name: "lsq"}},
	}
	if diff := cmp.Diff(want, q.Overrides); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		role, name string
		want       *Plugin
	}{
		{RoleWeights, "layers.0.attn.qkv", q.Overrides[0].Plugin},
		{RoleWeights, "layers.0.attn.out", q.Overrides[2].Plugin}, // the last one wins
		{RoleActivations, "layers.0.attn.out", q.Overrides[0].Plugin},
		{RoleWeights, "layers.0.mlp.w1", q.Overrides[0].Plugin}, // the other role is not touched
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
	if got, want := c.ErrorAt(q.Overrides[1].Table, "no effect").Error(), "dir/demo.toml:21: quantizer.overrides[1]: no effect"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := c.ErrorAt(q.Overrides[0].Plugin.Path("bits"), "odd").Error(), "dir/demo.toml:20: quantizer.overrides[0].bits: odd"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
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
				&Plugin{Table: "optimizer.groups[0]", Name: "sgd", Params: map[string]any{"momentum": 0.9}}, 0.5, &zero, nil},
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
		{"head", "head", &o.Groups[0]}, // the first one wins
		{"embedding", "embedding", &o.Groups[0]},
		{"vector", "layers.0.attn_norm", &o.Groups[1]},
		{"vector", "bias", nil}, // name and role must both be the group's
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

// TestRefreshDelay: each table of optimizers has a delay, and a group may have its own.
// It is no parameter of the plugin, and a default leaves the fingerprint as it is.
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
			t.Errorf("%+v, %s: %d by %s, want %d by %s", want.group, want.p.Name, delay, key, want.delay, want.key)
		}
	}
	for _, p := range o.Plugins() {
		if len(p.Params) > 0 {
			t.Errorf("%s: the plugin is given %v", p.Table, p.Params)
		}
	}
	if _, err := Parse("dir/demo.toml", []byte(small+"[optimizer]\nrefresh_delay = -1\n"), nil); err == nil ||
		!strings.Contains(err.Error(), "optimizer.refresh_delay: found the integer -1; want an integer from 0 to 1000000") {
		t.Errorf("a delay of -1: %v", err)
	}
	prints := map[string]bool{}
	for _, text := range []string{"", "[optimizer]\nrefresh_delay = 0\n", "[optimizer.rest]\nrefresh_delay = 0\n"} {
		f, err := parse(t, small+text).Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		prints[f] = true
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
		"absent":                {"", nil, Plugin{Name: "adamw"}},
		"string":                {"[optimizer]\nrest = \"sgd\"\n", nil, Plugin{Name: "sgd"}},
		"table":                 {"[optimizer.rest]\nplugin = \"sgd\"\nmomentum = 0.9\n", nil, Plugin{Name: "sgd", Params: map[string]any{"momentum": 0.9}}},
		"parameters only":       {"[optimizer.rest]\nbeta1 = 0.8\n", nil, Plugin{Name: "adamw", Params: map[string]any{"beta1": 0.8}}},
		"set":                   {"", []string{`optimizer.rest="sgd"`}, Plugin{Name: "sgd"}},
		"set on a string":       {"[optimizer]\nrest = \"sgd\"\n", []string{"optimizer.rest.momentum=1"}, Plugin{Name: "sgd", Params: map[string]any{"momentum": int64(1)}}},
		"set on a set string":   {"", []string{`optimizer.rest="sgd"`, "optimizer.rest.momentum=1"}, Plugin{Name: "sgd", Params: map[string]any{"momentum": int64(1)}}},
		"string set on a table": {"[optimizer.rest]\nbeta1 = 0.8\n", []string{`optimizer.rest="sgd"`}, Plugin{Name: "sgd"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, *parse(t, small+c.text, c.overrides...).Optimizer.Rest, values); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
