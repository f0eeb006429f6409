package train_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/chat/rows"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/score"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/vfs"
)

// packingGolden is what transformers computes of documents with the checkpoint beside it.
type packingGolden struct {
	RowLength int         `json:"row_length"`
	Documents [][]int32   `json:"documents"`
	Masks     [][]int     `json:"document_loss_masks"`
	Alone     [][]float64 `json:"losses_alone"`
	Mean      float64     `json:"mean_loss"`
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

// TestPackedGolden: documents that share rows have the mean loss that transformers finds.
func TestPackedGolden(t *testing.T) {
	g := readPacking(t)
	path := filepath.Join(t.TempDir(), "train.chat")
	w, err := rows.NewWriter(vfs.At(path), rows.Origin{
		Tokenizer: tokenizer.Info{Name: "golden", VocabSize: 328, BOS: tokenizer.NoToken, EOS: tokenizer.NoToken, SHA256: strings.Repeat("1", 64)},
		Template:  "chatml", TemplateSHA256: strings.Repeat("0", 64), TrainOn: "all_turns",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, ids := range g.Documents {
		loss := make([]bool, len(ids))
		for k, m := range g.Masks[i] {
			loss[k] = m == 1
		}
		if err := w.Write(ids, loss); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Parse(t, fmt.Sprintf(`
[model]
init = %q
context = %d
[data]
kind = "chat"
train = %q
validation = %q
[train]
batch = 8
log_every = 1
memory_check = "off"
out = %q
[schedule]
rate = 1e-9
[quantizer]
plugin = "none"
[method]
form = "off"
`, packingDir, g.RowLength, path, path, filepath.Join(t.TempDir(), "run")))
	testrun.Train(t, cfg, train.Options{})
	if got := float64(records(t, cfg.Train.Out)[0].Loss); math.Abs(got-g.Mean) > 5e-5*(1+g.Mean) {
		t.Errorf("the mean loss of packed documents is %v, want %v", got, g.Mean)
	}
}

// TestAloneGolden: each token of each document alone has the loss that transformers finds.
func TestAloneGolden(t *testing.T) {
	g := readPacking(t)
	m, err := train.Open(t.Context(), packingDir, train.OpenOptions{NoData: true, Score: true})
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
