package export

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/cage-qat/cage/internal/safetext"
)

// Card holds the parts of the model card that the caller of the export supplies.
type Card struct {
	Name        string // name of the model
	Step        int    // optimizer steps before the checkpoint
	Posttrained string // description of the quantization after training; "": there was none
	Loss        string // loss on the validation set; "": omitted
	Command     string // command that made the export
	Config      string // the configuration of the run, in TOML
	Base        string // name of the checkpoint from which the training started; "": none
	License     string // its licence, as its model card names it; "": unknown
	Version     string // version of cage
}

var cardTemplate = template.Must(template.New(cardFile).Funcs(template.FuncMap{
	"line": safetext.Line, "text": safetext.Markdown, "fence": fence}).Parse(`---
{{with .Card.License}}license: {{.}}{{else}}# license: choose one before you publish the model{{end}}
{{- with .Library}}
library_name: {{.}}{{end}}
{{- with .Card.Base}}
{{line .}}{{end}}
tags:
- cage
- {{if .Card.Posttrained}}post-training-quantization{{else}}quantization-aware-training{{end}}
---

# {{text .Card.Name}}

{{.What}}

| | |
|---|---|
| steps | {{.Card.Step}} |
{{- with .Card.Posttrained}}
| quantized | {{text .}} |{{end}}
{{- with .Card.Loss}}
| validation loss | {{.}} |{{end}}
| exported as | {{.Report.Format}}: {{.Types}} |
| exact | {{.Exact}} |
{{- range .Report.Notes}}
| note | {{text .}} |{{end}}
{{range .Report.Warnings}}
Warning: {{text .}}
{{end}}
Made by cage {{.Card.Version}} with

    {{line .Card.Command}}

## Configuration of the training

{{fence .Card.Config}}toml
{{.Card.Config}}{{fence .Card.Config}}
`))

// fence returns a code fence that is longer than any in text.
func fence(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}

// libraries maps formats to the library that loads them, as the Hugging Face Hub names it.
var libraries = map[string]string{"hf": "transformers", "compressed-tensors": "transformers",
	"mlx": "mlx", "peft": "peft"}

func (c Card) render(r *Report, m *Model) ([]byte, error) {
	var types []string
	quantized, difference := 0, 0.0
	for _, g := range r.groups() {
		if !slices.Contains(types, g.typ) {
			types = append(types, g.typ)
		}
		if g.quantized {
			quantized, difference = quantized+g.tensors, max(difference, g.difference)
		}
	}
	exact := "no weight is quantized"
	if quantized > 0 && r.Exact {
		exact = fmt.Sprintf(
			"all %d quantized weights were read back as trained, bit for bit", quantized)
	} else if quantized > 0 {
		exact = fmt.Sprintf("no: quantized weights differ from the trained ones by up to %.3g",
			difference)
	}
	s := m.Settings
	what := fmt.Sprintf("A language model of kind %s with %d layers, %d features, %d heads and "+
		"%d tokens in its vocabulary, trained on sequences of %d tokens.",
		s.Kind, s.Layers, s.Width, s.Heads, s.Vocab, s.Context)
	var out bytes.Buffer
	err := cardTemplate.Execute(&out, map[string]any{"Card": c, "Report": r,
		"Library": libraries[r.Format], "Types": strings.Join(types, "; "), "Exact": exact, "What": what})
	return out.Bytes(), err
}

// group holds the tensors that have the same type, quantization and note.
type group struct {
	typ, note  string
	quantized  bool
	tensors    int
	bytes      int64
	difference float64 // the largest
}

func (r *Report) groups() []*group {
	var list []*group
	for _, quantized := range []bool{true, false} {
		for _, t := range r.Tensors {
			if t.Quantized != quantized {
				continue
			}
			i := slices.IndexFunc(list, func(g *group) bool {
				return g.typ == t.Type && g.quantized == quantized && g.note == t.Note
			})
			if i < 0 {
				i, list = len(list), append(list, &group{typ: t.Type, quantized: quantized, note: t.Note})
			}
			g := list[i]
			g.tensors, g.bytes, g.difference = g.tensors+1, g.bytes+t.Bytes, max(g.difference, t.Difference)
		}
	}
	return list
}

// Summary describes in a few lines how the tensors are stored.
func (r *Report) Summary() []string {
	var lines []string
	for _, g := range r.groups() {
		kind, how := "other tensors", "unchanged"
		if g.quantized {
			kind, how = "quantized weights", "equal to Q(x), bit for bit"
		}
		if g.difference > 0 {
			how = fmt.Sprintf("different by up to %.3g", g.difference)
		}
		line := fmt.Sprintf("%d %s, %s, %d bytes: %s", g.tensors, kind, g.typ, g.bytes, how)
		if g.note != "" {
			line += "; not packed, since " + g.note
		}
		lines = append(lines, line)
	}
	return append(lines, r.Notes...)
}
