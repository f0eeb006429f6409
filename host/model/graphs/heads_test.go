package graphs

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testdistill"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
)

// divergences returns the divergences of rows, and the gradient of their sum.
func divergences(
	t *testing.T, d network.Distillation, logits, teacher []float32, rows int,
) (values, gradient []float32) {
	t.Helper()
	device := testdevice.Open(t, engine.Options{})
	columns := len(logits) / rows
	targets, ones := make([]int32, rows), make([]float32, rows)
	for i := range ones {
		ones[i] = 1
	}
	in := []*engine.Buffer{testdevice.Upload(t, device, logits, rows, columns),
		testdevice.Upload(t, device, teacher, rows, columns),
		testdevice.Upload(t, device, targets, rows), testdevice.Upload(t, device, ones, rows)}
	d.Weight = 1
	p := distilled(d, rows, columns)
	vjp, err := autodiff.VJP(p, "loss", "logits")
	if err != nil {
		t.Fatal(err)
	}
	out := testdevice.Evaluate(t, device, in, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return append(lower.Outputs(g, p, in[:3])[1:2], lower.Outputs(g, vjp, in)...)
	})
	return out[0], out[1]
}

// TestDivergenceGolden compares values and derivatives with results computed with 50 digits, the
// derivatives by finite differences.
func TestDivergenceGolden(t *testing.T) {
	logits, teacher := []float32{0.5, -1, 2, 0}, []float32{1.5, 0.25, -0.75, 3}
	for _, c := range []struct {
		d        network.Distillation
		value    float64
		gradient []float64
	}{
		{network.Distillation{Beta: 0.5, Temperature: 1}, 0.35811631165487195,
			[]float64{-0.0281419798922, -0.0087054750358, 0.124107782114, -0.0872603271857}},
		{network.Distillation{Beta: 0.5, Temperature: 2}, 0.12659357169673277,
			[]float64{-0.00927666786306, -0.00620341758588, 0.0513002208366, -0.0358201353877}},
		{network.Distillation{Beta: 0.1, Temperature: 1}, 0.1316521726175725,
			[]float64{-0.00386497952817, -0.00181197608311, 0.0529667161191, -0.0472897605078}},
		{network.Distillation{Beta: 0.9, Temperature: 0.5}, 0.29372067766157234,
			[]float64{-0.0194492553107, -0.00118152416647, 0.0411237728996, -0.0204929934224}},
		{network.Distillation{Beta: 0, Temperature: 1}, 1.5428322568455219,
			[]float64{-0.0118088276943, -0.0134246616841, 0.692155332085, -0.666921842707}},
		{network.Distillation{Beta: 1, Temperature: 2}, 0.62306010859104877,
			[]float64{-0.0820593033757, -0.045520719173, 0.280632898123, -0.153052875574}},
	} {
		values, gradient := divergences(t, c.d, logits, teacher, 1)
		if !(math.Abs(float64(values[0])-c.value) <= 3e-7) {
			t.Errorf("%+v: the divergence is %v, want %v", c.d, values[0], c.value)
		}
		for i, want := range c.gradient {
			if !(math.Abs(float64(gradient[i])-want) <= 2e-7) {
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
			d := network.Distillation{Beta: beta, Temperature: temperature}
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
					want := testdistill.Divergence(d, mine, theirs)
					if apart := math.Abs(float64(values[row]) - want); !(apart <= 5e-7*(1+largest)*(1+want)) {
						t.Errorf("row %d: the divergence is %v, want %v", row, values[row], want)
					}
					for i, want := range testdistill.Slopes(d, mine, theirs) {
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
// quantization-aware distillation, as means over the tokens that count. ../testdata/qad.py ran that
// code.
func TestDivergenceOfQAD(t *testing.T) {
	data, err := os.ReadFile("../testdata/qad.json")
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
		d := network.Distillation{Beta: 0, Temperature: c.Temperature, Squared: true}
		values, gradient := divergences(t, d, golden.Student, golden.Teacher, rows)
		loss := 0.0
		for row, value := range values {
			loss += float64(golden.Counts[row]) * float64(value) / counted
		}
		if !(math.Abs(loss-c.Loss) <= 1e-6*c.Loss) {
			t.Errorf("temperature %v: the loss is %v, want %v", c.Temperature, loss, c.Loss)
		}
		for i, want := range c.Gradient {
			got := float64(golden.Counts[i/golden.Vocabulary]) * float64(gradient[i]) / counted
			if !(math.Abs(got-want) <= 2e-7) {
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
	d := network.Distillation{Beta: 0.5, Temperature: 1}
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

// TestDrawColumns checks that columns are drawn as often as they are likely, also with an outlying
// logit.
func TestDrawColumns(t *testing.T) {
	logits := []float32{0, 1, -1, 3, -30, 2.5, 0.25}
	const rows = 1 << 16
	total := 0.0
	for _, v := range logits {
		total += math.Exp(float64(v))
	}
	d := testdevice.Open(t, engine.Options{})
	in := []*engine.Buffer{testdevice.Upload(t, d, logits, 1, len(logits)),
		testdevice.Upload(t, d, []uint32{5, 6}, 2)}
	p := built("draw", func(b *program.Builder) {
		x := b.Input("logits", program.FloatType(1, len(logits)))
		key := b.Input("key", program.Type{DType: program.Uint, Shape: []int{2}})
		all := x.Broadcast([]int{rows, len(logits)}, []int{0, 1})
		drawn := network.Drawn(all, b.RandomBits(key, rows, len(logits)))
		columns := b.Iota(program.Type{DType: program.Int, Shape: []int{1, len(logits)}}, 1)
		b.Output("times", columns.Eq(drawn).Convert(program.Float).ReduceSum(0))
	})
	out := testdevice.Evaluate(t, d, in, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return lower.Outputs(g, p, in)
	})
	for i, v := range logits {
		p := math.Exp(float64(v)) / total
		if deviation := math.Abs(float64(out[0][i]) - rows*p); deviation > 4*math.Sqrt(rows*p*(1-p))+0.5 {
			t.Errorf("column %d: %v times, want %v", i, out[0][i], rows*p)
		}
	}
}
