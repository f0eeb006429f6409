package config

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// randomFile returns a configuration that sets each optional key with probability 1/2, and all
// required keys, to random values in their ranges.
func randomFile(r *rand.Rand) string {
	var b strings.Builder
	name := []string{cage.NameCAGE, cage.NameCAGE, cage.NameLOTION, cage.NameOff}[r.IntN(4)]
	mixture, chat := r.IntN(3) == 0, r.IntN(4) == 0
	mixture = mixture && !chat
	kind := &Config{Model: architecture.Settings{
		Kind: architecture.Kinds[r.IntN(len(architecture.Kinds))]}}
	for _, t := range new(Config).tables() {
		switch {
		case t.models != nil && !slices.Contains(t.models, kind.Model.Kind):
			continue
		case t.name == "data.mixture":
			for range r.IntN(3) + 1 {
				if mixture {
					fmt.Fprintf(&b, "[[%s]]\npath = %s\nweight = %g\n", t.name, tomlText("a"+randomText(r)),
						r.Float64()+0.001)
				}
			}
			continue
		case t.name == distillationTable && r.IntN(2) == 0, t.name == adaptersTable: // needs model.init
			continue
		case t.list:
			for range r.IntN(4) {
				fmt.Fprintf(&b, "[[%s]]\n%s", t.name, randomElement(r, t))
			}
			continue
		case t.plugin != nil && r.IntN(2) == 0 &&
			(name != cage.NameLOTION || t.name != "quantizer.weights"):
			continue
		case t.plugin != nil:
			fmt.Fprintf(&b, "[%s]\n%s", t.name, randomPlugin(r))
			continue
		case t.name != "":
			fmt.Fprintf(&b, "[%s]\n", t.name)
		}
		if t.name == "method" {
			fmt.Fprintf(&b, "name = %q\n", name)
		}
		if t.name == "model" {
			fmt.Fprintf(&b, "kind = %q\n", kind.Model.Kind)
		}
		kind.Method.Name = name
		_, selected := t.selector(kind)
		for _, k := range t.keys {
			if t.name == "data" && k.Name == "train" {
				switch {
				case chat:
					fmt.Fprintf(&b, "kind = \"chat\"\ntrain = %s\n", tomlText("a"+randomText(r)))
				case !mixture:
					fmt.Fprintf(&b, "train = %s\n", randomTexts(r, nil))
				}
				continue
			}
			if t.name == "data" &&
				(k.Name == "kind" || !chat && (k.Name == "packing" || k.Name == "epochs") || chat &&
					k.Name == "documents") {
				continue
			}
			if t.name == "train" && k.Name == "steps" && !chat {
				fmt.Fprintf(&b, "steps = %d\n", 1+r.IntN(1000))
				continue
			}
			if !k.Belongs(selected) || k.Name == "name" && t.name == "method" {
				continue
			}
			decoupled := !strings.Contains(b.String(), "\nform = ") ||
				strings.Contains(b.String(), "\nform = \"decoupled\"")
			if k.Name == "strength" && (!decoupled || strings.Contains(b.String(), "\nlambda = ")) {
				continue
			}
			if value := randomValue(r, t, k); value != "" {
				fmt.Fprintf(&b, "%s = %s\n", k.Name, value)
			}
		}
	}
	return b.String()
}

// randomElement returns a table of an array of tables.
func randomElement(r *rand.Rand, t table) string {
	var b strings.Builder
	selected := false
	for _, k := range t.keys {
		value := ""
		if k.Name != "plugin" && k.Name != "sha256" {
			value = randomValue(r, t, k)
		}
		if value != "" {
			selected = selected || k.Type() == schema.Texts
			fmt.Fprintf(&b, "%s = %s\n", k.Name, value)
		}
	}
	if !selected {
		b.WriteString("match = \"*\"\n")
	}
	if t.key("plugin").Optional == "" || r.IntN(2) == 0 {
		b.WriteString(randomPlugin(r))
	}
	return b.String()
}

// randomTexts returns a string or an array of one to three strings.
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

// randomValue returns a random value of a key, or "" to leave the key out.
func randomValue(r *rand.Rand, t table, k schema.Key) string {
	switch key := t.path(k.Name); {
	case key == "model.kind", key == "model.preset", key == "model.init", key == newTokensKey,
		key == newRowsKey, key == "device.count", key == "device.precision", key == "device.tf32",
		key == "device.attention", key == "device.kernels", key == "device.products",
		key == "device.allocator", key == "device.preallocate", key == "device.memory_fraction",
		key == "device.cache":
		return "" // depend on other keys or files; see TestRoundTripPresets
	case key == teacherKey:
		return tomlText("a" + randomText(r)) // without a value there is no such table
	case key == "train.steps":
		return strconv.Itoa(1 + r.IntN(1000)) // without steps there are fewer tables
	case key == "model.width":
		return "768"
	case key == "model.kv_heads", key == "model.head_size", key == "model.rope_high":
		return ""
	case key == "model.heads":
		return strconv.Itoa([]int{1, 2, 3, 6, 12, 384}[r.IntN(6)])
	case key == "quantizer.overrides.layers", key == "quantizer.overrides.from":
		return "" // depend on other keys; see TestOverridesOfSomeSteps
	case key == "quantizer.overrides.to":
		return strconv.Itoa(1000 + r.IntN(1000)) // not before the last step of any run
	case k.Default != nil || k.Derive != nil || k.Optional != "":
		if r.IntN(2) == 0 {
			return ""
		}
	}
	switch k.Type() {
	case schema.Texts:
		return randomTexts(r, k.Is.Words)
	case schema.Numbers:
		return "" // depend on other keys; see TestProblem
	}
	if len(k.Is.Words) > 0 {
		return strconv.Quote(k.Is.Words[r.IntN(len(k.Is.Words))])
	}
	for {
		var v any
		switch k.Type() {
		case schema.Integer:
			v = r.Int64N(1 << r.IntN(62))
		case schema.Number:
			v = r.Float64() * 0.45 // two phases of less than half fit in a run
			if _, ok := k.Accept(0.45); !ok {
				v = 1 + r.Float64()*1e6
			}
		case schema.Boolean:
			v = r.IntN(2) == 0
		case schema.Text:
			v = randomText(r)
			if strings.Contains(k.Name, "sha256") {
				v = fmt.Sprintf("%016x%016x%016x%016x", r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
			}
		}
		if _, ok := k.Accept(v); ok {
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
			"3.0", "true", tomlText(randomText(r)),
		}[r.IntN(5)]
		lines += fmt.Sprintf("%s = %s\n", tomlText(fmt.Sprint(randomText(r), i)), value)
	}
	return lines
}

// roundTrip checks that the output of Encode loads to an equal configuration, whose encoding is the
// same.
func roundTrip(t *testing.T, c *Config) {
	t.Helper()
	first := c.Encode()
	back, err := Parse("other/run.toml", first, nil)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, first)
	}
	want := *c
	want.Quantizer.Unused = nil // unused settings are not written
	if diff := cmp.Diff(&want, back, values); diff != "" {
		t.Fatalf("(-want +got):\n%s\nin\n%s", diff, first)
	}
	if diffs := Diff(c, back); len(diffs) > 0 {
		t.Fatalf("Diff finds %v", diffs)
	}
	if diff := cmp.Diff(string(first), string(back.Encode())); diff != "" {
		t.Fatalf("written differently the second time:\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range testlevel.Sample(uint64(20), 80, 500) {
		file := randomFile(rand.New(rand.NewPCG(seed, 1)))
		c, err := Parse("demo.toml", []byte(file), nil)
		if err != nil {
			t.Fatalf("seed %d: %v\nin\n%s", seed, err, file)
		}
		roundTrip(t, c)
	}
}

func TestRoundTripPresets(t *testing.T) {
	for _, p := range architecture.Presets() {
		roundTrip(t, parse(t, "[data]\ntrain = \"a\"\nvalidation = \"b\"\n[device]\nkind = "+
			"\"cuda\"\ncount = 2\nprecision = \"bfloat16\"\ntf32 = "+
			"\"on\"\nattention = \"fused\"\nkernels = \"graph\"\nproducts = \"integer\"\nallocator = "+
			"\"bfc\"\npreallocate = \"on\"\nmemory_fraction = 0.5\ncache = \"x\"\n",
			`model.kind="`+p.Kind+`"`, `model.preset="`+p.Name+`"`))
	}
}

func TestEncode(t *testing.T) {
	c := parse(t, small+"[quantizer]\nplugin = \"quest\"\nbits = 4\n[quantizer.activations]\nplugin "+
		"= \"none\"\n")
	text := string(c.Encode())
	for _, want := range []string{
		"\nseed = 0\n\n[model]\nkind = \"llama\"\npreset = \"\"\nlayers = 2\n",
		"\n[quantizer.weights]\nplugin = \"quest\"\nsha256 = \"\"\nbits = 4\n",
		"\n[quantizer.activations]\nplugin = \"none\"\n",
		"\n[optimizer]\nplugin = \"adamw\"\nsha256 = \"\"\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestDiff(t *testing.T) {
	const quest = "[quantizer]\nplugin = \"quest\"\nbits = 4\n"
	a := parse(t, small+quest)
	b := parse(t, small+quest, "train.steps=20",
		"quantizer.weights={plugin=\"quest\", bits=4, trust=1.0}", `optimizer.plugin="sgd"`)
	want := []Difference{
		{"train.steps", "10", "20"},
		{"method.strength", "0.0024", "0.0048"}, // the default of a short run
		{"optimizer.plugin", `"adamw"`, `"sgd"`},
		{"quantizer.weights.trust", "", "1.0"},
	}
	if diff := cmp.Diff(want, Diff(a, b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
