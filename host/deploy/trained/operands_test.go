package trained_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestQuantizedOperands checks that a run with quantized keys, values and head is evaluated as in
// training, that it continues a text in the same way wherever the prompt ends, and that its export
// warns of what programs that load it do not do.
func TestQuantizedOperands(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=20", "train.final_eval_batches=0", "train.eval_batches=0",
		`quantizer.keys={plugin="absmax", bits=3}`, `quantizer.values={plugin="absmax", bits=3}`,
		`quantizer.head={plugin="absmax", bits=8}`)
	summary := testrun.Train(t, cfg, train.Options{})
	finder := testrun.Finder(t)
	opened := open(t, cfg.Train.Out, trained.Options{Finder: finder})
	if loss, _, err := opened.Evaluate(t.Context(), 0); err != nil ||
		math.Abs(loss-float64(*summary.ValLoss)) > 1e-6 {
		t.Errorf("it evaluates to %v, the run to %v: %v", loss, *summary.ValLoss, err)
	}
	going := open(t, cfg.Train.Out, trained.Options{Generate: 1, NoData: true, Finder: finder})
	first, err := going.Generate(t.Context(), "the quick ", generate.Options{Tokens: 8}, nil)
	if err != nil || first == "" {
		t.Fatalf("generated %q: %v", first, err)
	}
	// The likeliest next token must not depend on how many tokens before it were read one by one.
	for at := range len(first) - 1 {
		again, err := going.Generate(t.Context(), "the quick "+first[:at+1],
			generate.Options{Tokens: 8 - at - 1}, nil)
		if err != nil || first[at+1:] != again {
			t.Errorf("behind %q comes %q, and behind all of it %q: %v", first[:at+1], first[at+1:], again,
				err)
		}
	}
	m, err := going.Export()
	if err != nil {
		t.Fatal(err)
	}
	r, err := export.Write(t.Context(), "hf", vfs.At(filepath.Join(t.TempDir(), "out")), m,
		export.Options{})
	if err != nil {
		t.Fatal(err)
	}
	matrices := 0 // with the head
	for _, x := range r.Tensors {
		if x.Quantized {
			matrices++
		}
	}
	if w := r.Warnings; len(w) < 3 ||
		!strings.Contains(w[0], "keys of attention ([quantizer.keys])") ||
		!strings.Contains(w[len(w)-1], fmt.Sprintf("do not quantize the inputs of %d layers", matrices)) {
		t.Errorf("the warnings are %q", w)
	}
	if head, err := m.Quantized("head"); err != nil || head == nil || slices.Max(head.Codes) != 127 {
		t.Errorf("the head is %v: %v", head, err)
	}
}

// TestExportOfKeysInGroups checks that an export needs no quantizer of single keys, so that a run
// whose quantizer refuses them can be exported.
func TestExportOfKeysInGroups(t *testing.T) {
	testlevel.Long(t, "builds a plugin")
	exe := testrun.Example(t, "kivi")
	cfg := testrun.Config(t, "train.steps=2", fmt.Sprintf("quantizer.keys={plugin=%q}", exe.Path))
	testrun.Train(t, cfg, train.Options{})
	if _, err := open(t, cfg.Train.Out, trained.Options{Export: true, Finder: testrun.Finder(t)}).
		Export(); err != nil {
		t.Fatal(err)
	}
	if _, err := trained.Open(t.Context(), cfg.Train.Out,
		trained.Options{Generate: 1, NoData: true, Finder: testrun.Finder(t)}); err == nil {
		t.Error("keys that come one by one are quantized in groups")
	}
}
