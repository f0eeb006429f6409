package quantize_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// informed gives a weight one of the statistics of columns, as a hundredth, in each row, and leaves an activation as it is.
type informed struct {
	statistic func(sdk.Site) program.Value
	trained   bool // as a trained parameter in place of state
}

func (informed) Describe() sdk.Description { return sdk.Description{Name: "informed"} }

func (q informed) InitState(_ *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	if q.trained && site.Role == sdk.RoleWeight {
		return nil, nil
	}
	return sdk.State{"columns": q.statistic(site).Scale(0.01)}, nil
}

func (q informed) InitTrained(_ *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	if !q.trained || site.Role == sdk.RoleActivation {
		return nil, nil
	}
	return sdk.State{"columns": q.statistic(site).Scale(0.01)}, nil
}

func (q informed) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if site.Role == sdk.RoleActivation {
		return sdk.Quantized{Value: x.Add(site.State["columns"].Scale(0)), Next: site.State}, nil
	}
	if q.trained {
		return sdk.Quantized{Value: x.Scale(0).Add(site.Trained["columns"]), Surrogate: x.Add(site.Trained["columns"])}, nil
	}
	return sdk.Quantized{Value: x.Scale(0).Add(site.State["columns"]), Next: site.State}, nil
}

// TestColumns: the quantizers of a product begin with the statistics of the inputs that the layer will have in all texts, and of its
// weights, of those that share an input together.
func TestColumns(t *testing.T) {
	const texts = 4
	m, values := small(t, architecture.KindLlama, 2, 32)
	for name, c := range map[string]struct {
		q       informed
		of      func(activation, weights [][]float32, column int) float64
		onePass bool
	}{
		"largest activations": {informed{statistic: func(s sdk.Site) program.Value { return s.Activations.Max }}, func(a, _ [][]float32, i int) float64 { return most(a, i) }, false},
		"mean activations":    {informed{statistic: func(s sdk.Site) program.Value { return s.Activations.Mean }, trained: true}, func(a, _ [][]float32, i int) float64 { return mean(a, i) }, false},
		"largest weights":     {informed{statistic: func(s sdk.Site) program.Value { return s.Weights.Max }}, func(_, w [][]float32, i int) float64 { return most(w, i) }, true},
		"mean weights":        {informed{statistic: func(s sdk.Site) program.Value { return s.Weights.Mean }}, func(_, w [][]float32, i int) float64 { return mean(w, i) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			quantizers := map[string]spec.Quantizer{}
			for _, s := range m.ActivationSites(batch, length) {
				p, err := sdk.BuildQuantizer(c.q, sdk.Site{Role: sdk.RoleActivation, Name: s.Name, Shape: []int{batch * length, s.Width}})
				if err != nil {
					t.Fatal(err)
				}
				quantizers[s.Name] = p
			}
			replaced, states := map[string][]float32{}, map[string][]float32{}
			r := quantize.Blocks{Settings: posttrain.Settings{Method: posttrain.RTN, OnePass: c.onePass}, Device: cpu(t), Model: m, Weights: programs(t, m, c.q), Activations: quantizers,
				Values: fleeting(values), Sequences: sequences(texts), Batch: batch, Context: length,
				State: func(site, _ string, _ []int, values []float32) error {
					states[site] = values
					return nil
				},
				Block: func(_ int, list []*quantize.Quantized) error {
					for _, w := range list {
						replaced[w.Report.Name] = slices.Clone(w.Value)
					}
					return nil
				}}
			if err := r.Do(t.Context()); err != nil {
				t.Fatal(err)
			}
			inputs := activations(t, architecture.KindLlama, texts, replaced)
			for _, s := range m.ActivationSites(batch, length) {
				var weights [][]float32
				for _, w := range s.Feeds {
					data, _ := values(w)
					weights = slices.AppendSeq(weights, slices.Chunk(data, s.Width))
				}
				activation := slices.Collect(slices.Chunk(inputs[s.Feeds[0]], s.Width))
				for i := range s.Width {
					want := 0.01 * c.of(activation, weights, i)
					for _, w := range s.Feeds {
						if got := float64(replaced[w][i]); !(math.Abs(got-want) <= 1e-4*want) {
							t.Fatalf("%s has %v in column %d, want %v", w, got, i, want)
						}
					}
					if got := float64(states[s.Name][i]); !(math.Abs(got-want) <= 1e-4*want) {
						t.Fatalf("%s has %v in column %d, want %v", s.Name, got, i, want)
					}
				}
			}
		})
	}
}

func most(rows [][]float32, i int) (m float64) {
	for _, r := range rows {
		m = max(m, math.Abs(float64(r[i])))
	}
	return m
}

func mean(rows [][]float32, i int) (m float64) {
	for _, r := range rows {
		m += math.Abs(float64(r[i])) / float64(len(rows))
	}
	return m
}

// TestColumnsNeedTexts: without texts there are no statistics.
func TestColumnsNeedTexts(t *testing.T) {
	m, values := small(t, architecture.KindLlama, 2, 32)
	q := informed{statistic: func(s sdk.Site) program.Value { return s.Activations.Max }}
	r := quantize.Blocks{Settings: posttrain.Settings{Method: posttrain.RTN}, Device: cpu(t), Model: m, Weights: programs(t, m, q), Values: fleeting(values), Batch: 1, Context: length,
		Block: func(int, []*quantize.Quantized) error { return nil }}
	if err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "layers.0.attn.qkv: its quantizer takes statistics of activations: calibrate with texts") {
		t.Errorf("error %v", err)
	}
}
