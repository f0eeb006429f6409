package model

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// softmax64 returns softmax(logits/temperature).
func softmax64(logits []float64, temperature float64) []float64 {
	highest, total := math.Inf(-1), 0.0
	for _, x := range logits {
		highest = max(highest, x)
	}
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = math.Exp((x - highest) / temperature)
		total += out[i]
	}
	for i := range out {
		out[i] /= total
	}
	return out
}

func kl64(p, q []float64) float64 {
	sum := 0.0
	for i := range p {
		if p[i] > 1e-300 { // so that p[i]/2 is also above 0
			sum += p[i] * math.Log(p[i]/q[i])
		}
	}
	return sum
}

// divergence64 returns the divergence by its definition, in float64.
func divergence64(d Distillation, logits, teacher []float64) float64 {
	p, q := softmax64(teacher, d.Temperature), softmax64(logits, d.Temperature)
	switch d.Beta {
	case 0:
		return kl64(p, q)
	case 1:
		return kl64(q, p)
	}
	mixture := make([]float64, len(p))
	for i := range p {
		mixture[i] = d.Beta*p[i] + (1-d.Beta)*q[i]
	}
	return d.Beta*kl64(p, mixture) + (1-d.Beta)*kl64(q, mixture)
}

// slopes64 returns fourth-order finite differences of the divergence with respect to the logits.
func slopes64(d Distillation, logits, teacher []float64) []float64 {
	const h = 1e-3
	out := make([]float64, len(logits))
	at := func(i int, by float64) float64 {
		moved := append([]float64(nil), logits...)
		moved[i] += by
		return divergence64(d, moved, teacher)
	}
	for i := range out {
		out[i] = (8*(at(i, h)-at(i, -h)) - (at(i, 2*h) - at(i, -2*h))) / (12 * h)
	}
	return out
}

// divergences returns the divergences of rows, and the gradient of their sum.
func divergences(
	t *testing.T, d Distillation, logits, teacher []float32, rows int,
) (values, gradient []float32) {
	t.Helper()
	device := testdevice.Open(t, engine.Options{})
	in := []*engine.Buffer{testdevice.Upload(t, device, logits, rows, len(logits)/rows),
		testdevice.Upload(t, device, teacher, rows, len(logits)/rows)}
	out := testdevice.Evaluate(t, device, in, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		value := graph.MulScalar(divergence(d, newPredictions(in[0], d.Temperature),
			newPredictions(in[1], d.Temperature)), d.Scale())
		return append([]*graph.Node{value}, graph.Gradient(graph.ReduceAllSum(value), in[0])...)
	})
	return out[0], out[1]
}

// TestDivergenceGolden compares values and derivatives with results computed with 50 digits, the
// derivatives by finite differences.
func TestDivergenceGolden(t *testing.T) {
	logits, teacher := []float32{0.5, -1, 2, 0}, []float32{1.5, 0.25, -0.75, 3}
	for _, c := range []struct {
		d        Distillation
		value    float64
		gradient []float64
	}{
		{Distillation{Beta: 0.5, Temperature: 1}, 0.35811631165487195,
			[]float64{-0.0281419798922, -0.0087054750358, 0.124107782114, -0.0872603271857}},
		{Distillation{Beta: 0.5, Temperature: 2}, 0.12659357169673277,
			[]float64{-0.00927666786306, -0.00620341758588, 0.0513002208366, -0.0358201353877}},
		{Distillation{Beta: 0.1, Temperature: 1}, 0.1316521726175725,
			[]float64{-0.00386497952817, -0.00181197608311, 0.0529667161191, -0.0472897605078}},
		{Distillation{Beta: 0.9, Temperature: 0.5}, 0.29372067766157234,
			[]float64{-0.0194492553107, -0.00118152416647, 0.0411237728996, -0.0204929934224}},
		{Distillation{Beta: 0, Temperature: 1}, 1.5428322568455219,
			[]float64{-0.0118088276943, -0.0134246616841, 0.692155332085, -0.666921842707}},
		{Distillation{Beta: 1, Temperature: 2}, 0.62306010859104877,
			[]float64{-0.0820593033757, -0.045520719173, 0.280632898123, -0.153052875574}},
	} {
		values, gradient := divergences(t, c.d, logits, teacher, 1)
		if math.Abs(float64(values[0])-c.value) > 3e-7 {
			t.Errorf("%+v: the divergence is %v, want %v", c.d, values[0], c.value)
		}
		for i, want := range c.gradient {
			if math.Abs(float64(gradient[i])-want) > 2e-7 {
				t.Errorf("%+v: derivative %d is %v, want %v", c.d, i, gradient[i], want)
			}
		}
	}
}

// TestDivergenceAgrees compares divergences with the definition in float64, and gradients with its
// finite differences, for predictions that are alike, far apart, certain, and without a common
// token.
func TestDivergenceAgrees(t *testing.T) {
	const rows, vocabulary = 24, 37
	rng := rand.New(rand.NewPCG(5, 6))
	logits, teacher := make([]float32, rows*vocabulary), make([]float32, rows*vocabulary)
	for i := range logits {
		row := i / vocabulary
		spread := []float64{0.5, 4, 30, 300}[row%4]
		teacher[i] = float32(spread * rng.NormFloat64())
		logits[i] = teacher[i] + float32([]float64{0, 0.01, 1, spread}[row/4%4]*rng.NormFloat64())
		if row >= 16 {
			logits[i] = float32(spread * rng.NormFloat64())
		}
	}
	for _, beta := range []float64{0, 0.05, 0.3, 0.5, 0.8, 1} {
		for _, temperature := range []float64{0.7, 1, 3} {
			d := Distillation{Beta: beta, Temperature: temperature}
			t.Run(fmt.Sprintf("beta %v, temperature %v", beta, temperature), func(t *testing.T) {
				values, gradient := divergences(t, d, logits, teacher, rows)
				for row := range rows {
					from := row * vocabulary
					mine, theirs := wide(logits[from:from+vocabulary]), wide(teacher[from:from+vocabulary])
					if (beta == 0 || beta == 1) && row%4 == 3 {
						continue // probabilities vanish even in float64
					}
					// The rounding errors of the logits are unavoidable.
					largest := max(largestOf(mine), largestOf(theirs)) / temperature
					want := divergence64(d, mine, theirs)
					if apart := math.Abs(float64(values[row]) - want); !(apart <= 5e-7*(1+largest)*(1+want)) {
						t.Errorf("row %d: the divergence is %v, want %v", row, values[row], want)
					}
					for i, want := range slopes64(d, mine, theirs) {
						apart := math.Abs(float64(gradient[from+i]) - want)
						if !(apart <= 5e-7*(1+largest)*(1+math.Abs(want))) {
							t.Errorf("row %d: derivative %d is %v, want %v", row, i, gradient[from+i], want)
						}
					}
				}
			})
		}
	}
}

// TestDivergenceOfQAD checks that loss and gradient equal those of NVIDIA's code for
// quantization-aware distillation, as means over the tokens that count. testdata/qad.py ran that
// code.
func TestDivergenceOfQAD(t *testing.T) {
	data, err := os.ReadFile("testdata/qad.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Vocabulary       int
		Student, Teacher []float32
		Counts           []int // 1 where a token counts
		Cases            []struct {
			Temperature, Loss float64
			Gradient          []float64
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	rows, counted := len(golden.Counts), 0.0
	for _, c := range golden.Counts {
		counted += float64(c)
	}
	for _, c := range golden.Cases {
		d := Distillation{Beta: 0, Temperature: c.Temperature, Squared: true}
		values, gradient := divergences(t, d, golden.Student, golden.Teacher, rows)
		loss := 0.0
		for row, value := range values {
			loss += float64(golden.Counts[row]) * float64(value) / counted
		}
		if math.Abs(loss-c.Loss) > 1e-6*c.Loss {
			t.Errorf("temperature %v: the loss is %v, want %v", c.Temperature, loss, c.Loss)
		}
		for i, want := range c.Gradient {
			got := float64(golden.Counts[i/golden.Vocabulary]) * float64(gradient[i]) / counted
			if math.Abs(got-want) > 2e-7 {
				t.Errorf("temperature %v: derivative %d is %v, want %v", c.Temperature, i, got, want)
			}
		}
	}
}

func largestOf(values []float64) float64 {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	return largest
}

func wide(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

// TestDivergenceOfExtremes checks that predictions without a common token have a finite divergence
// and gradient, log 2 and 0 for β = ½, and that both are 0 if a model predicts the same as its
// teacher.
func TestDivergenceOfExtremes(t *testing.T) {
	d := Distillation{Beta: 0.5, Temperature: 1}
	values, gradient := divergences(t, d, []float32{1000, -1000, 0, 3, -2, 5},
		[]float32{-1000, 1000, 0, 3, -2, 5}, 2)
	if math.Abs(float64(values[0])-math.Ln2) > 1e-6 || values[1] != 0 {
		t.Errorf("the divergences are %v, want ln 2 and 0", values)
	}
	for i, slope := range gradient {
		if slope != 0 {
			t.Errorf("derivative %d is %v, want 0", i, slope)
		}
	}
}

// teaching holds a small model, a batch, and the logits of the model and of its teacher in float64.
type teaching struct {
	m               *transformer
	weights, taught [][]float32 // of the model and of its teacher
	batch           []int32
	logits, teacher []float64
}

// TestDistilled checks for each architecture that losses, divergences and cross-entropies follow
// from the logits, and that the gradient with respect to the parameters is that of the logits,
// weighted by the loss's derivatives. Activation quantizers must only affect the model.
func TestDistilled(t *testing.T) {
	testlevel.Long(t, "gradients of every architecture")
	eachLanguage(t, testDistilled)
}

func testDistilled(t *testing.T, language Language) {
	const context, rows = 12, 2
	m := *language.(*transformer)
	m.Documents = true
	c := teaching{m: &m, weights: hashedWeights(m.params), taught: initial(&m, 7)}
	c.batch, _ = packed(context, m.Vocab, rand.New(rand.NewPCG(1, 2)))
	for _, r := range dataset.RowsOf(c.batch, context) {
		for place := 1; place <= context; place++ {
			r.SetWeight(place, r.Weight(place)*(1+float32(place)/8))
		}
	}
	half := func(_ ActivationSite, x *graph.Node) *graph.Node { return graph.MulScalar(x, 0.5) }
	c.logits = wide(c.run(t, rows, func(params, _ []*graph.Node, batch *graph.Node) []*graph.Node {
		return []*graph.Node{m.BatchLogits(params, batch, half)}
	})[0])
	c.teacher = wide(c.run(t, rows, func(_, taught []*graph.Node, batch *graph.Node) []*graph.Node {
		return []*graph.Node{m.BatchLogits(taught, batch, nil)}
	})[0])
	for _, d := range []Distillation{{Beta: 0.5, Temperature: 1, Weight: 1},
		{Beta: 0.5, Temperature: 2, Weight: 0.75}, {Beta: 0.2, Temperature: 1, Weight: 0.5}} {
		t.Run(fmt.Sprint(d), func(t *testing.T) { c.check(t, d, context, half) })
	}
}

// run computes outputs from the parameters of the model, those of the teacher, and the batch.
func (c *teaching) run(
	t *testing.T, rows int, build func(params, taught []*graph.Node, batch *graph.Node) []*graph.Node,
) [][]float32 {
	t.Helper()
	device := testdevice.Open(t, engine.Options{})
	var in []*engine.Buffer
	for _, weights := range [][][]float32{c.weights, c.taught} {
		for i, p := range c.m.params {
			in = append(in, testdevice.Upload(t, device, weights[i], p.Dims...))
		}
	}
	in = append(in, testdevice.Upload(t, device, c.batch, rows, dataset.Planes,
		len(c.batch)/rows/dataset.Planes))
	n := len(c.m.params)
	return testdevice.Evaluate(t, device, in, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return build(in[:n], in[n:2*n], in[2*n])
	})
}

func (c *teaching) check(t *testing.T, d Distillation, context int, q ActivationQuantizer) {
	rows, vocabulary := len(c.logits)/context/c.m.Vocab, c.m.Vocab
	slopes := make([]float32, len(c.logits))
	var loss, divergence, crossEntropy float64
	mean := 1 / float64(rows*context)
	for row, r := range dataset.RowsOf(c.batch, context) {
		for place := range context {
			at := row*context + place
			mine, theirs := c.logits[at*vocabulary:(at+1)*vocabulary],
				c.teacher[at*vocabulary:(at+1)*vocabulary]
			weight, target := float64(r.Weight(place+1)), r.Tokens[place+1]
			divergence += mean * weight * divergence64(d, mine, theirs)
			crossEntropy -= mean * weight * math.Log(softmax64(mine, 1)[target])
			certain := make([]float64, vocabulary)
			certain[target] = 1
			for i, slope := range slopes64(d, mine, theirs) {
				slopes[at*vocabulary+i] = float32(
					mean * weight * (d.Weight*slope + (1-d.Weight)*(softmax64(mine, 1)[i]-certain[i])))
			}
		}
	}
	out := c.run(t, rows, func(params, taught []*graph.Node, batch *graph.Node) []*graph.Node {
		got := c.m.Distilled(params, batch, c.m.BatchLogits(taught, batch, nil), q, d)
		all := append([]*graph.Node{got.Loss, got.Divergence, got.CrossEntropy},
			graph.Gradient(got.Loss, params...)...)
		through := engine.Constant(batch.Graph(), slopes, rows, context, vocabulary)
		logits := c.m.BatchLogits(params, batch, q)
		return append(all, graph.Gradient(graph.ReduceAllSum(graph.Mul(logits, through)), params...)...)
	})
	loss = d.Weight*divergence + (1-d.Weight)*crossEntropy
	for i, want := range []float64{loss, divergence, crossEntropy} {
		if apart := math.Abs(float64(out[i][0]) - want); !(apart <= 2e-6*(1+math.Abs(want))) {
			t.Errorf("output %d is %v, want %v", i, out[i][0], want)
		}
	}
	for i, p := range c.m.params {
		got, want := out[3+i], out[3+len(c.m.params)+i]
		if apart := engine.Distance(got, want); !(apart < 5e-5) {
			t.Errorf("the gradient of %s is %.2g from that of the logits, relative to its norm", p.Name,
				apart)
		}
	}
}

// TestDistilledChecks checks that ids outside the vocabulary make all losses NaN, and that the
// teacher's logits must have the right shape.
func TestDistilledChecks(t *testing.T) {
	m := newLlama(tiny)
	tokens := hashedTokens(0, 12, tiny.Vocab)
	tokens[3] = int32(tiny.Vocab)
	d := Distillation{Beta: 0.5, Temperature: 1, Weight: 1}
	out := evaluate(t, m, initial(m, 1), tokens, 2,
		func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			got := m.Distilled(params, ids, m.BatchLogits(params, ids, nil), nil, d)
			return []*graph.Node{got.Loss, got.Divergence, got.CrossEntropy}
		})
	for i, list := range out {
		for _, loss := range list {
			if loss == loss {
				t.Errorf("output %d: %v, want NaN", i, list)
				break
			}
		}
	}
	evaluate(t, m, initial(m, 1), tokens, 2,
		func(params []*graph.Node, ids *graph.Node) (out []*graph.Node) {
			teacher := m.BatchLogits(params, ids, nil)
			out = []*graph.Node{teacher}
			defer func() {
				if recover() == nil {
					t.Error("logits of another shape were accepted")
				}
			}()
			m.Distilled(params, ids, graph.Slice(teacher, graph.AxisRange(0, 1)), nil, d)
			return out
		})
}
