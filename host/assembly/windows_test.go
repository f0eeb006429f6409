package assembly_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/internal/testrun"
)

// TestWindows: sequences are drawn once each, the same for the same seed, and no more than there are.
func TestWindows(t *testing.T) {
	path, _ := testrun.Dataset(t)
	part, text, err := assembly.OpenTexts(path)
	if err != nil || text != nil {
		t.Fatalf("%q, %v", text, err)
	}
	defer part.Close()
	draw := func(n int, seed uint64) (list []string) {
		windows, err := assembly.Windows(part, 64, n, seed)
		if err != nil {
			t.Fatal(err)
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
	if _, err := assembly.Windows(part, int(part.Len()), 1, 0); err == nil {
		t.Error("a window as long as the file was drawn")
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
