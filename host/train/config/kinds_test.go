package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
)

// problem is the shortest configuration of a problem without data.
const problem = `[model]
kind = "quadratic"
dimension = 2
[train]
steps = 10
[schedule]
rate = 1e-3
`

func TestProblem(t *testing.T) {
	c := parse(t, problem, "model.rows=2", "model.spectrum=[0.5, 1]", "model.optimum=[1, 2, 3.5, -4]")
	want := architecture.Settings{Kind: architecture.KindQuadratic, Dimension: 2, Rows: 2, Condition: 10, Spectrum: []float64{0.5, 1},
		Optimum: []float64{1, 2, 3.5, -4}, StartStd: 1, Noise: 0.01, Context: 1}
	if diff := cmp.Diff(want, c.Model); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	if c.Train.Clip != 0 || c.Train.Batch != 1 || c.Train.TrajectoryEvery != 10 || c.Train.WeightDecay != 0 || !reflect.DeepEqual(c.Data, Data{}) {
		t.Errorf("a problem is not clipped, has no batches, decay or data: %+v, %+v", c.Train, c.Data)
	}
	roundTrip(t, c)
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"[data]", "layers", "batch", "context", "start = "} {
		if strings.Contains(string(text), foreign) {
			t.Errorf("there is %q in\n%s", foreign, text)
		}
	}
	toy := parse(t, strings.Replace(problem, `"quadratic"`+"\ndimension = 2", `"toy"`+"\nstart = 3", 1))
	if m := toy.Model; m.Dimension != 1 || m.Rows != 1 || m.Noise != 0 || !cmp.Equal(m.Start, []float64{3}) {
		t.Errorf("toy: %+v", m)
	}
	roundTrip(t, toy)
}

func TestOLMo2Defaults(t *testing.T) {
	c := parse(t, small, `model.kind="olmo2"`)
	if c.Model.KVHeads != 2 || c.Model.RopePairs != "half" || c.Model.RopeFactor != 1 {
		t.Errorf("model %+v", c.Model)
	}
	if c.Model.NormEps != 1e-6 || c.Model.RopeTheta != 500000 || c.Model.InitStd != 0.02 || c.Train.Clip != 1 {
		t.Errorf("model %+v, clip %v", c.Model, c.Train.Clip)
	}
}
