package huggingface_test

import (
	"encoding/json/v2"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	networks "github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testmodel"
	"github.com/cage-qat/cage/host/testing/teststage"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// golden holds results of transformers for a checkpoint.
type golden struct {
	InputIDs       [][]int32     `json:"input_ids"`
	LogitPositions []int         `json:"logit_positions"`
	Logits         [][][]float64 `json:"logits"` // of the first sequence at these positions
	TokenLosses    [][]float64   `json:"token_losses"`
	Loss           float64       `json:"loss"`
	Argmax         [][]int32     `json:"argmax"`
	GreedyPrompt   []int32       `json:"greedy_prompt"`
	Greedy         []int32       `json:"greedy"`
}

var goldenModels = []string{"gemma", "gemma2", "gemma3", "granite", "linear", "llama2", "llama32",
	"ministral", "mistral", "nemo", "olmo2", "olmo3", "qwen2", "qwen3", "sharded", "smollm3", "window"}

func readGolden(t testing.TB, name string) (g golden) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func open(t testing.TB, dir string, o huggingface.Options) *huggingface.Checkpoint {
	t.Helper()
	c, err := huggingface.Open(vfs.At(dir), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

type network struct {
	model  model.Language
	device *engine.Device
	params []*engine.Buffer
}

func newNetwork(t testing.TB, c *huggingface.Checkpoint) network {
	t.Helper()
	m, err := model.New(c.Config.Settings, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := network{model: m.(model.Language), device: testdevice.Open(t, engine.Options{})}
	for _, p := range m.Params() {
		values, err := c.Values(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		n.params = append(n.params, testdevice.Upload(t, n.device, values, p.Dims...))
	}
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// logits returns the logits of a sequence, a row for each position.
func (n network) logits(t testing.TB, ids []int32) [][]float32 {
	t.Helper()
	inputs := append(append([]*engine.Buffer{}, n.params...),
		testdevice.Upload(t, n.device, slices.Concat(ids, ids[:1]), 1, len(ids)+1))
	flat := teststage.Compute(t, n.device, n.model.Calls(networks.Shape{}), inputs,
		func(_ *program.Builder, in []program.Value) []program.Value {
			last := len(in) - 1
			return []program.Value{testmodel.Logits(n.model, in[:last], in[last])}
		})[0]
	vocab := len(flat) / len(ids)
	var list [][]float32
	for i := range ids {
		list = append(list, flat[i*vocab:(i+1)*vocab])
	}
	return list
}

func argmax(x []float32) (best int32) {
	for i := range x {
		if x[i] > x[best] {
			best = int32(i)
		}
	}
	return best
}

// loss returns the cross-entropy of a target.
func loss(logits []float32, target int32) float64 {
	top, sum := float64(logits[argmax(logits)]), 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum) - float64(logits[target])
}

// near is stricter than the tolerance of the golden files, 5e-5 + 5e-5·|x|. The observed
// differences are below 4e-6.
func near(got, want float64) bool { return math.Abs(got-want) <= 1e-5+1e-5*math.Abs(want) }

// TestModels compares logits, losses and greedy continuations with those of transformers, with both
// pairings of rotary features.
func TestModels(t *testing.T) {
	for _, name := range goldenModels {
		both := []architecture.Pairing{architecture.Interleaved, architecture.HalfSplit}
		for _, pairs := range testlevel.Sample(both[:1], both, both) {
			t.Run(name+"/"+string(pairs), func(t *testing.T) {
				n := newNetwork(t, open(t, filepath.Join("testdata", name), huggingface.Options{Pairs: pairs}))
				g := readGolden(t, name)
				g.compare(t, n)
				ids := append([]int32{}, g.GreedyPrompt...)
				for i, want := range g.Greedy {
					logits := n.logits(t, ids)
					next := argmax(logits[len(logits)-1])
					if next != want {
						t.Fatalf("token %d of the continuation is %d, want %d", i, next, want)
					}
					ids = append(ids, next)
				}
			})
		}
	}
}

func (g golden) compare(t *testing.T, n network) {
	t.Helper()
	total, count := 0.0, 0
	for row, ids := range g.InputIDs {
		logits := n.logits(t, ids)
		for i, at := range g.LogitPositions {
			if row > 0 {
				break
			}
			for j, want := range g.Logits[0][i] {
				if got := float64(logits[at][j]); !near(got, want) {
					t.Fatalf("logit %d at position %d is %v, want %v", j, at, got, want)
				}
			}
		}
		for i, want := range g.TokenLosses[row] {
			got := loss(logits[i], ids[i+1])
			if total, count = total+got, count+1; !near(got, want) {
				t.Fatalf("the loss of token %d is %v, want %v", i+1, got, want)
			}
		}
		for i, want := range g.Argmax[row] {
			if got := argmax(logits[i]); got != want {
				t.Fatalf("the likeliest token at %d is %d, want %d", i, got, want)
			}
		}
	}
	if mean := total / float64(count); !near(mean, g.Loss) {
		t.Fatalf("the mean loss is %v, want %v", mean, g.Loss)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the table of docs/guide/fine-tuning.md anew")

// published names the models of architectures whose names do not identify them.
var published = map[string]string{
	"LlamaForCausalLM":     " (Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM2)",
	"Qwen2ForCausalLM":     " (2 and 2.5)",
	"Gemma3ForCausalLM":    "; of `Gemma3ForConditionalGeneration` the text model",
	"GemmaForCausalLM":     " (1)",
	"MinistralForCausalLM": "; sequences up to the window, if only some layers have it",
	"GraniteForCausalLM":   " (3)",
}

// TestDocumented checks that the guide's table has each architecture, whose models can be stored as
// GGUF, and that the loss of each token differs by no more than the guide says from that of
// transformers.
func TestDocumented(t *testing.T) {
	if testdevice.Kind() != device.CPU {
		t.Skip("the difference is that of CPUs")
	}
	const page, head = "../../../docs/guide/fine-tuning.md", "| architecture |\n|---|\n"
	const claim, most = "differs by at most 1e-5", 1e-5
	rowOf := map[string]string{}
	for _, name := range goldenModels {
		c, g := open(t, filepath.Join("testdata", name), huggingface.Options{}), readGolden(t, name)
		n, of := newNetwork(t, c), c.Config.Architecture
		for row, ids := range g.InputIDs {
			logits := n.logits(t, ids)
			for i, want := range g.TokenLosses[row] {
				if d := math.Abs(loss(logits[i], ids[i+1]) - want); !(d <= most) {
					t.Errorf("%s: the loss of a token differs by %g, and %s says: %s", of, d, page, claim)
				}
			}
		}
		m := &export.Model{Settings: c.Config.Settings, Params: c.Params(), Latent: c.Values,
			Quantized: func(string) (*export.Quantized, error) { return nil, nil }}
		// Only one of the published Gemma models has another multiplier.
		m.Settings.AttentionMultiplier = 0
		m.Settings.Context, m.Tokenizer.BOS, m.Tokenizer.Pad, m.Tokenizer.Turn = 32, tokenizer.NoToken,
			tokenizer.NoToken, tokenizer.NoToken
		m.Tokenizer.Files = map[string][]byte{
			tokenizer.DefinitionFile: []byte(
				`{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"vocab": {"a": 3}}}`)}
		rowOf[of] = fmt.Sprintf("| `%s`%s |", of, published[of])
		if _, err := export.Write(t.Context(), "gguf", vfs.At(filepath.Join(t.TempDir(), "out")), m,
			export.Options{}); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), head)
	rows, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table of architectures", page)
	}
	if !strings.Contains(string(text), claim) {
		t.Errorf("%s does not say: %s", page, claim)
	}
	want := slices.Sorted(maps.Values(rowOf))
	if table := strings.Join(want, "\n"); *update {
		if err := os.WriteFile(page, []byte(before+head+table+"\n\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != rows {
		t.Errorf("%s: the table is not that of the models: run this test with -update\n%s", page, table)
	}
}
