package data

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestLearnTokenizer checks that a tokenizer learned from bytes has BOS and EOS tokens and gives
// fewer ids, and that other token files are errors.
func TestLearnTokenizer(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, info tokenizer.Info, documents ...string) *dataset.File {
		w, err := dataset.NewWriter(vfs.At(filepath.Join(dir, name)), dataset.Origin{Tokenizer: info})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			ids, err := tokenizer.Bytes{}.Encode(d)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.WriteDocument(ids, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		return open(t, filepath.Join(dir, name))
	}
	text := strings.Repeat("func main returns nil\n", 20)
	long := strings.Repeat("a line of a long document\n", 100_000) // read in several parts
	f := write("bytes.tokens", tokenizer.Bytes{}.Info(), text, long, "ünïcode")
	out := filepath.Join(dir, "tokenizer")
	left, mine := filepath.Join(out, ".tokenizer.json.cage-unfinished-7"),
		filepath.Join(out, ".tokenizer.json7")
	if err := errors.Join(os.Mkdir(out, 0o700), os.WriteFile(left, nil, 0o600),
		os.WriteFile(mine, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	info, err := LearnTokenizer(t.Context(), f, 300, vfs.At(out))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed command left is there: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("somebody else's file: %v", err)
	}
	if info.VocabSize > 300 || info.VocabSize < 290 || info.BOS == tokenizer.NoToken ||
		info.EOS == tokenizer.NoToken {
		t.Errorf("the tokenizer is %+v", info)
	}
	tok := openTokenizer(t, out)
	for _, d := range []string{text, "ünïcode"} {
		ids, err := tok.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := tok.Decode(ids); err != nil || back != d || d == text && len(ids) > len(d)/3 {
			t.Errorf("%d ids, back as %.20q, %v", len(ids), back, err)
		}
	}
	if _, err := LearnTokenizer(t.Context(), write("other.tokens", info, "x"), 300,
		vfs.At(out)); err == nil || !strings.Contains(err.Error(), "want a token file of bytes") {
		t.Errorf("of another file: %v", err)
	}
	if _, err := LearnTokenizer(t.Context(), f, 10, vfs.At(out)); err == nil ||
		!strings.Contains(err.Error(), "at least 261") {
		t.Errorf("of too few tokens: %v", err)
	}
}
