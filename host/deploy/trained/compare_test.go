package trained_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
)

// TestCompare compares the divergence of a run from its own weights in full precision with one
// computed from the log-probability of every token after every prefix of a batch.
func TestCompare(t *testing.T) {
	const context = 8
	cfg := testrun.Config(t, `quantizer={weights={plugin="absmax", bits=2}}`, "model.context=8",
		"train.batch=2", "train.steps=60", "schedule.rate=1e-2",
		"train.final_eval_batches=0", "train.eval_batches=0")
	testrun.Train(t, cfg, train.Options{})
	options := trained.Options{Finder: testrun.Finder(t), Score: true}
	m := open(t, cfg.Train.Out, options)
	options.Quantizer = &trained.Quantizer{Plugin: trained.NoQuantizer}
	plain, err := m.OpenReference(t.Context(), cfg.Train.Out, options)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	file, err := dataset.Open(cfg.Data.Validation)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := dataset.NewSequential(file, context, 2)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, s.BatchLen())
	if rows, err := s.At(0, ids); err != nil || rows != 2 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	// predictions returns the log-probabilities of all tokens after each prefix.
	predictions := func(m *trained.Model) (list [][]float64) {
		var sequences [][]int32
		for row := range 2 {
			for end := 1; end <= context; end++ {
				for id := range int32(m.Config.Model.Vocab) {
					prefix := ids[row*(context+1):][:end]
					sequences = append(sequences, append(append([]int32{}, prefix...), id))
				}
			}
		}
		found, err := m.LogProbs(t.Context(), sequences)
		if err != nil {
			t.Fatal(err)
		}
		for i, of := range found {
			if i%m.Config.Model.Vocab == 0 {
				list = append(list, nil)
			}
			last := &list[len(list)-1]
			*last = append(*last, float64(of[len(of)-1]))
		}
		return list
	}
	p, q := predictions(plain), predictions(m)
	kl, same, loss := 0.0, 0.0, 0.0
	for i := range p {
		loss -= q[i][ids[i/context*(context+1)+i%context+1]] / float64(len(p))
		best, other := 0, 0
		for v := range p[i] {
			kl += math.Exp(p[i][v]) * (p[i][v] - q[i][v]) / float64(len(p))
			if p[i][v] > p[i][best] {
				best = v
			}
			if q[i][v] > q[i][other] {
				other = v
			}
		}
		if best == other {
			same += 1 / float64(len(p))
		}
	}
	got, err := m.Compare(t.Context(), plain, 2)
	if err != nil || math.Abs(got.KL-kl) > 1e-5 || math.Abs(got.Agreement-same) > 1e-9 ||
		math.Abs(got.Loss-loss) > 1e-5 ||
		got.Tokens != 2*context {
		t.Errorf("%+v, %v; want a divergence of %v, %v equal and a loss of %v",
			got, err, kl, same, loss)
	}
	if of := got.Sequences; len(of.KL) != 2 || len(of.Agreement) != 2 ||
		math.Abs((of.KL[0]+of.KL[1])/2-got.KL) > 1e-12 ||
		math.Abs((of.Agreement[0]+of.Agreement[1])/2-got.Agreement) > 1e-12 || of.KL[0] == of.KL[1] {
		t.Errorf("by sequences: %+v, want two with the means %v and %v", of, got.KL, got.Agreement)
	}
	first, err := m.Compare(t.Context(), plain, 1) // a part of a batch
	if err != nil || first.Tokens != context || math.Abs(first.KL-got.Sequences.KL[0]) > 1e-12 {
		t.Errorf("the first sequence: %+v, %v; want a divergence of %v", first, err, got.Sequences.KL[0])
	}
	if kl < 1e-3 {
		t.Errorf("the quantized model differs by %v nats: the test shows nothing", kl)
	}
	if got, err := plain.Compare(t.Context(), plain, 0); err == nil {
		t.Errorf("a model without data: %+v", got)
	}
	_, err = m.OpenReference(t.Context(), "../../model/huggingface/testdata/llama32",
		trained.Options{Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(), "only predictions for the same tokens") {
		t.Errorf("another vocabulary: %v", err)
	}
}
