package assembly_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/assembly"
)

// TestWindows: sequences are drawn once each, the same for the same seed, and no more than there are.
func TestWindows(t *testing.T) {
	path, _ := testrun.Dataset(t)
	part, text, err := assembly.OpenTexts(path)
	if err != nil || text != nil {
		t.Fatalf("%q, %v", text, err)
	}
	defer part.Close()
	cfg := testrun.Config(t, "model.context=64")
	draw := func(n int, seed uint64) (list []string) {
		windows, segments, err := assembly.Windows(cfg, part, n, seed)
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
	if _, _, err := assembly.Windows(long, part, 1, 0); err == nil {
		t.Error("a window as long as the file was drawn")
	}
}

// TestWindowsOfConversations: rows hold each document once, cut where it is longer than a row, and number them.
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
	part, _, err := assembly.OpenTexts(path)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	cfg := testrun.Config(t, fmt.Sprintf("model.context=%d", context), "model.vocab=256")
	rows, segments, err := assembly.Windows(cfg, part, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, row := range rows {
		count := map[int32]int{} // of the tokens of a document, which are all the same
		for place, id := range row {
			if s := segments[i][place]; s != model.Padding {
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
	few, _, err := assembly.Windows(cfg, part, 3, 1)
	other, _, otherErr := assembly.Windows(cfg, part, 3, 2)
	if err != nil || otherErr != nil || !reflect.DeepEqual(few, rows[:3]) || reflect.DeepEqual(few, other) {
		t.Errorf("rows do not follow from the seed: %v, %v", err, otherErr)
	}
}

// TestWindowsOfSeparateDocuments: where documents are kept apart, one begins behind each end token.
func TestWindowsOfSeparateDocuments(t *testing.T) {
	path, _ := testrun.Dataset(t)
	part, _, err := assembly.OpenTexts(path)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	cfg := testrun.Config(t, "model.context=64", `data.documents="separate"`)
	windows, segments, err := assembly.Windows(cfg, part, 50, 1)
	if err != nil || len(segments) != len(windows) {
		t.Fatalf("%d windows, %d segments, %v", len(windows), len(segments), err)
	}
	info, borders := part.Tokenizer(), 0
	for i, w := range windows {
		for place := 1; place < len(w); place++ {
			begins := w[place] == info.BOS || info.EOS != info.BOS && w[place-1] == info.EOS
			if step := segments[i][place] - segments[i][place-1]; (step == 1) != begins || step != 0 && step != 1 {
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

func TestCutWindows(t *testing.T) {
	ids := []int32{1, 2, 3, 4, 5, 6, 7}
	list, err := assembly.CutWindows(ids, 2, 9, 0)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	slices.SortFunc(list, slices.Compare[[]int32])
	if got := slices.Concat(list...); !slices.Equal(got, ids[:6]) {
		t.Errorf("the windows are %v", list)
	}
	if _, err := assembly.CutWindows(ids, 8, 1, 0); err == nil || err.Error() != "7 tokens are less than one window of 8" {
		t.Errorf("a long window: %v", err)
	}
}

// TestOpenTexts: a file of text is read; a file that is neither is refused as a token file.
func TestOpenTexts(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"text": "Grüße, and a long enough text, so that it could have had a header.", "binary": "\x00\x01\x02", "latin": "Gr\xfc\xdfe"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		part, text, err := assembly.OpenTexts(path)
		if name == "text" && (string(text) != content || part != nil || err != nil) || name != "text" && (err == nil || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, %q, %v", name, part, text, err)
		}
	}
	if _, _, err := assembly.OpenTexts(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
