package sdktest

import (
	"reflect"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// checkTrained computes initial values from ordinary and from unusual tensors, and
// quantizes with them.
func (q *quantizerRun) checkTrained(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		if in.Init == nil {
			return
		}
		n := in.size()
		for _, sample := range [][]float64{x, scaled(0x1p20, x), scaled(0x1p-30, x), make([]float64, n), full(-2.5, n)} {
			from := in.from(sample)
			for name, v := range from.trained {
				t.finite(in.at(), "initial "+name, v.Type.Shape, v.Floats)
			}
			t.run(func() {
				in.finite(sample, "value with the initial parameters", from.quantize(sample).value)
			})
		}
	})
	q.trainedShapes(t)
	t.skipUntried("none")
}

// trainedShapes compares activations of different numbers of rows.
func (q *quantizerRun) trainedShapes(t *trial) {
	for _, v := range q.space.core() {
		var first []sdk.StateTensor
		for i, rows := range []int{1, 7, 16} {
			s, err := q.ask(v, sdk.RoleActivation, rows, 64)
			if err != nil {
				break
			}
			if i == 0 {
				first = s.Trained
			}
			if len(s.Trained) > 0 || len(first) > 0 {
				t.announce()
			}
			if !reflect.DeepEqual(s.Trained, first) {
				t.failf(s.example, "the trained parameters are %v, for one row %v", s.Trained, first)
			}
		}
	}
}

// checkDevices compares every machine with the oracle, with the oracle's trained
// parameters.
func (q *quantizerRun) checkDevices(t *trial) {
	if len(q.machines) == 1 {
		t.skipf("no device")
		return
	}
	q.onOracle(t, func(in *instance, x []float64) {
		vjp, err := in.reverse()
		t.must(in.at(), err)
		e, others := in.given(x), q.machines[1:]
		t.compare(e, others, "", in.Program, in.inputs(x))
		t.compare(e, others, "gradient ", vjp, in.reverseInputs(x, normal(7, in.shape...)))
		if in.Init != nil {
			t.compare(e, others, "initial ", in.Init, map[string]reference.Tensor{sdk.InputX: reference.Floats(x, in.shape...)})
		}
	})
}
