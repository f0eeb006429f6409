package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testdistill"
	"github.com/cage-qat/cage/host/testing/teststage"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

func wide(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
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
	half := atSites(t, &m, rows, context, func(ActivationSite) func(x program.Value) program.Value {
		return func(x program.Value) program.Value { return x.Scale(0.5) }
	})
	c.logits = wide(c.run(t, rows,
		func(params, _ []program.Value, batch program.Value) []program.Value {
			return []program.Value{logitsIn(&m, params, batch, half)}
		})[0])
	c.teacher = wide(c.run(t, rows,
		func(_, taught []program.Value, batch program.Value) []program.Value {
			return []program.Value{logitsIn(&m, taught, batch)}
		})[0])
	for _, d := range []network.Distillation{{Beta: 0.5, Temperature: 1, Weight: 1},
		{Beta: 0.5, Temperature: 2, Weight: 0.75}, {Beta: 0.2, Temperature: 1, Weight: 0.5}} {
		t.Run(fmt.Sprint(d), func(t *testing.T) { c.check(t, d, context, half) })
	}
}

// run computes outputs from the parameters of the model, those of the teacher, and the batch.
func (c *teaching) run(
	t *testing.T, rows int,
	build func(params, taught []program.Value, batch program.Value) []program.Value,
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
	return teststage.Compute(t, device, c.m.Calls(network.Shape{}), in,
		func(_ *program.Builder, in []program.Value) []program.Value {
			return build(in[:n], in[n:2*n], in[2*n])
		})
}

func (c *teaching) check(t *testing.T, d network.Distillation, context int,
	q map[string]*program.Call) {
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
			divergence += mean * weight * testdistill.Divergence(d, mine, theirs)
			crossEntropy -= mean * weight * math.Log(testdistill.Softmax(mine, 1)[target])
			certain := make([]float64, vocabulary)
			certain[target] = 1
			for i, slope := range testdistill.Slopes(d, mine, theirs) {
				slopes[at*vocabulary+i] = float32(
					mean * weight * (d.Weight*slope + (1-d.Weight)*(testdistill.Softmax(mine, 1)[i]-certain[i])))
			}
		}
	}
	out := c.run(t, rows, func(params, taught []program.Value, batch program.Value) []program.Value {
		of := passOf(c.m, params, batch, q)
		of.Head.Teacher = network.Teacher{Distillation: d, Settings: c.m.Settings}
		for i, p := range c.m.params {
			of.inputs[network.TeacherParam(p.Name)] = taught[i]
		}
		names := lists.Map(c.m.params, func(p architecture.Param) string { return p.Name })
		got := of.compute(c.m, names...)
		all := []program.Value{got[network.Losses], got[network.Divergence], got[network.Entropy]}
		for _, name := range names {
			all = append(all, got[autodiff.Prefix+name])
		}
		return append(all, c.through(t, passOf(c.m, params, batch, q), slopes)...)
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

// through returns the gradients with respect to the parameters, given those with respect to the
// logits.
func (c *teaching) through(t *testing.T, of pass, slopes []float32) []program.Value {
	of.Head.Logits = true
	p, err := network.New(c.m.Settings, of.Shape, of.Quantizers)
	if err != nil {
		t.Fatal(err)
	}
	names := lists.Map(c.m.params, func(p architecture.Param) string { return p.Name })
	if p, err = autodiff.VJP(p, network.Logits, names...); err != nil {
		t.Fatal(err)
	}
	b := of.inputs[network.Tokens].Builder()
	of.inputs[autodiff.Prefix+network.Logits] = b.Table(wide(slopes), of.Batch*of.Context, c.m.Vocab)
	out := transform.Inline(b, p, lists.Map(p.Inputs, func(in program.Input) program.Value {
		return of.inputs[in.Name]
	})...)
	return lists.Map(names, func(name string) program.Value { return out[autodiff.Prefix+name] })
}
