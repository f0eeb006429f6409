package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
)

// Reference documents every key of the schema, and the presets, as Markdown. For each key
// it gives type and range, default, and meaning.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Configuration of a training run\n\n" +
		"A TOML file. Keys match exactly; an unknown key is an error. Any key can be set on the\n" +
		"command line: `--set train.steps=100`, `--set 'model.preset=\"30M\"'`; in an array of tables by index,\n" +
		"`--set 'quantizer.overrides[0].bits=3'`, where the first free index adds a table.\n")
	for _, t := range new(Config).tables() {
		b.WriteString("\n## " + t.title() + "\n\n")
		if t.doc != "" {
			b.WriteString(t.doc + "\n")
		}
		if t.absent != "" {
			b.WriteString("When the table is absent: " + t.absent + ".\n")
		}
		if t.doc != "" || t.absent != "" {
			b.WriteString("\n")
		}
		b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
		for _, k := range t.keys {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Wants(), defaultWords(t, k), meaning(k))
		}
		if t.sample != "" {
			b.WriteString("\n```toml\n" + t.sample + "```\n")
		}
	}
	presetReference(&b)
	return b.String()
}

func (t table) title() string {
	switch {
	case t.name == "":
		return "Top level"
	case t.list:
		return "[[" + t.name + "]]"
	default:
		return "[" + t.name + "]"
	}
}

func meaning(k schema.Key) string {
	if len(k.For) == 0 {
		return k.Doc
	}
	return strings.Join(k.For, ", ") + ": " + k.Doc
}

// defaultWords says what a key is when left out.
func defaultWords(t table, k schema.Key) string {
	words := "required"
	switch {
	case k.Default != nil:
		words = "`" + tomlScalar(k.DefaultValue()) + "`"
	case k.Derive != nil:
		words = k.Derived
	case k.Optional != "":
		words = k.Optional
	}
	if inPresets(t.path(k.Name)) {
		words += "; the preset's, when one is named"
	}
	return words
}

func tomlScalar(v any) string {
	switch x := v.(type) {
	case string:
		return strconv.Quote(x)
	case float64:
		return schema.Decimal(x)
	case []string:
		return "[" + schema.Quoted(x) + "]"
	default:
		return fmt.Sprint(x)
	}
}

func presetReference(b *strings.Builder) {
	b.WriteString("\n## Presets\n\n" +
		"`model.preset` fixes the sizes of the model. The other columns are the defaults of keys that the\n" +
		"file leaves out. Parameters do not count the embedding and the output head. The OLMo2\n" +
		"presets 30M and 60M are OLMo-core's, whose names count the embedding, too; 50M has the sizes of the Llama 50M.\n" +
		"1700M and 3200M are from the training script of QuEST's code (train.sh), with its 10.75 and\n" +
		"20 billion tokens: 6 for each parameter, where the smaller ones have 100.\n\n" +
		"| kind | preset | layers | heads | width | hidden | parameters | context | vocab | batch | accumulate | steps | warm-up | rate |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range architecture.Presets() {
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n",
			p.Kind, p.Name, p.Layers, p.Heads, p.Width, p.Hidden, p.Parameters(), p.Context, p.Vocab,
			p.Batch, p.Accumulate, p.Steps, p.Warmup, schema.Decimal(p.Rate))
	}
}
