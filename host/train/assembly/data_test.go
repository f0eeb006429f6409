package assembly_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestOpenData(t *testing.T) {
	cfg := testrun.Config(t)
	d, err := assembly.OpenData(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := cfg.Model.Vocab
	pinned, err := d.Pinned(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if vocab := d.Train.Tokenizer().VocabSize; pinned.Model.Vocab != vocab || cfg.Model.Vocab != before {
		t.Errorf("the vocabulary is %d, want the data's %d; that of the configuration itself was %d, is %d", pinned.Model.Vocab, vocab, before, cfg.Model.Vocab)
	}
	cfg = pinned
	again, err := assembly.OpenData(testrun.Again(t, cfg))
	if err != nil {
		t.Fatalf("with pinned hashes: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	for key, overrides := range map[string][]string{
		"data.train_sha256":      {`data.train_sha256="` + strings.Repeat("1", 64) + `"`},
		"data.validation_sha256": {`data.validation_sha256="` + strings.Repeat("1", 64) + `"`},
		"data.validation":        {`data.validation="nowhere.tokens"`, `data.validation_sha256=""`},
		"model.vocab":            {"model.vocab=100"},
	} {
		_, err := assembly.OpenData(testrun.Again(t, cfg, overrides...))
		var ce *plaintoml.Error
		if !errors.As(err, &ce) || ce.Key != key {
			t.Errorf("%v: got %v, want an error of %s", overrides, err, key)
		}
	}
}

// TestOtherTokenizer: both files must come from one tokenizer.
func TestOtherTokenizer(t *testing.T) {
	cfg := testrun.Config(t)
	f, err := dataset.Open(cfg.Data.Validation)
	if err != nil {
		t.Fatal(err)
	}
	info := f.Header().Tokenizer
	f.Close()
	info.SHA256 = strings.Repeat("2", 64)
	if err := os.Remove(cfg.Data.Validation); err != nil {
		t.Fatal(err)
	}
	w, err := dataset.NewWriter(vfs.At(cfg.Data.Validation), dataset.Origin{Tokenizer: info})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteDocument(slices.Repeat([]int32{65}, 100), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := assembly.OpenData(cfg); err == nil || !strings.Contains(err.Error(), "both need the same") {
		t.Errorf("got %v", err)
	}
}
