package train_test

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// operands quantizes keys, values, queries and the head: the values with trained parameters, the
// head with stochastic rounding.
var operands = []string{
	"model.hidden=64", "train.steps=30", "train.eval_every=0", "train.accumulate=2",
	`quantizer={plugin="quest"}`,
	`quantizer.keys={plugin="absmax"}`, `quantizer.values={plugin="lsq"}`,
	`quantizer.queries={plugin="absmax", bits=2}`,
	`quantizer.head={plugin="mxfp4", rounding="stochastic"}`,
}

// TestOperands checks that a model with quantized keys, values, queries and head trains, also with
// a tied head, that a resumed run gives the same bits, and that each of the four alone changes the
// first loss.
func TestOperands(t *testing.T) {
	testlevel.Long(t, "trains models")
	cfg := testrun.Config(t, append(operands, "method.lambda=5.0", "method.silence=0.5")...)
	testrun.Train(t, cfg, train.Options{})
	fell(t, cfg.Train.Out)
	inParts(t, cfg, 13)
	tied := testrun.Elsewhere(t, cfg, `model.head="tied"`)
	testrun.Train(t, tied, train.Options{})
	fell(t, tied.Train.Out)

	seen := [][]float64{losses(t, cfg.Train.Out)}
	short := testrun.Elsewhere(t, cfg, "train.steps=2", `method.form="off"`)
	for _, role := range []string{"none of them", "keys", "values", "queries", "head"} {
		without := short
		for _, other := range []string{"keys", "values", "queries", "head"} {
			if other != role {
				without = testrun.Elsewhere(t, without, "quantizer."+other+`={plugin="none"}`)
			}
		}
		testrun.Train(t, without, train.Options{})
		l := losses(t, without.Train.Out)
		if slices.ContainsFunc(seen, func(other []float64) bool { return other[0] == l[0] }) {
			t.Errorf("the first loss with %s alone is one of another run", role)
		}
		seen = append(seen, l)
	}
}
