package build_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestOpenData(t *testing.T) {
	cfg := testrun.Config(t)
	d, err := build.OpenData(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := cfg.Model.Vocab
	pinned, err := d.Pinned(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if vocab := d.Train.Tokenizer().VocabSize; pinned.Model.Vocab != vocab ||
		cfg.Model.Vocab != before {
		t.Errorf("the vocabulary is %d, want the data's %d; that of the configuration itself was %d, "+
			"is %d", pinned.Model.Vocab, vocab, before, cfg.Model.Vocab)
	}
	cfg = pinned
	again, err := build.OpenData(testrun.Again(t, cfg))
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
		_, err := build.OpenData(testrun.Again(t, cfg, overrides...))
		var ce *plaintoml.Error
		if !errors.As(err, &ce) || ce.Key != key {
			t.Errorf("%v: got %v, want an error of %s", overrides, err, key)
		}
	}
}

// TestOtherTokenizer checks that both files must come from the same tokenizer.
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
	if _, err := build.OpenData(cfg); err == nil ||
		!strings.Contains(err.Error(), "both need the same") {
		t.Errorf("got %v", err)
	}
}

// TestSmallerVocabulary checks that reading a token fails if the model that a training starts from
// does not have it, also in a source of a mixture.
func TestSmallerVocabulary(t *testing.T) {
	path, _ := testrun.Dataset(t)
	for _, mixture := range [][]config.Source{nil, {{Path: path, Weight: 1}}} {
		cfg := testrun.Config(t, "model.vocab=90") // less than the code of each small letter
		cfg.Init, cfg.Data.Mixture = t.TempDir(), mixture
		d, err := build.OpenData(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		batches, err := build.OpenBatches(cfg, modelOf(t, cfg), d)
		if err != nil {
			t.Fatal(err)
		}
		err = batches.At(0, make([]int32, batches.Len))
		if _, ok := errors.AsType[*tokenizer.RangeError](err); !ok {
			t.Errorf("mixture %v: got %v, want an error of the token", mixture, err)
		}
	}
}

// TestBeginning checks that a BOS token which the tokenizer does not add to every text is added if
// the model was trained on documents, or if the text is empty.
func TestBeginning(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tokenizer.json":        `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"s":2},"merges":[]}}`,
		"tokenizer_config.json": `{"bos_token": "s"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	named, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	learned, talks := &config.Config{}, &config.Config{}
	learned.Data.Kind, talks.Data.Kind = config.KindText, config.KindChat
	published := learned.WithoutTraining("elsewhere")
	for name, c := range map[string]struct {
		cfg  *config.Config
		text string
		want []int32
	}{
		"learned": {learned, "ab", []int32{2, 0, 1}}, "from conversations": {talks, "ab", []int32{0, 1}},
		"published": {published, "ab", []int32{0, 1}}, "nothing": {published, "", []int32{2}},
	} {
		if got, err := build.Beginning(c.cfg, named, c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v: %v", name, got, c.want, err)
		}
	}
}

// openTokens opens a token file and closes it when the test ends.
func openTokens(t *testing.T, path string) *dataset.File {
	t.Helper()
	part, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { part.Close() })
	return part
}

// TestWindows checks that windows are drawn without replacement, that they depend only on the seed,
// and that their number is limited by the file.
func TestWindows(t *testing.T) {
	path, _ := testrun.Dataset(t)
	part := openTokens(t, path)
	cfg := testrun.Config(t, "model.context=64")
	draw := func(n int, seed uint64) (list []string) {
		windows, segments, err := build.Windows(cfg, part, n, seed)
		if err != nil || segments != nil {
			t.Fatalf("segments %v, %v", segments, err)
		}
		for _, w := range windows {
			if len(w) != 64 {
				t.Fatalf("a window of %d tokens", len(w))
			}
			var b strings.Builder
			for _, id := range w {
				b.WriteRune(id)
			}
			list = append(list, b.String())
		}
		return list
	}
	few, all := draw(5, 1), draw(1<<20, 1)
	if !slices.Equal(few, all[:5]) || slices.Equal(few, draw(5, 2)) {
		t.Error("windows do not follow from the seed")
	}
	if want := int(part.Len()/64) - 1; len(all) != want {
		t.Errorf("%d windows, want %d", len(all), want)
	}
	if slices.Sort(all); len(slices.Compact(all)) < int(part.Len()/64)-1 {
		t.Error("a window was drawn twice")
	}
	long := testrun.Config(t, fmt.Sprintf("model.context=%d", part.Len()))
	if _, _, err := build.Windows(long, part, 1, 0); err == nil {
		t.Error("a window as long as the file was drawn")
	}
}

// TestWindowsOfConversations checks that the rows hold each document once, truncated to the length
// of a row, and number the documents.
func TestWindowsOfConversations(t *testing.T) {
	const context = 16
	var want []string
	path := testrun.ChatFile(t, tokenizer.Bytes{}.Info(), func(yield func([]int32, []bool) bool) {
		for i := range 30 {
			ids := slices.Repeat([]int32{int32('A' + i)}, 2+i) // the last ones are longer than a row
			if !yield(ids, slices.Repeat([]bool{true}, len(ids))) {
				return
			}
			want = append(want, string(rune('A'+i))+fmt.Sprint(min(len(ids), context)))
		}
	})
	part := openTokens(t, path)
	cfg := testrun.Config(t, fmt.Sprintf("model.context=%d", context), "model.vocab=256")
	rows, segments, err := build.Windows(cfg, part, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, row := range rows {
		count := map[int32]int{} // the number of tokens of each document, which are all equal
		for place, id := range row {
			if s := segments[i][place]; s != dataset.Padding {
				count[id]++
				if before := max(0, place-1); (row[before] == id) != (segments[i][before] == s) {
					t.Fatalf("row %v has the documents %v", row, segments[i])
				}
			}
		}
		for id, n := range count {
			got = append(got, string(id)+fmt.Sprint(n))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the rows hold %v, want %v", got, want)
	}
	few, _, err := build.Windows(cfg, part, 3, 1)
	other, _, otherErr := build.Windows(cfg, part, 3, 2)
	if err != nil || otherErr != nil || !reflect.DeepEqual(few, rows[:3]) ||
		reflect.DeepEqual(few, other) {
		t.Errorf("rows do not follow from the seed: %v, %v", err, otherErr)
	}
}

// TestWindowsOfSeparateDocuments checks that documents begin at BOS tokens and after EOS tokens.
func TestWindowsOfSeparateDocuments(t *testing.T) {
	path, _ := testrun.Dataset(t)
	part := openTokens(t, path)
	cfg := testrun.Config(t, "model.context=64", `data.documents="separate"`)
	windows, segments, err := build.Windows(cfg, part, 50, 1)
	if err != nil || len(segments) != len(windows) {
		t.Fatalf("%d windows, %d segments, %v", len(windows), len(segments), err)
	}
	info, borders := part.Tokenizer(), 0
	for i, w := range windows {
		for place := 1; place < len(w); place++ {
			begins := w[place] == info.BOS || info.EOS != info.BOS && w[place-1] == info.EOS
			if step := segments[i][place] - segments[i][place-1]; (step == 1) != begins || step != 0 &&
				step != 1 {
				t.Fatalf("window %v has the documents %v", w, segments[i])
			}
			if begins {
				borders++
			}
		}
	}
	if borders == 0 {
		t.Error("no window has two documents")
	}
}
