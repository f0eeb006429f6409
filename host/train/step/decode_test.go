package step_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
)

// TestDecoder: a sequence that is read in pieces, quantized as in training, has the logits
// that it has as a whole.
func TestDecoder(t *testing.T) {
	for name, settings := range map[string][]string{
		"full precision": {`quantizer={plugin="none"}`},
		"4 bits":         nil,
		"rotated":        {`quantizer={plugin="quest", bits=8}`},
		"mxfp4":          {`quantizer={plugin="mxfp4"}`},
		"trained":        {`quantizer={plugin="lsq", bits=8}`},
		"weights only":   {`quantizer={}`, `quantizer.weights={plugin="absmax", bits=4}`, `model.kind="qwen3"`, "model.kv_heads=1"},
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
			if d.Room() != 20-at {
				t.Errorf("there is room for %d more tokens", d.Room())
			}
			checkRefused(t, d, r.tokens, r.quantized)
		})
	}
}

// checkRefused gives a decoder what it cannot read.
func checkRefused(t *testing.T, d *step.Decoder, tokens []int32, quantized bool) {
	t.Helper()
	if _, err := d.Next(tokens); err == nil || !strings.Contains(err.Error(), "with room for 7 more") {
		t.Errorf("too many tokens: the error is %v", err)
	}
	if _, err := d.Next(nil); err == nil {
		t.Error("no token: no error")
	}
	if _, err := d.Next(tokens[:3]); quantized != (err != nil && strings.Contains(err.Error(), "no quantizers for 3 tokens at once")) {
		t.Errorf("a piece without quantizers: the error is %v", err)
	}
}

// BenchmarkDecoder reads one token of each sequence.
func BenchmarkDecoder(b *testing.B) {
	for _, sequences := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("%d sequences", sequences), func(b *testing.B) { benchmarkDecoder(b, sequences) })
	}
}

func benchmarkDecoder(b *testing.B, sequences int) {
	const length = 512
	cfg := testrun.Config(b, `quantizer={plugin="none"}`, "model.context=512", "model.vocab=8192", "model.width=576", "model.heads=9",
		"model.kv_heads=3", "model.hidden=1536", "model.layers=8", "train.batch=1")
	k := testrun.Compile(b, testrun.Plan(b, cfg, sequences))
	s, err := k.NewState(3, make([]int32, length+1))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	e, err := k.Evaluator(s)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var d *step.Decoder
	tokens := make([]int32, sequences)
	for b.Loop() {
		if d == nil || d.Room() == 0 {
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
}
