package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Reference documents every key of the schema as Markdown: type and range,
// default, meaning; and the presets.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Configuration of a training run\n\n" +
		"A TOML file. Keys match exactly; an unknown key is an error. Any key can be set on the\n" +
		"command line: `--set train.steps=100`, `--set 'model.preset=\"30M\"'`; in an array of tables by index,\n" +
		"`--set 'quantizer.overrides[0].bits=3'`, where the first free index adds a table.\n")
	for _, t := range schema() {
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
		for _, f := range t.fields {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.key, f.wants(), f.defaultWords(), f.meaning())
		}
		if t.sample != "" {
			b.WriteString("\n```toml\n" + t.sample + "```\n")
		}
	}
	presetReference(&b)
	return b.String()
}

// title is the table's heading as TOML writes it.
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

// meaning is the field's doc with the methods or the models whose key it is.
func (f field) meaning() string {
	owners := append(slices.Clone(f.of), f.models...)
	if len(owners) == 0 {
		return f.doc
	}
	return strings.Join(owners, ", ") + ": " + f.doc
}

// defaultWords says what a key is when left out.
func (f field) defaultWords() string {
	words := "required"
	switch {
	case f.def != nil:
		words = "`" + tomlScalar(f.def) + "`"
	case f.derive != nil:
		words = f.derived
	case f.optional != "":
		words = f.optional
	}
	if f.preset != nil {
		words += "; the preset's, when one is named"
	}
	return words
}

func tomlScalar(v any) string {
	switch x := v.(type) {
	case string:
		return strconv.Quote(x)
	case float64:
		return decimal(x)
	case []string:
		return "[" + QuotedList(x) + "]"
	default:
		return fmt.Sprint(x)
	}
}

func presetReference(b *strings.Builder) {
	b.WriteString("\n## Presets\n\n" +
		"`model.preset` fixes the sizes of the model. The other columns are the defaults of keys that the\n" +
		"file leaves out. Parameters do not count the embedding and the output head.\n\n" +
		"| kind | preset | layers | heads | width | hidden | parameters | context | vocab | batch | accumulate | steps | warm-up | rate |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range Presets() {
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n",
			p.Kind, p.Name, p.Layers, p.Heads, p.Width, p.Hidden, p.Parameters(), p.Context, p.Vocab,
			p.Batch, p.Accumulate, p.Steps, p.Warmup, decimal(p.Rate))
	}
}
