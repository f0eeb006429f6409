package config

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// randomFile writes a configuration that sets each key with probability a
// half (required ones always) to a random value in its range.
func randomFile(r *rand.Rand) string {
	var b strings.Builder
	method := []string{MethodCAGE, MethodCAGE, MethodLOTION, MethodOff}[r.IntN(4)]
	kind := &Config{Model: Model{Kind: modelKinds[r.IntN(len(modelKinds))]}}
	for _, t := range schema() {
		switch {
		case t.models != nil && !slices.Contains(t.models, kind.Model.Kind):
			continue
		case t.list:
			for range r.IntN(4) {
				fmt.Fprintf(&b, "[[%s]]\n%s", t.name, randomElement(r, t))
			}
			continue
		case t.plugin && r.IntN(2) == 0 && (method != MethodLOTION || t.name != weightsTable.name):
			continue
		case t.plugin:
			fmt.Fprintf(&b, "[%s]\n%s", t.name, randomPlugin(r))
			continue
		case t.name != "":
			fmt.Fprintf(&b, "[%s]\n", t.name)
		}
		if t.name == methodTable.name {
			fmt.Fprintf(&b, "name = %q\n", method)
		}
		if t.name == modelTable.name {
			fmt.Fprintf(&b, "kind = %q\n", kind.Model.Kind)
		}
		for _, f := range t.fields {
			if !f.belongs(method) || f.key == "name" && t.name == methodTable.name || !t.applies(f, kind) {
				continue
			}
			if value := randomValue(r, t, f); value != "" {
				fmt.Fprintf(&b, "%s = %s\n", f.key, value)
			}
		}
	}
	return b.String()
}

// randomElement is a table of an array of tables.
func randomElement(r *rand.Rand, t table) string {
	var b strings.Builder
	selected := false
	for _, f := range t.fields {
		value := ""
		if f.in != nil {
			value = randomValue(r, t, f)
		}
		if value != "" {
			selected = selected || f.kind == texts
			fmt.Fprintf(&b, "%s = %s\n", f.key, value)
		}
	}
	if !selected {
		b.WriteString("match = \"*\"\n")
	}
	if t.field("plugin").optional == "" || r.IntN(2) == 0 {
		b.WriteString(randomPlugin(r))
	}
	return b.String()
}

// randomTexts is one string or an array of one to three.
func randomTexts(r *rand.Rand, choices []string) string {
	one := func() string {
		if len(choices) > 0 {
			return strconv.Quote(choices[r.IntN(len(choices))])
		}
		return tomlText(randomText(r) + "*")
	}
	list := []string{one()}
	if r.IntN(2) == 0 {
		return list[0]
	}
	for range r.IntN(3) {
		list = append(list, one())
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// randomValue is "" for a key to leave out.
func randomValue(r *rand.Rand, t table, f field) string {
	switch key := joinKey(t.name, f.key); {
	case key == "model.kind", key == "model.preset", key == "device.count", key == "device.precision", key == "device.tf32", key == "device.attention":
		return "" // tied to other keys; TestRoundTripPresets has them
	case key == "model.width":
		return "768"
	case key == "model.kv_heads", key == "model.rope_high":
		return ""
	case key == "model.heads":
		return strconv.Itoa([]int{1, 2, 3, 6, 12, 384}[r.IntN(6)])
	case key == "train.steps":
		return strconv.Itoa(100 + r.IntN(1000))
	case f.def != nil || f.derive != nil || f.optional != "":
		if r.IntN(2) == 0 {
			return ""
		}
	}
	switch f.kind {
	case texts:
		return randomTexts(r, f.is.choices)
	case numbers:
		return "" // tied to other keys; TestProblem has them
	}
	if len(f.is.choices) > 0 {
		return strconv.Quote(f.is.choices[r.IntN(len(f.is.choices))])
	}
	for {
		var v any
		switch f.kind {
		case integer:
			v = r.Int64N(1 << r.IntN(62))
		case number:
			v = r.Float64() * 0.45 // two phases of less than half fit in a run
			if _, ok := f.accept(0.45); !ok {
				v = 1 + r.Float64()*1e6
			}
		case text:
			v = randomText(r)
			if strings.Contains(f.key, "sha256") {
				v = fmt.Sprintf("%016x%016x%016x%016x", r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
			}
		}
		if _, ok := f.accept(v); ok {
			return tomlText(v)
		}
	}
}

func tomlText(v any) string {
	s, isText := v.(string)
	if !isText {
		return fmt.Sprint(v)
	}
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, `\U%08X`, c)
	}
	return `"` + b.String() + `"`
}

func randomText(r *rand.Rand) string {
	alphabet := []rune("abz/.-_ \"'\\\n\t\r\x01\x7fλ統😀")
	s := make([]rune, 1+r.IntN(12))
	for i := range s {
		s[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(s)
}

func randomPlugin(r *rand.Rand) string {
	lines := fmt.Sprintf("plugin = %s\n", tomlText(randomText(r)))
	for i := range r.IntN(5) {
		value := []string{
			strconv.Itoa(r.IntN(1000) - 500), strconv.FormatFloat(r.NormFloat64()*1e9, 'e', -1, 64),
			"3.0", "true", tomlText(randomText(r)), "[]", "[1, -2]", "[0.5, 1]", `["x", ""]`, "[false]",
		}[r.IntN(10)]
		lines += fmt.Sprintf("%s = %s\n", tomlText(fmt.Sprint(randomText(r), i)), value)
	}
	return lines
}

// roundTrip checks that what Encode writes loads to an equal configuration
// and is then written the same.
func roundTrip(t *testing.T, c *Config) {
	t.Helper()
	first, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse("other/run.toml", first, nil)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, first)
	}
	if diff := cmp.Diff(c, back, values); diff != "" {
		t.Fatalf("(-want +got):\n%s\nin\n%s", diff, first)
	}
	if diffs, err := Diff(c, back); err != nil || len(diffs) > 0 {
		t.Fatalf("Diff finds %v, %v", diffs, err)
	}
	second, err := back.Encode()
	if err != nil || string(second) != string(first) {
		t.Fatalf("written differently the second time (%v):\n%s", err, cmp.Diff(string(first), string(second)))
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(500) {
		file := randomFile(rand.New(rand.NewPCG(seed, 1)))
		c, err := Parse("demo.toml", []byte(file), nil)
		if err != nil {
			t.Fatalf("seed %d: %v\nin\n%s", seed, err, file)
		}
		roundTrip(t, c)
	}
}

func TestRoundTripPresets(t *testing.T) {
	for _, p := range Presets() {
		roundTrip(t, parse(t, "[data]\ntrain = \"a\"\nvalidation = \"b\"\n[device]\nkind = \"cuda\"\ncount = 2\nprecision = \"bfloat16\"\ntf32 = \"on\"\nattention = \"fused\"\n",
			`model.kind="`+p.Kind+`"`, `model.preset="`+p.Name+`"`))
	}
}

func TestEncode(t *testing.T) {
	c := parse(t, small+"[quantizer]\nplugin = \"quest\"\nbits = 4\n[quantizer.activations]\nplugin = \"none\"\n")
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nseed = 0\n\n[model]\nkind = \"llama\"\npreset = \"\"\nlayers = 2\n",
		"\n[quantizer.weights]\nplugin = \"quest\"\nsha256 = \"\"\nbits = 4\n",
		"\n[quantizer.activations]\nplugin = \"none\"\n",
		"\n[optimizer]\nplugin = \"adamw\"\nsha256 = \"\"\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	c.Optimizer.Params = []Param{{Key: "f", Value: func() {}}}
	if _, err := c.Encode(); err == nil || !strings.Contains(err.Error(), "optimizer.f") {
		t.Errorf("a function as a parameter: %v", err)
	}
}

func TestDiff(t *testing.T) {
	const quest = "[quantizer]\nplugin = \"quest\"\nbits = 4\n"
	a := parse(t, small+quest)
	b := parse(t, small+quest, "train.steps=20", "quantizer.weights={plugin=\"quest\", bits=4, trust=1.0}", `optimizer.plugin="sgd"`)
	got, err := Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	want := []Difference{
		{"train.steps", "10", "20"},
		{"optimizer.plugin", `"adamw"`, `"sgd"`},
		{"quantizer.weights.trust", "", "1.0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
