package quantize_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
	"github.com/cage-qat/cage/internal/vfs"
)

const (
	hub        = "../../model/huggingface/testdata/llama32"
	hubContext = 16
)

// withOutliers is a checkpoint of the hub with outliers in three columns of the inputs of the first layers of its blocks: gains of norms
// are larger, and weights smaller by the same power of two, so that it computes the same.
func withOutliers(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(hub)); err != nil {
		t.Fatal(err)
	}
	path := vfs.At(filepath.Join(dir, "model.safetensors"))
	file, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, info := range file.Tensors() {
		x, err := file.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := x.Bytes() // of bfloat16
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, len(data)/2)
		for i := range values {
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
		factor := 1.0
		for part, f := range map[string]float64{"_layernorm": 64, "q_proj": 1. / 64, "k_proj": 1. / 64, "v_proj": 1. / 64, "gate_proj": 1. / 64, "up_proj": 1. / 64} {
			if strings.Contains(info.Name, part) {
				factor = f
			}
		}
		for i := range values {
			if column := i % 64; column == 5 || column == 23 || column == 42 {
				values[i] *= float32(factor)
			}
		}
		if x, err = safetensors.New(info.Name, info.Shape, values); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, x)
	}
	if err := safetensors.WriteFile(t.Context(), path, tensors, file.Metadata()); err != nil {
		t.Fatal(err)
	}
	file.Close()
	return dir
}

// logProbs are what the model of a directory says of texts.
func logProbs(t *testing.T, dir string) (all []float32) {
	t.Helper()
	o := trained.Options{Finder: testrun.Finder(t), NoData: true, Score: true}
	if trained.IsHub(dir) {
		o.Context = hubContext
	}
	opened := open(t, dir, o)
	rng := rand.New(rand.NewPCG(1, 2))
	var texts [][]int32
	for range 32 {
		var tokens []int32
		for range hubContext {
			tokens = append(tokens, int32(rng.IntN(300)))
		}
		texts = append(texts, tokens)
	}
	list, err := opened.LogProbs(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(list...)
}

// TestOutliers: where few columns of activations have outliers, SmoothQuant and AWQ move the outputs of a model less from those of
// the original than rounding to nearest on grids as fine.
func TestOutliers(t *testing.T) {
	testlevel.Long(t, "builds plugins")
	plain, dir := logProbs(t, hub), withOutliers(t)
	want := logProbs(t, dir)
	for i, v := range want {
		if !(math.Abs(float64(v-plain[i])) < 1e-4) {
			t.Fatalf("the model with outliers is another one: %v and %v", v, plain[i])
		}
	}
	builder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	deviation := func(name string, params map[string]any, activations bool) float64 {
		if strings.Contains(name, "/") {
			exe, err := builder.Find(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			name = exe.Path
		}
		o := quantize.Options{Quantization: posttrain.Quantization{Settings: posttrain.Settings{Method: posttrain.RTN}, Windows: 32, Data: "../../../README.md"},
			Plugin: name, Params: params, Activations: activations, Context: hubContext, Out: filepath.Join(t.TempDir(), "out"), Finder: testrun.Finder(t)}
		run(t, dir, o)
		sum := 0.0
		got := logProbs(t, o.Out)
		for i, v := range got {
			sum += float64(v-want[i]) * float64(v-want[i])
		}
		return math.Sqrt(sum / float64(len(got)))
	}
	const plugins = "../../../examples/plugins/"
	w8a8 := deviation("absmax", map[string]any{"bits": int64(8)}, true)
	smooth := deviation(plugins+"smoothquant", nil, true)
	t.Logf("8 bits for weights and activations: log-probabilities are off by %.2g, with smoothquant by %.2g", w8a8, smooth)
	if !(smooth < 0.7*w8a8) {
		t.Errorf("with smoothquant log-probabilities are off by %.3g, with absmax by %.3g", smooth, w8a8)
	}
	group := map[string]any{"group": int64(32)}
	nearest := deviation(plugins+"awq", map[string]any{"group": int64(32), "points": int64(1)}, false)
	awq := deviation(plugins+"awq", group, false)
	absmax := deviation("absmax", map[string]any{"bits": int64(4), "granularity": "group", "group": int64(32)}, false)
	t.Logf("4 bits for weights: off by %.2g, with awq by %.2g; with absmax by %.2g", nearest, awq, absmax)
	if !(awq < 0.9*nearest && awq < absmax) {
		t.Errorf("with awq log-probabilities are off by %.3g, to nearest by %.3g, with absmax by %.3g", awq, nearest, absmax)
	}
}
