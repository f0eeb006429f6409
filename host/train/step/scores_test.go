package step_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/step"
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
			checkShared(t, r)
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
		want := r.logProb(k, s.Targets[i])
		if math.Abs(float64(logProbs[i])-want) > 2e-5 {
			t.Errorf("row of %d tokens, token %d has %v, want %v", lengths[int(s.Places[i])/length], k, logProbs[i], want)
		}
		if best := logits[s.Targets[i]] == slices.Max(logits); likeliest[i] != best {
			t.Errorf("token %d is the likeliest: %v, want %v", k, likeliest[i], best)
		}
	}
}

// checkShared scores two continuations of a context in one row, and one in another. All of them are the reader's tokens, so
// that the context, which each of the two follows, must not be told from one of its own.
func checkShared(t *testing.T, r reader) {
	t.Helper()
	const rows, length, before = 2, 24, 5
	ends := []int{9, 13}
	s := step.Scored{Rows: rows, Length: length, Tokens: make([]int32, rows*length), Parts: make([]int32, rows*length), Positions: make([]int32, rows*length)}
	next := copy(s.Tokens, r.tokens[:before])
	for k := range next {
		s.Positions[k] = int32(k)
	}
	var at []int
	ask := func(place, k int) {
		s.Places, s.Targets = append(s.Places, int32(place)), append(s.Targets, r.tokens[k+1])
		at = append(at, k)
	}
	for part, end := range ends {
		ask(before-1, before-1)
		for k := before; k < end; k++ {
			s.Tokens[next], s.Parts[next], s.Positions[next] = r.tokens[k], int32(part+1), int32(k)
			ask(next, k)
			next++
		}
	}
	copy(s.Tokens[length:], r.tokens[:7])
	for k := range 7 {
		s.Positions[length+k] = int32(k)
		ask(length+k, k)
	}
	s.Lengths = []int32{int32(next), 7}
	logProbs, _, err := r.e.Scores(s)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range at {
		if want := r.logProb(k, s.Targets[i]); math.Abs(float64(logProbs[i])-want) > 2e-5 {
			t.Errorf("place %d, token %d has %v, want %v", s.Places[i], k, logProbs[i], want)
		}
	}
	s.Positions[0] = length
	if _, _, err := r.e.Scores(s); err == nil || !strings.Contains(err.Error(), "the position 24 is none of 24") {
		t.Errorf("a position behind the row: %v", err)
	}
}

// logProb is the log-probability of a token behind the k-th.
func (r reader) logProb(k int, token int32) float64 {
	logits := r.logits[k*readerVocab : (k+1)*readerVocab]
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	return float64(logits[token]) - math.Log(sum)
}
