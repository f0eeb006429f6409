package step_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/step"
)

// TestScores: targets of sequences of different lengths have the log-probabilities that the
// logits of each sequence alone give, quantized as in training.
func TestScores(t *testing.T) {
	const tokens = 48
	for name, settings := range map[string][]string{
		"full precision": {`quantizer={plugin="none"}`},
		"4 bits":         nil,
		"mxfp4":          {`quantizer={plugin="mxfp4"}`},
		"qwen3":          {`quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`, `model.kind="qwen3"`, "model.kv_heads=1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, settings, tokens)
			for _, lengths := range [][]int32{{16, 5, 0}, {7, 8, 1, 3}} {
				checkScores(t, r, lengths, tokens/len(lengths))
			}
			if _, _, err := r.e.Scores(step.Scored{Rows: 1, Length: 48, Tokens: make([]int32, 48), Lengths: []int32{48}, Places: []int32{48}, Targets: []int32{1}}); err == nil ||
				!strings.Contains(err.Error(), "the place 48 is none of 48") {
				t.Errorf("a place behind the tokens: %v", err)
			}
		})
	}
}

// checkScores scores the token behind each place of rows that begin as the reader's tokens do.
func checkScores(t *testing.T, r reader, lengths []int32, length int) {
	t.Helper()
	s := step.Scored{Rows: len(lengths), Length: length, Lengths: lengths}
	var at []int
	for row, n := range lengths {
		s.Tokens = append(s.Tokens, r.tokens[:n]...)
		s.Tokens = append(s.Tokens, make([]int32, length-int(n))...)
		for k := range int(n) {
			s.Places, s.Targets = append(s.Places, int32(row*length+k)), append(s.Targets, r.tokens[k+1])
			at = append(at, k)
		}
	}
	logProbs, likeliest, err := r.e.Scores(s)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range at {
		logits := r.logits[k*readerVocab : (k+1)*readerVocab]
		sum := 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l))
		}
		want := float64(logits[s.Targets[i]]) - math.Log(sum)
		if math.Abs(float64(logProbs[i])-want) > 2e-5 {
			t.Errorf("row of %d tokens, token %d has %v, want %v", lengths[int(s.Places[i])/length], k, logProbs[i], want)
		}
		if best := logits[s.Targets[i]] == slices.Max(logits); likeliest[i] != best {
			t.Errorf("token %d is the likeliest: %v, want %v", k, likeliest[i], best)
		}
	}
}
