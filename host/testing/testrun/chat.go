package testrun

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/vfs"
)

// ChatFile writes a token file of conversations, each given by its token ids and loss mask, and
// returns its path.
func ChatFile(t testing.TB, info tokenizer.Info, documents iter.Seq2[[]int32, []bool]) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.chat")
	w, err := dataset.NewWriter(vfs.At(path), dataset.Origin{
		Tokenizer: info, Template: "chatml", TemplateSHA256: strings.Repeat("0", 64),
		TrainOn: "all_turns",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for ids, loss := range documents {
		if err := w.WriteDocument(ids, loss); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Conversations writes random documents of 3 to 14 tokens. In each, the second half counts in the
// loss.
func Conversations(t testing.TB, seed uint64, documents int) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	return ChatFile(t, tokenizer.Bytes{}.Info(), func(yield func([]int32, []bool) bool) {
		for range documents {
			ids := make([]int32, 3+rng.IntN(12))
			loss := make([]bool, len(ids))
			for i := range ids {
				ids[i], loss[i] = int32('a'+rng.IntN(5)), i >= len(ids)/2
			}
			if !yield(ids, loss) {
				return
			}
		}
	})
}

// HubConversations writes random conversations in the vocabulary of a Hugging Face checkpoint.
func HubConversations(t testing.TB, dir string, seed uint64, documents int) string {
	t.Helper()
	tok, err := tokenizer.LoadHuggingFace(filepath.Join(dir, tokenizer.DefinitionFile))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	return ChatFile(t, tok.Info(), func(yield func([]int32, []bool) bool) {
		for range documents {
			ids, loss := make([]int32, 3+rng.IntN(20)), []bool(nil) // some are longer than a row
			for i := range ids {
				ids[i], loss = rng.Int32N(300), append(loss, i > 0 && rng.IntN(2) == 0 || i == 1)
			}
			if !yield(ids, loss) {
				return
			}
		}
	})
}

// ChatConfig returns the configuration of a training run on conversations that covers all epochs.
func ChatConfig(t testing.TB, overrides ...string) *config.Config {
	t.Helper()
	text := fmt.Sprintf(`
[model]
layers = 2
width = 32
heads = 2
hidden = 48
context = 16

[data]
kind = "chat"
train = %q
validation = %q
epochs = 2

[train]
batch = 2
accumulate = 2
eval_every = 4
log_every = 1
out = %q

[schedule]
rate = 3e-3

[method]
lambda = 2.0
silence = 0.4

[quantizer]
plugin = "quest"
bits = 4

[optimizer]
plugin = "adamw"
`, Conversations(t, 1, 41), Conversations(t, 2, 9), filepath.Join(t.TempDir(), "run"))
	return Parse(t, text, overrides...)
}
