package build

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestModel checks that a model of each kind is built from the settings, and that an unknown kind
// is refused.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		settings architecture.Settings
		dims     []int // of the first parameter
		std      float64
	}{
		{architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2, Vocab: 11,
			InitStd: 0.5}, []int{11, 8}, 0.5},
		{architecture.Settings{Kind: architecture.KindOLMo2, Layers: 1, Width: 8, Heads: 2, Vocab: 11,
			InitStd: 0.5}, []int{11, 8}, 0.5},
		{architecture.Settings{Kind: architecture.KindQuadratic, Rows: 2, Dimension: 3, Condition: 3,
			StartStd: 5}, []int{2, 3}, 5},
		{architecture.Settings{Kind: architecture.KindToy, StartStd: 5}, []int{1, 1}, 5},
	} {
		m, err := Model(&config.Config{Model: c.settings})
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Params()[0]; !slices.Equal(p.Dims, c.dims) || p.InitStd != c.std {
			t.Errorf("%s: the first parameter has shape %v and starts with standard deviation %v, want %v "+
				"and %v",
				c.settings.Kind, p.Dims, p.InitStd, c.dims, c.std)
		}
	}
	if _, err := Model(&config.Config{Model: architecture.Settings{Kind: "mamba"}}); err == nil {
		t.Error("there is a model of kind mamba")
	}
}

// TestSeparate checks that documents begin at BOS tokens and after EOS tokens, and that the first
// token of a document is not a target.
func TestSeparate(t *testing.T) {
	const context = 7
	for name, c := range map[string]struct {
		info              tokenizer.Info
		segments, targets []int32
	}{
		"begin": {tokenizer.Info{BOS: 1, EOS: tokenizer.NoToken},
			[]int32{0, 0, 0, 1, 1, 1, 2, 2}, []int32{1, 1, 0, 1, 1, 0, 1}},
		"end": {tokenizer.Info{BOS: tokenizer.NoToken, EOS: 2},
			[]int32{0, 0, 0, 1, 1, 1, 2, 2}, []int32{1, 1, 0, 1, 1, 0, 1}},
		"begin and end": {tokenizer.Info{BOS: 1, EOS: 2}, []int32{0, 0, 0, 1, 1, 1, 2, 2},
			[]int32{1, 1, 0, 1, 1, 0, 1}},
		"the same token": {tokenizer.Info{BOS: 1, EOS: 1}, []int32{0, 0, 0, 1, 1, 1, 2, 2},
			[]int32{1, 1, 0, 1, 1, 0, 1}},
		"neither of them": {tokenizer.Info{BOS: tokenizer.NoToken, EOS: tokenizer.NoToken},
			make([]int32, 8), []int32{1, 1, 1, 1, 1, 1, 1}},
	} {
		dst := make([]int32, dataset.Planes*(context+1))
		tokens := []int32{7, 8, 2, 1, 9, 2, 1, 7}
		separate(dst, tokens, context, c.info)
		row := dataset.RowsOf(dst, context)[0]
		var targets []int32
		for place := 1; place <= context; place++ {
			targets = append(targets, int32(row.Weight(place)))
		}
		if !slices.Equal(row.Tokens, tokens) || !slices.Equal(row.Segments, c.segments) ||
			!slices.Equal(targets, c.targets) {
			t.Errorf("%s: tokens %v, segments %v, targets %v", name, row.Tokens, row.Segments, targets)
		}
	}
}

// TestNormalization checks that the weights of the targets make the mean over all losses of a step
// the mean over the targets or, with one mean per micro-batch, the mean of these means. A step
// without targets has the mean 0, not NaN.
func TestNormalization(t *testing.T) {
	const context = 4
	masks := map[string][][]float32{
		"different":     {{1, 1, 0, 1}, {0, 0, 1, 0}},
		"one has none":  {{1, 0, 0, 1}, {0, 0, 0, 0}, {1, 1, 1, 1}},
		"only one":      {{0, 0, 0, 0}, {0, 1, 0, 0}},
		"alone":         {{0, 1, 1, 0}},
		"none has some": {{0, 0, 0, 0}, {0, 0, 0, 0}},
	}
	loss := func(batch, place int) float64 { return float64(1 + 3*batch + place*place) }
	for name, batches := range masks {
		for _, each := range []bool{false, true} {
			var step [][]int32
			sum, count, means, used := 0.0, 0.0, 0.0, 0.0
			for b, mask := range batches {
				batch := make([]int32, dataset.Planes*(context+1))
				row := dataset.RowsOf(batch, context)[0]
				own, targets := 0.0, 0.0
				for place, weight := range mask {
					row.SetWeight(place+1, weight)
					own, targets = own+float64(weight)*loss(b, place), targets+float64(weight)
				}
				if step = append(step, batch); targets > 0 {
					sum, count, means, used = sum+own, count+targets, means+own/targets, used+1
				}
			}
			want := 0.0
			if each && used > 0 {
				want = means / used
			} else if count > 0 {
				want = sum / count
			}
			if got := normalize(step, context, each); got != int64(count) {
				t.Errorf("%s: %d targets, want %v", name, got, count)
			}
			mean := 0.0 // as a step computes it: over all losses of all micro-batches
			for b, batch := range step {
				for place := range context {
					mean += float64(dataset.RowsOf(batch, context)[0].Weight(place+1)) * loss(b,
						place) / float64(context*len(step))
				}
			}
			if !(math.Abs(mean-want) <= 1e-6*want) {
				t.Errorf("%s, each %v: the mean is %v, want %v", name, each, mean, want)
			}
		}
	}
}

// TestUnusedRowsArePadding checks that, if documents are separate, the unused rows of the last
// batch are padding, which quantizers see as zeros.
func TestUnusedRowsArePadding(t *testing.T) {
	const context, batch = 3, 4
	path := filepath.Join(t.TempDir(), "v.tokens")
	w, err := dataset.NewWriter(vfs.At(path),
		dataset.Origin{Tokenizer: tokenizer.Info{Name: "test", VocabSize: 9, BOS: 1,
			EOS: tokenizer.NoToken, SHA256: strings.Repeat("0", 64)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range [][]int32{{5, 6, 7}, {8, 5}} { // preceded by a BOS token
		if err := w.WriteDocument(document, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	f, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cfg := &config.Config{Model: architecture.Settings{Context: context},
		Data: config.Data{Documents: "separate"}}
	d, err := OpenSequence(cfg, f, batch)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]int32, d.Len)
	rows, _, err := d.At(0, dst)
	if err != nil || rows != 2 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	for i, row := range dataset.RowsOf(dst, context) {
		for place, segment := range row.Segments {
			if (segment == dataset.Padding) != (i >= rows) || i >= rows && place > 0 &&
				row.Weight(place) != 0 {
				t.Errorf("row %d: segments %v", i, row.Segments)
			}
		}
	}
}

// FuzzRecorded checks that recordedPrograms accepts any content of provenance.json.
func FuzzRecorded(f *testing.F) {
	f.Add([]byte(`{"programs":{"weight a: quantize":"ff"}}`))
	f.Add([]byte(`{"programs":[]}`))
	f.Add([]byte(`{"programs":{"a":"b","a":"c"},"programs":null`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(rundir.At(dir).Provenance().Name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if programs := recordedPrograms(dir); len(programs) > len(text) {
			t.Fatalf("%d programs in %d bytes", len(programs), len(text))
		}
	})
}
