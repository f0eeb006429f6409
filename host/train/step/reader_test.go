package step_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// readerVocab is the vocabulary of a reader.
const readerVocab = 11

// reader is an untrained model that reads 17 random tokens.
type reader struct {
	e         *step.Evaluator
	tokens    []int32
	logits    []float32 // after each token but the last
	quantized bool      // so are its activations
}

// newReader makes a reader with settings of a configuration and quantizers for pieces of
// these lengths.
func newReader(t *testing.T, settings []string, pieces ...int) reader {
	t.Helper()
	plan := testrun.Plan(t, testrun.Config(t, append(settings, testrun.TwoLayers, "model.context=16", "model.vocab=11", "train.batch=1")...), pieces...)
	r := reader{tokens: make([]int32, 17), quantized: len(plan.Activations) > 0}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range r.tokens {
		r.tokens[i] = int32(rng.IntN(readerVocab))
	}
	k := testrun.Compile(t, plan)
	s, err := k.NewState(3, r.tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if r.e, err = k.Evaluator(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.e.Close)
	if r.logits, err = r.e.Logits(r.tokens[:16]); err != nil {
		t.Fatal(err)
	}
	return r
}
