package export_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/testing/testgguf"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// fromGGUF returns a quantizer with the values of a golden file and scales derived from them.
func fromGGUF(kind string) quantizer {
	return func(t *testing.T, name string, columns int) *export.Quantized {
		value := floats(t, file(t, "gguf", "tiny-"+kind+".dequantized.safetensors"), name)
		switch kind {
		case "mxfp4":
			return of(t, value, exponents(value), sdk.E2M1(32))
		case "q8_0":
			return of(t, value, largest(value, 32, 127), sdk.Integers(-128, 127, 32))
		case "q4_1": // odd codes up to 15; each row has ±15
			return of(t, value, largest(value, columns, 15), sdk.OddIntegers(15, 0))
		}
		return of(t, value, smallest(value, columns), sdk.Integers(-8, 7, 0))
	}
}

// largest returns the largest magnitude of each group, divided by code.
func largest(value []float32, group int, code float32) (scale []float32) {
	for g := range slices.Chunk(value, group) {
		m := float32(0)
		for _, v := range g {
			m = max(m, v, -v)
		}
		scale = append(scale, m/code)
	}
	return scale
}

// smallest returns the smallest nonzero magnitude of each group: the step, if a code is ±1.
func smallest(value []float32, group int) (scale []float32) {
	for g := range slices.Chunk(value, group) {
		m := float32(math.MaxFloat32)
		for _, v := range g {
			if v != 0 {
				m = min(m, float32(math.Abs(float64(v))))
			}
		}
		scale = append(scale, m)
	}
	return scale
}

// exponents returns the scales of blocks by the rule of the specification: the power of two not
// above the largest magnitude, over 4.
func exponents(value []float32) (scale []float32) {
	for _, m := range largest(value, 32, 1) {
		_, e := math.Frexp(float64(m))
		scale = append(scale, float32(math.Ldexp(1, e-1-2)))
	}
	return scale
}

// TestGGUF checks that tensors packed from the numbers of a golden file have its bytes, and that
// the entries are the same in the same order.
func TestGGUF(t *testing.T) {
	for _, kind := range []string{"f32", "f16", "q8_0", "q4_0", "q4_1", "mxfp4"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			q, o := fromGGUF(kind), export.Options{}
			if kind == "f32" || kind == "f16" {
				q, o.Float = nil, kind
			}
			if _, err := export.Write(t.Context(), "gguf", vfs.At(out), goldenModel(t, q), o); err != nil {
				t.Fatal(err)
			}
			got, want := testgguf.Open(t, filepath.Join(out, "model.gguf")),
				testgguf.Open(t, filepath.Join(goldens, "gguf", "tiny-"+kind+".gguf"))
			if diff := cmp.Diff(want.Entries, got.Entries); diff != "" {
				t.Errorf("entries differ:\n%s", diff)
			}
			found := map[string]gguf.Info{}
			for _, info := range got.Tensors {
				found[info.Name] = info
			}
			if len(found) != len(want.Tensors) {
				t.Errorf("%d tensors, want %d", len(found), len(want.Tensors))
			}
			for _, info := range want.Tensors {
				g := found[info.Name]
				if kind == "f16" && info.Name == "token_embd.weight" {
					continue // the golden keeps the embedding as float32
				}
				if g.Type != info.Type || !reflect.DeepEqual(g.Shape, info.Shape) ||
					!bytes.Equal(testgguf.Data(t, got, g), testgguf.Data(t, want, info)) {
					t.Errorf("%s is %s %v and differs from the golden, %s %v", info.Name, g.Type, g.Shape,
						info.Type, info.Shape)
				}
			}
		})
	}
}

// TestTiedHeads checks that only tied heads of OLMo 2 and 3 are separate tensors, as llama.cpp
// requires. Elsewhere it uses the embedding.
func TestTiedHeads(t *testing.T) {
	for _, kind := range architecture.Languages {
		dir := filepath.Join(t.TempDir(), "out")
		r, err := export.Write(t.Context(), "gguf", vfs.At(dir),
			smallOf(t, architecture.Settings{Kind: kind, Head: "tied", ScoreCap: 50, LogitCap: 30},
				integers(32, halfSeventh)), export.Options{})
		if err != nil || !r.Exact {
			t.Fatalf("%s: %v", kind, err)
		}
		f := testgguf.Open(t, filepath.Join(dir, "model.gguf"))
		var embedding, head []byte
		for _, info := range f.Tensors {
			switch info.Name {
			case "token_embd.weight":
				embedding = testgguf.Data(t, f, info)
			case "output.weight":
				head = testgguf.Data(t, f, info)
			}
		}
		want := []byte(nil)
		if kind == architecture.KindOLMo2 || kind == architecture.KindOLMo3 {
			want = embedding
		}
		if len(embedding) == 0 || !bytes.Equal(head, want) {
			t.Errorf("%s: the head has %d bytes, the embedding %d", kind, len(head), len(embedding))
		}
	}
}

// TestLayoutsOfLlamaCpp checks that models that llama.cpp does not compute are refused.
func TestLayoutsOfLlamaCpp(t *testing.T) {
	const factors, features = `scaled positions by rope_scaling = "llama3"`, "a head size other " +
		"than width/heads = 16"
	stretched := architecture.Settings{RopeFactor: 8, RopeOriginal: 8, RopeLow: 1, RopeHigh: 4}
	for _, c := range []struct {
		kind string
		s    architecture.Settings
		want string
	}{
		{architecture.KindLlama, stretched, ""}, {architecture.KindQwen3, stretched, factors},
		{architecture.KindOLMo2, stretched, factors},
		{architecture.KindLlama, architecture.Settings{HeadSize: 32}, ""},
		{architecture.KindQwen3, architecture.Settings{HeadSize: 32}, ""},
		{architecture.KindOLMo2, architecture.Settings{HeadSize: 32}, features},
		{architecture.KindGemma, architecture.Settings{}, "an output head of its own"},
		{architecture.KindGemma, stretched, factors},
		{architecture.KindGemma2, architecture.Settings{Head: "tied"}, "scores or logits without a cap"},
		{architecture.KindGemma2, architecture.Settings{}, "an output head of its own, nor with"},
		{architecture.KindOLMo3,
			architecture.Settings{RopeFactor: 4, RopeScaling: architecture.ScalingYaRN, RopeLow: 2,
				RopeHigh: 8, RopeOriginal: 16}, "YaRN with rope_low = 2"},
		{architecture.KindGemma3, architecture.Settings{AttentionMultiplier: 0.125},
			"attention_multiplier = 0.125, but 0.25"},
	} {
		c.s.Kind = c.kind
		_, err := export.Write(t.Context(), "gguf", vfs.At(filepath.Join(t.TempDir(), "out")),
			smallOf(t, c.s, nil), export.Options{})
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "--to hf")) {
			t.Errorf("%s: %v, want %q", c.kind, err, c.want)
		}
	}
}

// TestTurnedNorms checks that the gains of the norms of queries and keys of Qwen 3 are in
// half-split order, in which llama.cpp rotates features. Otherwise a model with interleaved
// features would be served with wrong attention.
func TestTurnedNorms(t *testing.T) {
	m := smallOf(t, architecture.Settings{Kind: architecture.KindQwen3,
		RopePairs: architecture.Interleaved}, nil)
	const features = 16 // of a head
	m.Latent = func(name string) ([]float32, error) {
		i := slices.IndexFunc(m.Params, func(p architecture.Param) bool { return p.Name == name })
		values := make([]float32, m.Params[i].Size())
		for j := range values {
			values[j] = float32(j)
		}
		return values, nil
	}
	dir, _ := exported(t, "gguf", m, export.Options{})
	var want []float32 // first the even features, then the odd ones
	for i := range features {
		want = append(want, float32(2*i%features+2*i/features))
	}
	f := testgguf.Open(t, filepath.Join(dir, "model.gguf"))
	seen := 0
	for _, info := range f.Tensors {
		if info.Name != "blk.0.attn_q_norm.weight" && info.Name != "blk.0.attn_k_norm.weight" {
			continue
		}
		seen++
		got := make([]float32, features)
		if _, err := binary.Decode(testgguf.Data(t, f, info), binary.LittleEndian, got); err != nil ||
			!slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v, error %v", info.Name, got, want, err)
		}
	}
	if seen != 2 {
		t.Errorf("%d norms of queries and keys", seen)
	}
}

// TestOtherIDs checks that an export is refused if llama.cpp gives other ids than a byte-level
// tokenizer for some texts. With --inexact the report has a note instead.
func TestOtherIDs(t *testing.T) {
	const other = "llama.cpp gives other ids for some texts: "
	for _, c := range []struct {
		more    string // keys of the tokenizer.json
		merges  string
		refused string
		note    string // where it is not refused
	}{
		{"", "", "", ""},
		{`"normalizer": null, `, "", "", ""},
		{`"normalizer": {"type": "NFC"}, `, "", "", "llama.cpp does not apply the normalizer NFC"},
		{`"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, `, "", "",
			"llama.cpp does not apply the normalizer NFC"},
		{`"normalizer": {"type": "NFKC"}, `, "", other + "the normalizer NFKC is not applied", ""},
		{`"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}, `, "", other +
			"the normalizer Replace is not applied", ""},
		{"", `, "ignore_merges": true`, other + "it joins by merges alone", ""},
		{`"added_tokens": [{"id": 9, "content": "<x>", "lstrip": true}], `, "", other +
			`lstrip, rstrip and single_word are ignored`, ""},
		{`"added_tokens": [{"id": 9, "content": "<x>", "normalized": true, "special": true}], `, "", "",
			""},
	} {
		for _, inexact := range []bool{false, true} {
			m := small(t, architecture.KindLlama, nil)
			m.Tokenizer.Files["tokenizer.json"] = []byte(`{` + c.more +
				`"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"vocab": {"a": 0, "b": 7, "ab": 8}, "merges": ["a b"]` + c.merges + `}}`)
			r, err := export.Write(t.Context(), "gguf", vfs.At(filepath.Join(t.TempDir(), "out")), m,
				export.Options{Inexact: inexact})
			note := c.note
			switch {
			case c.refused == "":
			case !inexact:
				if err == nil || !strings.Contains(err.Error(), c.refused) ||
					!strings.Contains(err.Error(), "--inexact") {
					t.Errorf("%s%s: %v, want %q", c.more, c.merges, err, c.refused)
				}
				continue
			default:
				note = c.refused
			}
			if err != nil {
				t.Errorf("%s%s, inexact %v: %v", c.more, c.merges, inexact, err)
				continue
			}
			if got := strings.Join(r.Notes, "\n"); !strings.HasPrefix(got, note) ||
				(got == "") != (note == "") {
				t.Errorf("%s%s: the notes are %q, want %q", c.more, c.merges, got, note)
			}
		}
	}
}
