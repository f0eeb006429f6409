package quantize_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

var usual = posttrain.Settings{Method: posttrain.GPTQ, Damping: 0.01, Scales: posttrain.AutoScales}

// outputError returns ‖(a − b)X‖² by its definition.
func outputError(a, b, x []float32, columns int) float64 {
	sum := 0.0
	for token := range len(x) / columns {
		for row := range len(a) / columns {
			dot := 0.0
			for j := range columns {
				dot += (float64(a[row*columns+j]) - float64(b[row*columns+j])) * float64(x[token*columns+j])
			}
			sum += dot * dot
		}
	}
	return sum
}

// TestReport checks that the reported error of each matrix is that of a pass through the whole
// model in which earlier layers are quantized, and later ones and those with the same input are
// not.
func TestReport(t *testing.T) {
	const texts = 6
	kinds := []string{
		architecture.KindLlama, architecture.KindGemma2, architecture.KindOLMo2, architecture.KindSmolLM3,
		architecture.KindGemma3, architecture.KindGranite,
	}
	for _, kind := range kinds[:testlevel.Sample(2, 6, 6)] {
		for _, onePass := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s one pass %t", kind, onePass), func(t *testing.T) {
				settings := usual
				settings.OnePass = onePass
				got := runBlocks(t, kind, rounding{group: 8}, settings, texts)
				m, values := small(t, kind, layersOf(kind), 32)
				replaced := map[string][]float32{}
				for block := range m.Network().Layers {
					x := activations(t, kind, texts, replaced)
					for _, site := range m.BlockSites(block, batch, length) {
						if !onePass {
							x = activations(t, kind, texts, replaced)
						}
						for _, name := range site.Feeds {
							w, _ := values(name)
							want := outputError(w, got[name].Value, x[name], site.Width)
							if e := got[name].Report.OutputError; math.Abs(e-want) > 1e-3*want || want == 0 {
								t.Errorf("%s: reported %v, want %v", name, e, want)
							}
						}
						for _, name := range site.Feeds {
							replaced[name] = got[name].Value
						}
					}
				}
				if len(replaced) != 5*m.Network().Layers {
					t.Errorf("%d matrices", len(replaced))
				}
			})
		}
	}
}

// TestBetterThanRounding checks that GPTQ changes outputs less than rounding for several
// quantizers, and reports both errors, and that its result is on the quantizer's grid.
func TestBetterThanRounding(t *testing.T) {
	for name, c := range map[string]struct {
		q      rounding
		change func(*posttrain.Settings)
		scales string
	}{
		"row":   {rounding{}, func(*posttrain.Settings) {}, posttrain.OriginalScales},
		"group": {rounding{group: 8}, func(*posttrain.Settings) {}, posttrain.CurrentScales},
		"original scales": {rounding{group: 8},
			func(s *posttrain.Settings) { s.Scales = posttrain.OriginalScales }, posttrain.OriginalScales},
		"activation order": {rounding{group: 8}, func(s *posttrain.Settings) { s.ActivationOrder = true },
			posttrain.OriginalScales},
		"rotated": {rounding{block: 16}, func(*posttrain.Settings) {}, posttrain.OriginalScales},
		"rotated groups": {rounding{group: 8, block: 32}, func(*posttrain.Settings) {},
			posttrain.CurrentScales},
	} {
		t.Run(name, func(t *testing.T) {
			settings := usual
			c.change(&settings)
			for name, w := range runBlocks(t, architecture.KindLlama, c.q, settings, 40) {
				r := w.Report
				if !(r.OutputError < r.RoundingError) || r.Fallback || r.Damping != 0.01 ||
					r.Scales != c.scales || r.Rotation != c.q.block {
					t.Errorf("%s: %+v with %+v", name, r, r.OutputErrors)
				}
				if (w.Scale == nil) != (c.q.block > 0) {
					t.Errorf("%s: %d scales", name, len(w.Scale))
				}
				for i, v := range w.Value {
					if w.Scale == nil {
						break
					}
					group := 32
					if r.Shape[1] != 32 {
						group = r.Shape[1]
					}
					if c.q.group > 0 {
						group = c.q.group
					}
					code := v / w.Scale[i/group]
					if off := math.Abs(float64(code) - math.Round(float64(code))); off > 1e-6 ||
						math.Abs(float64(code)) > 3.001 {
						t.Fatalf("%s: element %d is %v of its scale", name, i, code)
					}
				}
			}
		})
	}
}

// TestRounding checks that RTN gives Q(W), with and without texts.
func TestRounding(t *testing.T) {
	settings := posttrain.Settings{Method: posttrain.RTN}
	with, without := runBlocks(t, architecture.KindLlama, plain{}, settings, 4),
		runBlocks(t, architecture.KindLlama, plain{}, settings, 0)
	_, values := small(t, architecture.KindLlama, 2, 32)
	if len(with) != 10 || len(without) != 10 {
		t.Fatalf("%d and %d matrices", len(with), len(without))
	}
	for name := range with {
		w, _ := values(name)
		want := make([]float32, len(w))
		for i, v := range w {
			want[i] = float32(math.RoundToEven(float64(v)*16)) / 16
		}
		a, b := with[name], without[name]
		if !slices.Equal(a.Value, want) || !slices.Equal(b.Value, want) {
			t.Errorf("%s is not Q(W)", name)
		}
		if a.Report.OutputErrors == nil || a.Report.OutputError != a.Report.RoundingError ||
			b.Report.OutputErrors != nil || a.Report.WeightError != b.Report.WeightError {
			t.Errorf("%s: %+v, without texts %+v", name, a.Report, b.Report)
		}
	}
}

// TestSame checks that a repetition gives the same bits.
func TestSame(t *testing.T) {
	first, again := runBlocks(t, architecture.KindLlama, rounding{group: 8}, usual, 6),
		runBlocks(t, architecture.KindLlama, rounding{group: 8}, usual, 6)
	for name, w := range first {
		if !slices.Equal(w.Value, again[name].Value) ||
			*w.Report.OutputErrors != *again[name].Report.OutputErrors {
			t.Errorf("%s differs", name)
		}
	}
}

func TestRefuses(t *testing.T) {
	m, values := small(t, architecture.KindLlama, 2, 32)
	base := quantize.Blocks{Settings: usual, Device: cpu(t), Model: m,
		Weights: programs(t, m, rounding{}), Values: values, Sequences: sequences(2), Batch: batch,
		Context: length,
		Block:   func(int, []*quantize.Quantized) error { return nil }}
	for _, c := range []struct {
		want   string
		change func(*quantize.Blocks)
	}{
		{"layers.0.attn.qkv: GPTQ needs the levels of the quantizer: the quantizer returns no codes " +
			"and scales", func(r *quantize.Blocks) {
			r.Weights = programs(t, m, plain{})
		}},
		{"token 40 is outside the model's vocabulary of 40",
			func(r *quantize.Blocks) { r.Sequences[1][3] = vocabulary }},
		{"layers.1.mlp.w1: 1 of 2048 numbers are NaN or infinite", func(r *quantize.Blocks) {
			r.Values = func(name string) ([]float32, error) {
				w, err := values(name)
				if name == "layers.1.mlp.w1" {
					w[7] = float32(math.Inf(1))
				}
				return w, err
			}
		}},
		{"embedding: 1280 of 1280 numbers are NaN or infinite", func(r *quantize.Blocks) {
			r.Values = scaled(values, "embedding", math.NaN())
		}},
		{"layers.0.attn.qkv: the outputs of the layer are NaN or too large", func(r *quantize.Blocks) {
			r.Settings.Method = posttrain.RTN
			r.Values = scaled(values, "layers.0.attn.qkv", 1e30)
		}},
		{"no disk", func(r *quantize.Blocks) {
			r.Block = func(int, []*quantize.Quantized) error { return errors.New("no disk") }
		}},
	} {
		r := base
		r.Sequences = sequences(2)
		c.change(&r)
		if err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := base.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// scaled multiplies the values of one parameter.
func scaled(
	values func(string) ([]float32, error), param string, by float64,
) func(string) ([]float32, error) {
	return func(name string) ([]float32, error) {
		w, err := values(name)
		if name == param {
			w = lists.Map(w, func(x float32) float32 { return x * float32(by) })
		}
		return w, err
	}
}

// TestMemory checks that the memory in use does not grow with the number of blocks.
func TestMemory(t *testing.T) {
	testlevel.Long(t, "runs a model of many blocks")
	const layers, width = 24, 64
	m, values := small(t, architecture.KindLlama, layers, width)
	size := uint64(4 * architecture.CountParams(m.BlockParams(0), nil))
	var used []uint64
	r := quantize.Blocks{Settings: usual, Device: cpu(t), Model: m,
		Weights: programs(t, m, rounding{}), Values: values, Sequences: sequences(8), Batch: batch,
		Context: length,
		Block: func(int, []*quantize.Quantized) error {
			runtime.GC()
			runtime.GC() // pools keep their content for one collection
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			used = append(used, now.HeapAlloc)
			return nil
		}}
	if err := r.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if early, late := used[3], used[layers-1]; late > early+size {
		t.Errorf("%d bytes behind block %d, %d behind block 4; a block has %d", late, layers, early, size)
	}
}
