package step_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// readerVocab is the vocabulary size of a reader.
const readerVocab = 11

// reader is an untrained model with a sequence of 17 random tokens.
type reader struct {
	e         *step.Evaluator
	tokens    []int32
	logits    []float32 // after each token but the last
	quantized bool      // activations are quantized
}

// newReader returns a reader with these settings of the configuration, and with activation
// quantizers for pieces of these lengths.
func newReader(t *testing.T, settings []string, pieces ...int) reader {
	t.Helper()
	plan := testrun.Plan(t,
		testrun.Config(t, append(settings, testrun.TwoLayers, "model.context=16", "model.vocab=11",
			"train.batch=1")...), pieces...)
	r := reader{tokens: make([]int32, 17), quantized: len(plan.Activations) > 0}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range r.tokens {
		r.tokens[i] = int32(rng.IntN(readerVocab))
	}
	k := testrun.Compile(t, plan)
	s := newState(t, k, r.tokens...)
	var err error
	if r.e, err = k.Evaluator(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.e.Close)
	if r.logits, err = r.e.Logits(r.tokens); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDecoder checks that a sequence read in pieces, quantized as in training, has the same logits
// as the sequence read as a whole.
func TestDecoder(t *testing.T) {
	for name, settings := range map[string][]string{
		"full precision": {`quantizer={plugin="none"}`},
		"4 bits":         nil,
		"rotated":        {`quantizer={plugin="quest", bits=8}`},
		"mxfp4":          {`quantizer={plugin="mxfp4"}`},
		"window":         {`quantizer={plugin="quest"}`, "model.window=4"},
		"trained":        {`quantizer={plugin="lsq", bits=8}`},
		"weights only": {`quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`,
			`model.kind="qwen3"`, "model.kv_heads=1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, settings, 5, 2, 1)
			if _, err := r.e.Decoder(nil, 20); err == nil {
				t.Error("no sequences: no error")
			}
			d, err := r.e.Decoder([]int32{0}, 20)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			at := 0
			for _, n := range []int{5, 1, 2, 5} {
				got, err := d.Next(r.tokens[at : at+n])
				if err != nil {
					t.Fatal(err)
				}
				at += n
				for i, want := range r.logits[(at-1)*readerVocab : at*readerVocab] {
					if math.Abs(float64(got[i]-want)) > 2e-5 {
						t.Errorf("after %d tokens logit %d is %v, want %v", at, i, got[i], want)
					}
				}
			}
			if d.Remaining() != 20-at {
				t.Errorf("%d more tokens can be added", d.Remaining())
			}
			checkRefused(t, d, r.tokens, r.quantized)
		})
	}
}

// TestDecoderMultipliesCodes checks that a token is read with products of the codes that evaluation
// has, also if those of training have none (PARQ): the logits are the same with both.
func TestDecoderMultipliesCodes(t *testing.T) {
	var logits [][]float32
	for _, method := range []string{"cage", "parq"} {
		plan := testrun.Plan(t, testrun.Config(t, fmt.Sprintf("method={name=%q}", method),
			`quantizer={plugin="absmax", bits=8}`, "model.vocab=11", "train.batch=1"), 1)
		c := compileOn(t, testdevice.OpenCPU(t, engine.Options{Precision: device.BFloat16,
			Products: device.IntegerProducts}), plan)
		e, err := c.Evaluator(newState(t, c, testrun.Tokens(1, 1, 17, 11)...))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		d, err := e.Decoder([]int32{0}, 20)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		next, err := d.Next([]int32{3})
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, next)
	}
	if !slices.Equal(logits[0], logits[1]) {
		t.Errorf("the logits are %v, with PARQ %v", logits[0], logits[1])
	}
}

// checkRefused checks that a decoder refuses tokens that it cannot read.
func checkRefused(t *testing.T, d *step.Decoder, tokens []int32, quantized bool) {
	t.Helper()
	if _, err := d.Next(tokens); err == nil || !strings.Contains(err.Error(), "a capacity of 7") {
		t.Errorf("too many tokens: the error is %v", err)
	}
	if _, err := d.Next(nil); err == nil {
		t.Error("no token: no error")
	}
	if _, err := d.Next(tokens[:3]); quantized != (err != nil &&
		strings.Contains(err.Error(), "no quantizers for 3 tokens at once")) {
		t.Errorf("a piece without quantizers: the error is %v", err)
	}
}

// BenchmarkDecoder measures reading one token of each of several sequences.
func BenchmarkDecoder(b *testing.B) {
	for _, sequences := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("%d sequences", sequences), func(b *testing.B) {
			const length = 512
			cfg := testrun.Config(b, `quantizer={plugin="none"}`, "model.context=512", "model.vocab=8192",
				"model.width=576", "model.heads=9",
				"model.kv_heads=3", "model.hidden=1536", "model.layers=8", "train.batch=1")
			k := testrun.Compile(b, testrun.Plan(b, cfg, sequences))
			s := newState(b, k, make([]int32, length+1)...)
			e, err := k.Evaluator(s)
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			var d *step.Decoder
			tokens := make([]int32, sequences)
			for b.Loop() {
				if d == nil || d.Remaining() == 0 {
					if d != nil {
						d.Close()
					}
					if d, err = e.Decoder(tokens, length); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := d.Next(tokens); err != nil {
					b.Fatal(err)
				}
			}
			d.Close()
			b.ReportMetric(float64(sequences*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// TestScores checks that targets in sequences of different lengths have the log-probabilities given
// by the logits of each sequence alone, quantized as in training.
func TestScores(t *testing.T) {
	const tokens = 48
	for name, settings := range map[string][]string{
		"full precision": {`quantizer={plugin="none"}`},
		"4 bits":         nil,
		"mxfp4":          {`quantizer={plugin="mxfp4"}`},
		"window":         {`quantizer={plugin="quest"}`, "model.window=4"},
		"qwen2":          {`quantizer={plugin="quest"}`, `model.kind="qwen2"`, "model.kv_heads=1"},
		"qwen3": {`quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`,
			`model.kind="qwen3"`, "model.kv_heads=1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, settings, tokens)
			for _, lengths := range [][]int32{{16, 5, 0}, {7, 8, 1, 3}} {
				checkScores(t, r, lengths, tokens/len(lengths))
			}
			checkShared(t, r)
		})
	}
}

// checkScores scores each next token in rows that consist of the reader's first tokens.
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
			t.Errorf("row of %d tokens, token %d has %v, want %v", lengths[int(s.Places[i])/length], k,
				logProbs[i], want)
		}
		if best := logits[s.Targets[i]] == slices.Max(logits); likeliest[i] != best {
			t.Errorf("token %d is the likeliest: %v, want %v", k, likeliest[i], best)
		}
	}
}

// checkShared scores two continuations of a context in one row, and a plain sequence in another.
// All consist of the reader's first tokens, so each continuation must have the log-probabilities of
// a sequence of its own.
func checkShared(t *testing.T, r reader) {
	t.Helper()
	const rows, length, before = 2, 24, 5
	ends := []int{9, 13}
	s := step.Scored{Rows: rows, Length: length, Tokens: make([]int32, rows*length),
		Parts: make([]int32, rows*length), Positions: make([]int32, rows*length)}
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
}

// logProb returns the log-probability of a token after the k-th token.
func (r reader) logProb(k int, token int32) float64 {
	logits := r.logits[k*readerVocab : (k+1)*readerVocab]
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	return float64(logits[token]) - math.Log(sum)
}
