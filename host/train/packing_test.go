package train_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/vfs"
)

// packingGolden is what transformers computes of documents with the checkpoint beside it.
type packingGolden struct {
	RowLength int         `json:"row_length"`
	Documents [][]int32   `json:"documents"`
	Masks     [][]int     `json:"document_loss_masks"`
	Alone     [][]float64 `json:"losses_alone"`
	Mean      float64     `json:"mean_loss"`
	Rows      []struct {
		Tokens   []int32   `json:"tokens"`
		Segments []int32   `json:"segments"`
		Weights  []float32 `json:"target_weights"` // of what each place predicts
		Losses   []float64 `json:"losses"`         // of each place, as far as there are documents
	} `json:"rows"`
}

const packingDir = "testdata/packing"

func readPacking(t *testing.T) packingGolden {
	t.Helper()
	var g packingGolden
	text, err := os.ReadFile(filepath.Join(packingDir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &g); err != nil || len(g.Documents) < 5 {
		t.Fatalf("%d documents, %v", len(g.Documents), err)
	}
	return g
}

// packingConfig is a run on the documents of g, in batches of so many rows.
func packingConfig(t *testing.T, g packingGolden, batch int) *config.Config {
	t.Helper()
	info := tokenizer.Info{Name: "golden", VocabSize: 328, BOS: tokenizer.NoToken, EOS: tokenizer.NoToken, SHA256: strings.Repeat("1", 64)}
	path := testrun.ChatFile(t, info, func(yield func([]int32, []bool) bool) {
		for i, ids := range g.Documents {
			loss := make([]bool, len(ids))
			for k, m := range g.Masks[i] {
				loss[k] = m == 1
			}
			if !yield(ids, loss) {
				return
			}
		}
	})
	return testrun.Parse(t, fmt.Sprintf(`
[model]
init = %q
context = %d
[data]
kind = "chat"
train = %q
validation = %q
[train]
batch = %d
log_every = 1
memory_check = "off"
out = %q
[schedule]
rate = 1e-9
[quantizer]
plugin = "none"
[method]
form = "off"
`, packingDir, g.RowLength, path, path, batch, filepath.Join(t.TempDir(), "run")))
}

// TestPackedGolden: documents that share rows have the mean loss that transformers finds.
func TestPackedGolden(t *testing.T) {
	g := readPacking(t)
	cfg := packingConfig(t, g, 8)
	testrun.Train(t, cfg, train.Options{})
	if got := float64(records(t, cfg.Train.Out)[0].Loss); math.Abs(got-g.Mean) > 5e-5*(1+g.Mean) {
		t.Errorf("the mean loss of packed documents is %v, want %v", got, g.Mean)
	}
}

// TestPackedPlacesGolden: rows have the tokens, segments and weights of the reference, and each
// place has the loss that transformers finds there, also where a document ends and the next begins.
func TestPackedPlacesGolden(t *testing.T) {
	g := readPacking(t)
	cfg := packingConfig(t, g, len(g.Rows))
	f, err := dataset.Open(cfg.Data.Validation)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	order := sequence(t, cfg, f, len(g.Rows))
	batch := make([]int32, order.BatchLen())
	if n, _, err := order.At(0, batch); err != nil || n != len(g.Rows) {
		t.Fatalf("%d rows, want %d, %v", n, len(g.Rows), err)
	}
	for i, r := range model.DocumentRows(batch, g.RowLength) {
		want := g.Rows[i]
		last := g.RowLength // a place more than the reference has, which predicts nothing
		if !slices.Equal(r.Tokens[:last], want.Tokens) || !slices.Equal(r.Segments, append(want.Segments, model.Padding)) {
			t.Errorf("row %d is %v of the documents %v, want %+v", i, r.Tokens, r.Segments, want)
		}
		for place, weight := range want.Weights {
			if got := r.Weight(place + 1); got != weight {
				t.Errorf("row %d, place %d: the weight is %v, want %v", i, place, got, weight)
			}
			if place < len(want.Losses) {
				r.SetWeight(place+1, 1)
			}
		}
	}
	compareLosses(t, cfg, batch, g)
}

// compareLosses compares the losses of all places of a batch with the reference.
func compareLosses(t *testing.T, cfg *config.Config, batch []int32, g packingGolden) {
	t.Helper()
	plan := testrun.Plan(t, cfg)
	c := testrun.Compile(t, plan)
	stored, err := huggingface.Open(vfs.At(packingDir), huggingface.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	var params [][]float32
	for _, p := range plan.Model.Params() {
		values, err := stored.Values(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		params = append(params, slices.Clone(values))
	}
	e, err := c.Evaluator(testrun.Upload(t, c, params))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	losses, err := e.Losses(batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range g.Rows {
		for place, got := range losses[i*g.RowLength : (i+1)*g.RowLength] {
			want := 0.0
			if place < len(row.Losses) {
				want = row.Losses[place]
			}
			if math.Abs(float64(got)-want) > 5e-5*(1+want) {
				t.Errorf("row %d, place %d: the loss is %v, want %v", i, place, got, want)
			}
		}
	}
}

// TestAloneGolden: each token of each document alone has the loss that transformers finds.
func TestAloneGolden(t *testing.T) {
	g := readPacking(t)
	m, err := trained.Open(t.Context(), packingDir, trained.Options{NoData: true, Score: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var requests []score.Request
	var want []float64
	for i, ids := range g.Documents {
		if len(g.Alone[i]) != len(ids)-1 {
			t.Fatalf("document %d of %d tokens has %d losses", i, len(ids), len(g.Alone[i]))
		}
		for k := 1; k < len(ids); k++ {
			requests = append(requests, score.Request{Context: ids[:k], Continuation: ids[k : k+1]})
			want = append(want, g.Alone[i][k-1])
		}
	}
	seen := 0
	err = m.Score(t.Context(), requests, nil, func(which []int, scores []score.Score) error {
		for k, i := range which {
			seen++
			if loss := -scores[k].LogProb; math.Abs(loss-want[i]) > 5e-5*(1+want[i]) {
				t.Errorf("token %d of all: %v, want %v", i, loss, want[i])
			}
		}
		return nil
	})
	if err != nil || seen != len(want) {
		t.Fatalf("%d of %d tokens, %v", seen, len(want), err)
	}
}
