package huggingface_test

import (
	"encoding/json/v2"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/huggingface"
)

// computed is what testdata/absent.py says about a model that transformers makes of a config.json.
type computed struct {
	Layers, Width, Heads, KVHeads, HeadSize, Hidden, Vocab, Positions int
	NormEps, ScoreScale, ScoreCap, LogitCap                           float64
	EmbeddingMultiplier, ResidualMultiplier, LogitsScaling            float64
	Tied, GELU                                                        bool
	// window, frequencies of positions and their factor of each kind of layers, and the kinds
	Positional [][3]any
	LayerKinds []int
}

// A change is a key, with its path, that is "absent" or "null", and what then differs.
type change struct {
	Key, How string
	Refused  bool // by transformers
	Differs  map[string]any
}

func computedBy(c *huggingface.Config) (out computed) {
	s := c.Settings
	out = computed{Layers: s.Layers, Width: s.Width, Heads: s.Heads, KVHeads: s.KVHeads,
		HeadSize: s.HeadSize, Hidden: s.Hidden, Vocab: s.Vocab, Positions: c.MaxPositions,
		NormEps: s.NormEps, ScoreScale: s.ScoreScale(), ScoreCap: s.ScoreCap, LogitCap: s.LogitCap,
		EmbeddingMultiplier: max(s.EmbeddingMultiplier, 1), ResidualMultiplier: s.ResidualScale(),
		LogitsScaling: 1 / s.LogitScale(), Tied: s.Tied(), GELU: s.GELU()}
	for layer := range s.Layers {
		rope := s.LayerRope(layer)
		kind := [3]any{float64(s.LayerWindow(layer, math.MaxInt)), rope.RopeFrequencies(),
			rope.RopeMagnitude()}
		at := slices.IndexFunc(out.Positional, func(k [3]any) bool { return alike(k, kind) })
		if at < 0 {
			at, out.Positional = len(out.Positional), append(out.Positional, kind)
		}
		out.LayerKinds = append(out.LayerKinds, at)
	}
	return out
}

// alike compares JSON values, numbers to five digits.
func alike(a, b any) bool {
	var values [2]any
	for i, v := range []any{a, b} {
		text, err := json.Marshal(v)
		if err != nil || json.Unmarshal(text, &values[i]) != nil {
			return false
		}
	}
	return sameValues(values[0], values[1])
}

func sameValues(a, b any) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && math.Abs(a-b) <= 1e-5*math.Abs(b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValues)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameValues)
	}
	return a == b
}

// TestAbsent removes each key of a config.json of each family, in the notations of transformers 4
// and 5, and sets it to null. What is read must be what transformers reads, or the key is refused.
// Settings are compared, not losses, as rounding hides small differences: where Granite has no
// attention_multiplier, scores have the factor 1 instead of 1/√8. Losses of transformers in float32
// differ then by 1e-4 from its own in float64, as from those of cage; at an explicit 1, too.
func TestAbsent(t *testing.T) {
	text, err := os.ReadFile("testdata/absent.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Models []struct {
			Config       map[string]any
			Architecture map[string]any
			Changes      []change
		}
	}
	if err := json.Unmarshal(text, &golden, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	compared, refused := 0, 0
	for _, m := range golden.Models {
		of := m.Config["architectures"].([]any)[0].(string)
		for _, c := range m.Changes {
			text, err := json.Marshal(without(m.Config, strings.Split(c.Key, "."), c.How))
			if err != nil {
				t.Fatal(err)
			}
			last := c.Key[strings.LastIndex(c.Key, ".")+1:]
			got, err := huggingface.ParseConfig(text, 0)
			if fault, ok := errors.AsType[*huggingface.Error](err); ok {
				named := strings.TrimSuffix(c.Key, "rope_type") // what depends on it is named
				if !slices.ContainsFunc(fault.Faults, func(f string) bool {
					return strings.HasPrefix(f, named) || strings.HasPrefix(f, localTheta)
				}) {
					t.Errorf("%s, %s %s: the key is not in %q", of, c.Key, c.How, fault.Faults)
				}
				if !c.Refused && !slices.Contains(stricter, last+" "+c.How) &&
					!strings.HasPrefix(fault.Faults[0], localTheta) {
					t.Errorf("%s, %s %s: %q, but transformers reads it", of, c.Key, c.How, fault.Faults)
				}
				refused++
				continue
			}
			differs := c.Differs
			if c.Refused { // then null must be as no key
				i := slices.IndexFunc(m.Changes, func(o change) bool { return o.Key == c.Key })
				differs = m.Changes[i].Differs
			}
			want := maps.Clone(m.Architecture)
			maps.Copy(want, differs)
			if out := computedBy(got); !alike(want, out) {
				t.Errorf("%s, %s %s: got %+v, want %+v", of, c.Key, c.How, out, want)
			}
			compared++
		}
	}
	if compared < 700 || refused < 200 {
		t.Errorf("%d changes compared, %d refused", compared, refused)
	}
}

const localTheta = "rope_parameters.sliding_attention.rope_theta"

// stricter are changes that are refused, although transformers reads them: sizes, which tensors
// tell anyway, and parameters of scaling. So is another base in layers with a window where cage has
// one for all layers.
var stricter = []string{"num_attention_heads absent", "vocab_size absent",
	"num_key_value_heads null", "rope_type absent", "factor null",
	"original_max_position_embeddings absent"}

func without(object map[string]any, path []string, how string) map[string]any {
	out := maps.Clone(object)
	switch inner, _ := out[path[0]].(map[string]any); {
	case len(path) > 1:
		out[path[0]] = without(inner, path[1:], how)
	case how == "null":
		out[path[0]] = nil
	default:
		delete(out, path[0])
	}
	return out
}
