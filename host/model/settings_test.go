package model

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
)

type modelGolden struct {
	Sizes []struct {
		Name                                    string
		Layers, Heads, Hidden, Quantized, Total int
		Width                                   int `json:"d_model"`
		HeadDim                                 int `json:"head_dim"`
		NonEmbedding                            int `json:"non_embedding"`
		Total32000                              int `json:"total_vocab32000"`
	}
	Rope []struct {
		ID          string
		HeadDim     int `json:"head_dim"`
		Theta       float64
		Scaling     ropeScaling
		Frequencies []float64 `json:"inv_freq"`
	}
	Tolerance struct{ Abs, Rel float64 }
}

// ropeScaling is the scaling of wavelengths in files of golden values; a zero factor means none.
type ropeScaling struct {
	Factor, Low, High float64
	Original          int
}

func (r ropeScaling) setIn(s *architecture.Settings) {
	s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = r.Factor, r.Low, r.High, r.Original
}

func readGolden(t *testing.T) modelGolden {
	t.Helper()
	data, err := os.ReadFile("testdata/model.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden modelGolden
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	return golden
}

func TestPresetsMatchGolden(t *testing.T) {
	golden := readGolden(t)
	var names []string
	for _, want := range golden.Sizes {
		names = append(names, want.Name)
		preset, ok := architecture.LookupPreset(architecture.KindLlama, want.Name)
		if !ok {
			t.Fatalf("no preset %s", want.Name)
		}
		config := preset.Settings()
		count := func(vocabulary int) (params []architecture.Param, total int) {
			config.Vocab = vocabulary
			m := newLlama(config)
			return m.Params(), architecture.CountParams(m.Params(), nil)
		}
		params, total := count(50304)
		_, total32000 := count(32000)
		got := [...]int{config.Layers, config.Heads, config.Width, config.HeadSize, config.Hidden,
			architecture.NonEmbedding(params),
			architecture.CountParams(params, func(p architecture.Param) bool { return p.Quantized }), total,
			total32000}
		expected := [...]int{want.Layers, want.Heads, want.Width, want.HeadDim, want.Hidden,
			want.NonEmbedding, want.Quantized, want.Total, want.Total32000}
		if got != expected {
			t.Errorf("%s: layers, heads, width, head size, hidden, and counts are\n%v, want\n%v", want.Name,
				got, expected)
		}
	}
	names = append(names, "1700M", "3200M") // published as code only
	if got := architecture.PresetNames(architecture.KindLlama); !slices.Equal(names, got) {
		t.Errorf("presets are %v, want %v", got, names)
	}
	if p, ok := architecture.LookupPreset(architecture.KindLlama, "31M"); ok {
		t.Errorf("31M is %+v", p)
	}
}

func TestRopeFrequenciesMatchGolden(t *testing.T) {
	golden := readGolden(t)
	stretched := 0
	for _, rope := range golden.Rope {
		s := architecture.Settings{Heads: 1, Width: rope.HeadDim, RopeTheta: rope.Theta}
		rope.Scaling.setIn(&s)
		if s.RopeFactor > 1 {
			stretched++
		}
		for i, got := range s.RopeFrequencies() {
			want := rope.Frequencies[i]
			if !(math.Abs(got-want) <= golden.Tolerance.Abs+golden.Tolerance.Rel*want) {
				t.Errorf("%s: frequency %d is %v, want %v", rope.ID, i, got, want)
			}
		}
	}
	if stretched != 2 || len(golden.Rope) != 3 {
		t.Errorf("of %d cases %d are stretched, want those of two Llama-3 models and a plain one",
			len(golden.Rope), stretched)
	}
}

// TestParams checks names, shapes, roles and initialization.
func TestParams(t *testing.T) {
	m := newLlama(tiny)
	want := map[string]struct {
		dims []int
		role architecture.Role
		std  float64
	}{
		"embedding":          {[]int{13, 16}, architecture.RoleEmbedding, 0.02},
		"layers.0.attn_norm": {[]int{16}, architecture.RoleNorm, 0},
		"layers.0.attn.qkv":  {[]int{48, 16}, architecture.RoleMatrix, 0.02},
		"layers.0.attn.out":  {[]int{16, 16}, architecture.RoleMatrix, 0.01},
		"layers.1.mlp_norm":  {[]int{16}, architecture.RoleNorm, 0},
		"layers.1.mlp.w1":    {[]int{24, 16}, architecture.RoleMatrix, 0.02},
		"layers.1.mlp.w2":    {[]int{24, 16}, architecture.RoleMatrix, 0.02},
		"layers.1.mlp.down":  {[]int{16, 24}, architecture.RoleMatrix, 0.01},
		"norm":               {[]int{16}, architecture.RoleNorm, 0},
		"head":               {[]int{13, 16}, architecture.RoleHead, 0.02},
	}
	seen := map[string]bool{}
	for _, p := range m.Params() {
		if seen[p.Name] {
			t.Errorf("two parameters are named %s", p.Name)
		}
		seen[p.Name] = true
		if isMatrix := p.Role == architecture.RoleMatrix; p.Quantized != isMatrix || p.Decay != isMatrix {
			t.Errorf("%s, a %s: quantized %t, decay %t", p.Name, p.Role, p.Quantized, p.Decay)
		}
		if isNorm := p.Role == architecture.RoleNorm; (p.InitMean == 1) != isNorm {
			t.Errorf("%s, a %s, starts around %v", p.Name, p.Role, p.InitMean)
		}
		if w, ok := want[p.Name]; ok && (!slices.Equal(p.Dims, w.dims) || p.Role != w.role ||
			p.InitStd != w.std) {
			t.Errorf("%+v, want %+v", p, w)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no parameter is named %s", name)
		}
	}
}

// TestParts checks the parts of the fused weight of queries, keys and values. Others have none.
func TestParts(t *testing.T) {
	for keyHeads, want := range map[int][]architecture.Part{
		0: {{Name: "q", Rows: 16}, {Name: "k", Rows: 16}, {Name: "v", Rows: 16}},
		1: {{Name: "q", Rows: 16}, {Name: "k", Rows: 8}, {Name: "v", Rows: 8}}} {
		c := tiny
		c.KVHeads = keyHeads
		olmo2 := newOLMo2(architecture.Settings{Layers: 2, Heads: 2, KVHeads: keyHeads, Width: 16,
			Hidden: 24, Vocab: 13})
		for _, p := range slices.Concat(newLlama(c).Params(), olmo2.Params()) {
			if !strings.HasSuffix(p.Name, "attn.qkv") {
				if p.Parts != nil {
					t.Errorf("%s has parts: %v", p.Name, p.Parts)
				}
				continue
			}
			if !slices.Equal(p.Parts, want) {
				t.Errorf("%s has parts %v, want %v", p.Name, p.Parts, want)
			}
		}
	}
}

func TestInit(t *testing.T) {
	p := architecture.Param{Name: "layers.0.attn.out", Dims: []int{300, 200}, InitStd: 0.01}
	values := p.Init(3)
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(values))
	// Bounds of five standard errors.
	if mean := sum / n; len(values) != 60000 || math.Abs(mean) > 5*0.01/math.Sqrt(n) {
		t.Errorf("%v values with mean %v", n, mean)
	}
	if std := math.Sqrt(squares / n); !(math.Abs(std/0.01-1) <= 5/math.Sqrt(2*n)) {
		t.Errorf("standard deviation is %v", std)
	}
	if !slices.Equal(values, p.Init(3)) {
		t.Error("two calls differ")
	}
	if slices.Equal(values, p.Init(4)) {
		t.Error("two seeds give the same values")
	}
	other := p
	other.Name = "layers.1.attn.out"
	if slices.Equal(values, other.Init(3)) {
		t.Error("two parameters get the same values")
	}
	gain := architecture.Param{Name: "norm", Dims: []int{3}, InitMean: 1}
	if got := gain.Init(3); !slices.Equal(got, []float32{1, 1, 1}) {
		t.Errorf("a gain starts as %v", got)
	}
}

// TestInitStaysTheSame checks a hash of the bits of all parameters: if the generator changes, runs
// cannot be repeated.
func TestInitStaysTheSame(t *testing.T) {
	hash := fnv.New64a()
	for _, values := range initial(newLlama(tiny), 1) {
		for _, v := range values {
			bits := math.Float32bits(v)
			hash.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
		}
	}
	if got, want := hash.Sum64(), uint64(0xc8fc655be2bb3c98); got != want {
		t.Errorf("hash of the initial parameters is %#x, want %#x", got, want)
	}
}

// TestStepFLOPs compares with a count by hand for one layer of width 4: products with 3·16 + 16 +
// 3·4·6 weights and with a head of 5·4, norms of 3·4, and attention.
func TestStepFLOPs(t *testing.T) {
	m := newLlama(architecture.Settings{Layers: 1, Heads: 2, Width: 4, Hidden: 6, Vocab: 5})
	const tokens = 2 * 7
	want := 6.0*(48+16+72+20+12)*tokens + 12*1*4*7*tokens
	if got := m.StepFLOPs(2, 7); got != want {
		t.Errorf("a step has %v operations, want %v", got, want)
	}
}

// TestTiedHead checks that a tied model has one parameter fewer. The shared table has the role and
// the initial values of an embedding. Other parameters, their number without embeddings and the
// operations of a step, which also multiplies by the table, are the same.
func TestTiedHead(t *testing.T) {
	for _, tc := range []struct{ own, tied Language }{
		{newLlama(tiny), newLlama(tiedHead(tiny))},
		{newOLMo2(tiny), newOLMo2(tiedHead(tiny))},
	} {
		own, tied := tc.own.Params(), tc.tied.Params()
		if diff := cmp.Diff(own[:len(own)-1], tied); diff != "" {
			t.Errorf("%T (-own +tied):\n%s", tc.own, diff)
		}
		if table := tied[0]; table.Role != architecture.RoleEmbedding || table.Quantized || table.Decay {
			t.Errorf("%T: the shared table is %+v", tc.own, table)
		}
		if own, tied := architecture.NonEmbedding(own), architecture.NonEmbedding(tied); own != tied {
			t.Errorf("%T: %d parameters without embeddings, want %d", tc.own, tied, own)
		}
		if own, tied := tc.own.StepFLOPs(2, 7), tc.tied.StepFLOPs(2, 7); own != tied {
			t.Errorf("%T: a step has %v operations, want %v", tc.own, tied, own)
		}
	}
}

// TestTruncatedInit checks that no element is beyond the cut, and that the standard deviation is
// that of a normal distribution without its tails beyond 3, 0.9866.
func TestTruncatedInit(t *testing.T) {
	p := architecture.Param{Name: "w", Dims: []int{300, 200}, InitStd: 0.02, InitCut: 3}
	squares, largest := 0.0, 0.0
	for _, v := range p.Init(1) {
		squares += float64(v) * float64(v)
		largest = max(largest, math.Abs(float64(v)))
	}
	n := float64(p.Size())
	if std := math.Sqrt(squares/n) / 0.02; math.Abs(std-0.98658) > 5/math.Sqrt(2*n) ||
		largest > 0.06 || largest < 0.058 {
		t.Errorf("standard deviation is %v, the largest element %v", std, largest)
	}
	start := architecture.Param{Name: "x", Dims: []int{2}, InitStd: 1, Start: []float32{3, 4}}
	if got := start.Init(1); !slices.Equal(got, []float32{3, 4}) {
		t.Errorf("a given start is %v", got)
	}
}

// TestSettingsCheck checks that conflicting keys are reported.
func TestSettingsCheck(t *testing.T) {
	llama := architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 48, Heads: 3,
		RopeLow: 1, RopeHigh: 4}
	quadratic := architecture.Settings{Kind: architecture.KindQuadratic, Rows: 2, Dimension: 3}
	for _, c := range []struct {
		settings architecture.Settings
		change   func(*architecture.Settings)
		want     string // the key with a problem; "" for none
	}{
		{llama, func(*architecture.Settings) {}, ""},
		{llama, func(s *architecture.Settings) { s.Heads = 5 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.Heads = 48 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.Heads, s.Width = 1, 47 }, "model.heads"},
		// missing, which is reported elsewhere
		{llama, func(s *architecture.Settings) { s.Heads = 0 }, ""},
		{llama, func(s *architecture.Settings) { s.Width = 47 }, "model.heads"},
		{llama, func(s *architecture.Settings) { s.KVHeads = 3 }, ""},
		{llama, func(s *architecture.Settings) { s.KVHeads = 2 }, "model.kv_heads"},
		{llama, func(s *architecture.Settings) { s.RopeLow = 4 }, "model.rope_high"},
		{llama, func(s *architecture.Settings) {
			s.Preset, s.Layers, s.Heads, s.Width = "30M", 6, 5, 640
		}, ""},
		{llama, func(s *architecture.Settings) {
			s.Preset, s.Layers, s.Heads, s.Width = "30M", 7, 5, 640
		}, "model.layers"},
		{quadratic, func(*architecture.Settings) {}, ""},
		{quadratic, func(s *architecture.Settings) { s.Spectrum = []float64{1} }, "model.spectrum"},
		{quadratic, func(s *architecture.Settings) { s.Optimum = make([]float64, 3) }, "model.optimum"},
		{quadratic, func(s *architecture.Settings) { s.Start = make([]float64, 6) }, ""},
		{quadratic, func(s *architecture.Settings) {
			s.Kind, s.Start = architecture.KindToy, make([]float64, 6)
		}, "model.start"},
	} {
		s := c.settings
		c.change(&s)
		problems := s.Check()
		if c.want == "" && len(problems) > 0 || c.want != "" &&
			(len(problems) != 1 || problems[0].Key != c.want) {
			t.Errorf("%+v: %+v, want a problem of %q", s, problems, c.want)
		}
	}
}
