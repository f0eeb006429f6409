package export

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/halffloat"
)

// A lack is a property of models that a program does not compute.
type lack struct {
	has  bool   // whether the model has it
	what string // follows "models with"
}

// Properties that more than one program lacks.
const (
	ownHead = "an output head of its own"
	noCap   = "scores or logits without a cap"
)

func otherHeadSize(s architecture.Settings) lack {
	return lack{s.HeadSize*s.Heads != s.Width,
		fmt.Sprintf("a head size other than width/heads = %d", s.Width/max(1, s.Heads))}
}

// computes returns an error if a program lacks properties of a model.
func computes(program, instead string, s architecture.Settings, lacks ...lack) error {
	var list []string
	for _, l := range lacks {
		if l.has {
			list = append(list, l.what)
		}
	}
	if list == nil {
		return nil
	}
	return fmt.Errorf("%s does not compute models of kind %s with %s: use --to %s",
		program, s.Kind, strings.Join(list, ", nor with "), instead)
}

// inTransformers returns an error if transformers 5 does not compute such a model.
func inTransformers(s architecture.Settings) error {
	gemma := s.Kind == architecture.KindGemma2 || s.Kind == architecture.KindGemma3
	scalar := 1 / (s.ScoreScale() * s.ScoreScale())
	return computes("transformers", "gguf or mlx", s,
		lack{gemma && s.Width%s.Heads != 0, "a width that is no multiple of heads"},
		lack{gemma && math.Abs(scalar/math.Round(scalar)-1) > 1e-6,
			fmt.Sprintf("attention_multiplier = %g, but with 1/√n of integers n", s.ScoreScale())})
}

// inMLX returns an error if the classes of mlx-lm (0.32.2, mlx_lm/models) do not compute such a
// model.
func inMLX(s architecture.Settings) error {
	gemma2 := s.Kind == architecture.KindGemma2
	early := gemma2 || s.Kind == architecture.KindGemma
	lacks := []lack{
		{early && !s.Tied(), ownHead},
		{gemma2 && s.ScoreCap*s.LogitCap == 0, noCap},
		{early && s.RopeFactor > 1, "scaled positions"},
		{!gemma2 && s.Local(0) && !slices.Contains(huggingface.LayerTypes(s), "full_attention"),
			"windows in all layers"},
	}
	if s.Kind == architecture.KindQwen2 || s.Kind == architecture.KindGranite {
		lacks = append(lacks, otherHeadSize(s))
	}
	return computes("mlx-lm", "hf", s, lacks...)
}

// mlxKeys returns the entries of config.json that mlx-lm reads otherwise than transformers: it
// loads no Llama, and thus no Mistral, with windows in all layers.
func mlxKeys(s architecture.Settings) map[string]any {
	if s.Kind == architecture.KindLlama {
		s.Window = 0
	}
	return map[string]any{"rope_traditional": false, "layer_types": huggingface.LayerTypes(s)}
}

// mlxNotes tells what mlx-lm computes otherwise.
func mlxNotes(m *Model) []string {
	s := m.Settings
	limits := s.Kind != architecture.KindLlama && s.Kind != architecture.KindGemma2
	notes := m.unlimited("mlx-lm", limits)
	scale := float32(s.InputScale())
	if rounded := halffloat.FromBFloat16(halffloat.ToBFloat16(scale)); rounded != scale &&
		s.Kind == architecture.KindGemma3 {
		notes = append(notes, fmt.Sprintf("mlx-lm multiplies the embedding by √width rounded to "+
			"bfloat16, %g instead of %g", rounded, scale))
	}
	if s.Kind == architecture.KindGemma {
		notes = append(notes, "mlx-lm computes GELU without its approximation by tanh, which differs "+
			"by up to 0.0005")
	}
	return notes
}

// unlimited tells that a program does not limit attention to a window as the model does. windows
// reports whether it does so in models of this kind.
func (m *Model) unlimited(program string, windows bool) []string {
	window := m.OtherWindow
	if !windows {
		window = cmp.Or(m.Settings.Window, window)
	}
	if window == 0 || window >= cmp.Or(m.Positions, m.Settings.Context) {
		return nil
	}
	return []string{fmt.Sprintf("attention is limited to %d tokens (sliding_window), but not in %s: "+
		"its logits differ for longer sequences", window, program)}
}
