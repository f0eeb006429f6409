package export_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/testing/testgguf"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func opened(t *testing.T, path string) (*huggingface.Checkpoint, map[string][]byte) {
	t.Helper()
	c, files, err := export.OpenGGUF(vfs.At(path), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, files
}

// TestFromGGUFGoldens checks that weights from files of the package gguf are the numbers that it
// decodes, with the rows of queries and keys in the order of Hugging Face.
func TestFromGGUFGoldens(t *testing.T) {
	for _, kind := range []string{"q8_0", "q4_0", "q4_1", "mxfp4"} {
		c, _ := opened(t, filepath.Join(goldens, "gguf", "tiny-"+kind+".gguf"))
		want := file(t, "gguf", "tiny-"+kind+".dequantized.safetensors")
		places, err := huggingface.Layout(c.Config.Settings)
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, p := range places {
			if _, err := want.Tensor(p.Tensor); err != nil {
				continue // it is not quantized
			}
			all, err := c.Values(p.Param.Name)
			if err != nil {
				t.Fatal(err)
			}
			columns := p.Param.Dims[1]
			var got []float32
			for _, row := range p.Rows {
				got = append(got, all[row*columns:(row+1)*columns]...)
			}
			if !slices.Equal(got, floats(t, want, p.Tensor)) {
				t.Errorf("%s: %s differs", kind, p.Tensor)
			}
			compared++
		}
		if compared < 7 {
			t.Errorf("%s: %d tensors were compared", kind, compared)
		}
		warnings := strings.Join(c.Config.Warnings, "\n")
		if !strings.Contains(warnings, " matrices are stored as "+strings.ToUpper(kind)) {
			t.Errorf("%s: the warnings are %q", kind, warnings)
		}
	}
}

// roundTrip exports a model and compares the opened file with its settings and quantized weights.
func roundTrip(t *testing.T, m *export.Model, o export.Options) *huggingface.Checkpoint {
	t.Helper()
	dir, _ := exported(t, "gguf", m, o)
	c, _ := opened(t, filepath.Join(dir, "model.gguf"))
	got, want := c.Config.Settings, m.Settings
	got.Context = want.Context
	if want.RopeFactor == 1 { // the other settings of scaling have no effect
		got.RopeLow, got.RopeHigh, got.RopeOriginal = want.RopeLow, want.RopeHigh, want.RopeOriginal
	}
	if want.Head == "" {
		want.Head = "own"
	}
	for i, k := range got.Keys() {
		if w := want.Keys()[i]; k.Value() != w.Value() {
			t.Errorf("%s is %v, want %v", k.Name, k.Value(), w.Value())
		}
	}
	for _, p := range m.Params {
		want, err := m.Latent(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := m.Quantized(p.Name); err != nil || q != nil {
			want = q.Value
		}
		got, err := c.Values(p.Name)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s differs, error %v", p.Name, err)
		}
	}
	return c
}

// TestFromExport checks the round trip for several types of tensors and for all kinds of models.
func TestFromExport(t *testing.T) {
	for _, kind := range []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "mxfp4"} {
		t.Run(kind, func(t *testing.T) {
			q, o := fromGGUF(kind), export.Options{}
			if kind == "f32" || kind == "f16" || kind == "bf16" {
				q, o.Float = nil, kind
			}
			m := goldenModel(t, q)
			latent := m.Latent
			m.Latent = func(param string) ([]float32, error) {
				values, err := latent(param)
				for i, v := range values {
					switch kind {
					case "f16":
						values[i] = halffloat.FromHalf(halffloat.ToHalf(v))
					case "bf16":
						values[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
					}
				}
				return values, err
			}
			roundTrip(t, m, o)
		})
	}
	for _, s := range []architecture.Settings{
		{Kind: architecture.KindLlama, Head: "tied"},
		{Kind: architecture.KindLlama, Head: "own"},
		{Kind: architecture.KindLlama, RopeFactor: 8, RopeOriginal: 8192, RopeLow: 1, RopeHigh: 4},
		{Kind: architecture.KindLlama, HeadSize: 32},
		{Kind: architecture.KindQwen2, Head: "tied"},
		{Kind: architecture.KindSmolLM3, Layers: 4},
		{Kind: architecture.KindQwen3, Head: "tied"},
		{Kind: architecture.KindQwen3, HeadSize: 32, Head: "own"},
		{Kind: architecture.KindOLMo2, Head: "tied"},
		{Kind: architecture.KindOLMo2, Head: "own"},
		{Kind: architecture.KindGemma, Head: "tied", HeadSize: 32, RopeFactor: 4,
			RopeScaling: architecture.ScalingYaRN, RopeLow: 1, RopeHigh: 32, RopeOriginal: 64},
		{Kind: architecture.KindGemma2, Head: "tied", ScoreCap: 50, LogitCap: 30, Window: 8},
		{Kind: architecture.KindGemma3, HeadSize: 32, Window: 8, RopeFactor: 8,
			RopeScaling: architecture.ScalingLinear, RopeLow: 1, RopeHigh: 4, RopeOriginal: 8192},
		{Kind: architecture.KindGranite, AttentionMultiplier: 0.015625, EmbeddingMultiplier: 12,
			ResidualMultiplier: 0.22, LogitsScaling: 8},
		{Kind: architecture.KindOLMo3, Window: 8, RopeFactor: 8, RopeScaling: architecture.ScalingYaRN,
			RopeLow: 1, RopeHigh: 32, RopeOriginal: 64},
	} {
		roundTrip(t, smallOf(t, s, integers(32, halfSeventh)), export.Options{})
	}
}

// TestFromTokenizers checks that a tokenizer has the same ids for all texts after a round trip.
func TestFromTokenizers(t *testing.T) {
	read := func(name string) string {
		text := string(testfile.Read(t, "../../data/tokenizer/testdata/"+name+".tokenizer.json"))
		return regexp.MustCompile(`"(lstrip|rstrip)": *true`).ReplaceAllString(text, `"$1": false`)
	}
	step := func(first, regex string) string {
		return `{"type": "Sequence", "pretokenizers": [` + first + `, {"type": "ByteLevel",
			"add_prefix_space": false, "trim_offsets": true, "use_regex": ` + regex + `}]}`
	}
	split := func(pattern string) string {
		text, err := json.Marshal(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return step(`{"type": "Split", "pattern": {"Regex": `+string(text)+`},
			"behavior": "Isolated", "invert": false}`, "false")
	}
	// pre returns a pre-tokenizer that is compared with the original library in package tokenizer.
	var published struct {
		Cases []struct {
			Name         string
			PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		}
	}
	testfile.ReadJSON(t, "../../data/tokenizer/testdata/patterns.golden.json", &published)
	pre := func(name string) string {
		for _, c := range published.Cases {
			if c.Name == name {
				return string(c.PreTokenizer)
			}
		}
		t.Fatalf("there is no pre-tokenizer %s", name)
		return ""
	}
	whole := func(definition string) string {
		return strings.Replace(definition, `"ignore_merges":false`, `"ignore_merges":true`, 1)
	}
	words := func(pre string) string { // the tokenizer of GPT-2 with another pre-tokenizer
		var d map[string]any
		if err := json.Unmarshal([]byte(read("gpt2")), &d); err != nil {
			t.Fatal(err)
		}
		d["pre_tokenizer"] = json.RawMessage(pre)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var texts struct{ Cases []struct{ Text string } }
	testfile.ReadJSON(t, "../../data/tokenizer/testdata/llama3.golden.json", &texts)
	if len(texts.Cases) < 25 {
		t.Fatalf("%d texts", len(texts.Cases))
	}
	for name, definition := range map[string]string{
		"gpt-2": read("gpt2"), "llama-bpe": read("llama3"), "default": read("llama2"),
		"dbrx": words(split(tokenizer.PatternGPT4)), "qwen2": words(split(tokenizer.PatternQwen)),
		"smollm": words(step(`{"type": "Digits", "individual_digits": true}`, "true")),
		"qwen35": words(pre("qwen35")), "deepseek-v3": words(pre("deepseek-v3")),
		"deepseek-coder": words(pre("deepseek-coder")), "gpt-4o": words(pre("gpt-4o")),
		"tekken": whole(words(pre("tekken"))),
	} {
		m := llama2(t, func(string) string { return definition })
		m.Tokenizer.Files[tokenizer.ConfigFile] = []byte(`{"chat_template": "hello"}`)
		m.Tokenizer.EOS = []int32{7, 9}
		m.Tokenizer.Turn, m.Tokenizer.Pad = 9, 8
		inexact := name == "tekken" || name == "gpt-4o"
		if _, err := write(t, "gguf", m, export.Options{}); inexact && (err == nil ||
			!strings.Contains(err.Error(), "only A to Z and a to z have a case")) {
			t.Errorf("%s without --inexact: %v", name, err)
		}
		dir, _ := exported(t, "gguf", m, export.Options{Inexact: inexact})
		path := filepath.Join(dir, "model.gguf")
		if pre := testgguf.Open(t, path).Value("tokenizer.ggml.pre"); pre != name {
			t.Errorf("%s is called %v", name, pre)
		}
		c, files := opened(t, path)
		if got := fmt.Sprint(c.Config.Tokens); got != "{[1] [7 9] [8]}" {
			t.Errorf("%s: the special tokens are %s", name, got)
		}
		out := t.TempDir()
		for name, content := range files {
			testfile.Write(t, filepath.Join(out, name), content)
		}
		got, err := tokenizer.LoadHuggingFace(filepath.Join(out, tokenizer.DefinitionFile))
		if err != nil {
			t.Fatal(err)
		}
		want, err := tokenizer.ReadHuggingFace([]byte(definition), nil)
		if err != nil {
			t.Fatal(err)
		}
		if info := got.Info(); info.BOS != 1 || info.EOS != 7 || !tokenizer.AddsBOS(got) ||
			info.VocabSize != want.Info().VocabSize {
			t.Errorf("%s: the tokenizer is %+v", name, info)
		}
		config := files[tokenizer.ConfigFile]
		if c, err := tokenizer.ParseConfig(config); err != nil ||
			string(c["chat_template"]) != `"hello"` {
			t.Errorf("%s: the settings are %s, error %v", name, config, err)
		}
		// Data of the original tokenizer can be used, unless an added token is normalized.
		err = tokenizer.Extends(files[tokenizer.DefinitionFile], []byte(definition))
		if name != "default" && err != nil && !strings.Contains(err.Error(), "the added token") {
			t.Errorf("%s: %v", name, err)
		}
		for _, c := range texts.Cases {
			a, err := want.Encode(c.Text)
			if err != nil {
				t.Fatal(err)
			}
			b, err := got.Encode(c.Text)
			if err != nil || !slices.Equal(a, b) {
				t.Errorf("%s: %q is %v, want %v, error %v", name, c.Text, b, a, err)
			}
			textA, errA := want.Decode(a)
			textB, errB := got.Decode(a)
			if textA != textB || errA != nil || errB != nil {
				t.Errorf("%s: decoded %q, want %q, errors %v, %v", name, textB, textA, errA, errB)
			}
		}
	}
}

// changed writes a golden file with changed entries, where nil removes one, and with changed or
// additional tensors.
func changed(t testing.TB, entries map[string]any, more ...gguf.Tensor) string {
	t.Helper()
	f := testgguf.Open(t, filepath.Join(goldens, "gguf", "tiny-f32.gguf"))
	var list []gguf.Entry
	for _, e := range f.Entries {
		if v, ok := entries[e.Key]; ok {
			delete(entries, e.Key)
			e.Value = v
		}
		if e.Value != nil {
			list = append(list, e)
		}
	}
	for key, value := range entries {
		list = append(list, gguf.Entry{Key: key, Value: value})
	}
	var tensors []gguf.Tensor
	for _, info := range f.Tensors {
		if slices.ContainsFunc(more, func(other gguf.Tensor) bool { return other.Name == info.Name }) {
			continue
		}
		write := func(w io.Writer) error {
			_, err := w.Write(testgguf.Data(t, f, info))
			return err
		}
		tensors = append(tensors,
			gguf.Tensor{Name: info.Name, Type: info.Type, Shape: info.Shape, Write: write})
	}
	path := filepath.Join(t.TempDir(), "changed.gguf")
	if err := gguf.WriteFile(t.Context(), vfs.At(path), list, append(tensors, more...)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFromGGUFRefusals checks that settings that cage cannot represent are refused with their keys,
// and that others are ignored.
func TestFromGGUFRefusals(t *testing.T) {
	opened(t, changed(t, map[string]any{"llama.rope.scaling.factor": float32(1),
		"llama.rope.scaling.type": "none", "llama.expert_count": uint32(0), "general.url": "x",
		"quantize.imatrix.file": "x", "llama.vocab_size": nil, "split.count": uint16(1),
		"tokenizer.ggml.fim_pre_token_id": uint32(1), "tokenizer.ggml.add_sep_token": false}))
	_, files, err := export.OpenGGUF(vfs.At(changed(t, nil)), 0)
	text := string(files["generation_config.json"])
	if err != nil || strings.Contains(text, "sample") {
		t.Errorf("generation_config.json: %s, error %v", text, err)
	}
	for _, c := range []struct {
		key   string
		value any
		says  string
	}{
		{"llama.rope.scaling.type", "longrope", "found longrope, want linear or yarn"},
		{"llama.rope.scaling.type", "yarn", "rope.scaling.original_context_length: missing"},
		{"llama.attention.sliding_window_pattern", []bool{true}, "found true in layer 0"},
		{"llama.rope.freq_base_swa", float32(7), "found 7, want 500000"},
		{"llama.attention.sliding_window", uint32(4096), "found 4096, want no such key"},
		{"llama.expert_count", uint32(8), "found 8, want no such key"},
		{"llama.final_logit_softcapping", float32(30), "found 30, want no such key"},
		{"llama.attention.head_count", []uint32{2, 2}, "want one number for all layers"},
		{"llama.attention.head_count", uint32(0), "found 0"},
		{"llama.block_count", int32(-1), "found -1, want an integer"},
		{"llama.block_count", uint64(1) << 40, "want an integer"},
		{"llama.block_count", nil, "missing, want a number"},
		{"llama.block_count", uint32(2), "model.layers.1.mlp.up_proj.weight: missing"},
		{"llama.attention.layer_norm_rms_epsilon", float32(math.NaN()), "found NaN, want a number above"},
		{"llama.attention.layer_norm_rms_epsilon", float32(2e9), "rms_norm_eps: found the float 2e+09"},
		{"tokenizer.ggml.add_sep_token", true, "found true, want no such key"},
		{"llama.rope.dimension_count", uint32(4), "want the size of a head"},
		{"llama.attention.value_length", uint32(6), "want the size of a head"},
		{"general.architecture", "mamba",
			`found "mamba", want one of [gemma gemma2 gemma3 granite llama olmo2 qwen2 qwen3 smollm3]`},
		{"general.type", "adapter", "found adapter, want model"},
		{"split.count", uint16(3), "found 3, want 1"},
		{"tokenizer.ggml.model", "bert", `found "bert", want gpt2`},
		{"tokenizer.ggml.pre", "mamba", `found "mamba", want one of gpt-2, olmo`},
		{"tokenizer.ggml.tokens", []string{"a"}, "found 1 tokens"},
		{"tokenizer.ggml.bos_token_id", uint32(1 << 20), "want an id below"},
		{"tokenizer.ggml.eos_token_id", float32(math.NaN()), "want an id below"},
		{"llama.rope.dimension_sections", []int32{1, 2}, "found a list of 2, want no such key"},
		{"tokenizer.ggml.merges", []string{"x yz"}, "a part or the result is not in the vocabulary"},
	} {
		_, _, err := export.OpenGGUF(vfs.At(changed(t, map[string]any{c.key: c.value})), 0)
		wants := []string{"changed.gguf cannot be used", c.says, c.key + ":"}
		if strings.Contains(c.key, "merges") || strings.HasSuffix(c.key, "tokens") ||
			// found later, without the key
			strings.HasPrefix(c.says, "model.layers") || strings.Contains(c.says, ": found the") ||
			strings.Contains(c.says, ": missing") {
			wants = wants[:2]
		}
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s = %v: %v, want %q", c.key, c.value, err, want)
			}
		}
	}
	for name, says := range map[string]string{"rope_freqs.weight": "found 4 factors, want 8",
		"blk.0.attn_output.bias": "not in the model"} {
		tensor := gguf.Tensor{Name: name, Type: gguf.F32, Shape: []int{4}}
		tensor.Write = func(w io.Writer) error {
			_, err := w.Write([]byte(strings.Repeat("\x00\x00\x00\x40", 4)))
			return err
		}
		_, _, err := export.OpenGGUF(vfs.At(changed(t, nil, tensor)), 0)
		if err == nil || !strings.Contains(err.Error(), "tensor "+name+": "+says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// FuzzGGUF checks that no file causes a panic, and that all tensors of an accepted file can be
// read.
func FuzzGGUF(f *testing.F) {
	for _, entries := range []map[string]any{nil, {"tokenizer.ggml.model": "llama"},
		{"general.architecture": "qwen3"}} {
		f.Add(testfile.Read(f, changed(f, entries)))
	}
	path := filepath.Join(f.TempDir(), "x.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := export.OpenGGUF(vfs.At(path), 0)
		if err != nil {
			return
		}
		defer c.Close()
		for _, p := range c.Params() {
			if values, err := c.Values(p.Name); err != nil || len(values) != p.Size() {
				t.Fatalf("%s has %d values, error %v", p.Name, len(values), err)
			}
		}
	})
}
