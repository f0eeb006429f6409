package data

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// inZstd returns text compressed with zstd.
func inZstd(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

// inParquet returns a file with the texts in the column body.
func inParquet(t *testing.T, texts ...string) string {
	t.Helper()
	type row struct {
		ID   int64  `parquet:"id"`
		Body string `parquet:"body"`
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out)
	for i, text := range texts {
		if _, err := w.Write([]row{{int64(i), text}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// inRows returns the texts as JSON in the field body.
func inRows(texts ...string) string {
	var out strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&out, `{"id": %d, "body": %q}`+"\n", i, text)
	}
	return out.String()
}

func allOf(t *testing.T, d *opened) []string {
	t.Helper()
	all := slices.Concat(documentsOf(t, d.Train), documentsOf(t, d.Val))
	slices.Sort(all)
	return all
}

// TestFormats checks that every format and compression gives the same documents.
func TestFormats(t *testing.T) {
	texts := []string{"one", "zwei größer", "three\nlines\nof text", strings.Repeat("four ", 60000)}
	want := slices.Sorted(slices.Values(texts))
	contents := map[string]string{"a.txt": strings.Join(texts, "<|end|>"), "a.jsonl": inRows(texts...),
		"a.parquet": inParquet(t, texts...)}
	formats := map[string]source.Format{"a.txt": source.Text, "a.jsonl": source.JSONL,
		"a.parquet": source.Parquet}
	var hashes []string
	for name, content := range contents {
		for ending, packed := range map[string]string{"": content, ".gz": zipped(t, content),
			".zst": inZstd(t, content)} {
			path := filepath.Join(t.TempDir(), name+ending)
			testfile.Write(t, path, packed)
			if name == "a.parquet" && ending != "" {
				continue // an error: TestDamagedInputs
			}
			o := PrepareOptions{Inputs: []string{path}, Separator: "<|end|>", Field: "body",
				ValFraction: 0.5, Out: t.TempDir()}
			m, d := prepare(t, o)
			if diff := cmp.Diff(want, allOf(t, d)); diff != "" {
				t.Errorf("%s%s:\n%s", name, ending, clipped(diff))
			}
			if len(m.Read) != 1 || m.Read[0].Format != formats[name] || m.Read[0].Documents != 4 ||
				m.Read[0].Bytes != int64(len(strings.Join(texts, ""))) ||
				m.Read[0].Files != 1 || (m.Read[0].Compression == source.None) != (ending == "") ||
				(m.Read[0].Rows == 4) != (name != "a.txt") {
				t.Errorf("%s%s: read %+v", name, ending, m.Read)
			}
			hashes = append(hashes, m.Train.SHA256)
			onlyDataset(t, o.Out)
		}
	}
	if len(slices.Compact(hashes)) != 1 {
		t.Error("the order of the documents depends on the format")
	}
}

func clipped(text string) string { return text[:min(len(text), 2000)] }

// onlyDataset checks that a folder has only files of a dataset.
func onlyDataset(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{dataset.LockFile, dataset.Texts.Train, dataset.Texts.Val,
			dataset.Texts.Manifest, tokenizer.DefinitionFile}, e.Name()) {
			t.Errorf("%s is left in %s", e.Name(), dir)
		}
	}
}

// TestMixedInputs checks files of all formats at once, some with empty or bad rows.
func TestMixedInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testfile.Tree(t, dir, map[string]string{
		"in/a.txt": "plain", "in/b.txt.gz": zipped(t, "zipped"),
		"in/c.jsonl":     inRows("row one", " \n", "row two") + "{\"id\": 4}\n[]\n",
		"in/d/e.parquet": inParquet(t, "column one", ""), "in/d/picture.gz": zipped(t, "\x89PNG\x00"),
		"in/empty.jsonl": "\n\n", "in/blank.gz": zipped(t, " "),
		"in/d/f.jsonl.zst": inZstd(t, inRows("last")),
	})
	o := PrepareOptions{Inputs: []string{"in"}, Field: "body", SkipBad: true}
	m, d := prepare(t, o)
	if diff := cmp.Diff([]string{"column one", "last", "plain", "row one", "row two", "zipped"},
		allOf(t, d)); diff != "" {
		t.Error(diff)
	}
	want := []Read{
		{Format: source.Text, Files: 1, Documents: 1, Bytes: 5},
		{Format: source.Text, Compression: source.Gzip, Files: 1, Documents: 1, Bytes: 6},
		{Format: source.JSONL, Files: 1, Rows: 5, Documents: 2, Bytes: 14, EmptyRows: 1, BadRows: 2,
			FirstBad: `in/c.jsonl: line 4: no field "body"`},
		{Format: source.JSONL, Compression: source.Zstd, Files: 1, Rows: 1, Documents: 1, Bytes: 4},
		{Format: source.Parquet, Files: 1, Rows: 2, Documents: 1, Bytes: 10, EmptyRows: 1},
	}
	if diff := cmp.Diff(want, m.Read); diff != "" {
		t.Error(diff)
	}
	left := []LeftOut{{Binary, 1, []string{"in/d/picture.gz"}},
		{Empty, 2, []string{"in/blank.gz", "in/empty.jsonl"}}}
	if diff := cmp.Diff(left, m.LeftOut); diff != "" {
		t.Error(diff)
	}
	o.SkipBad, o.Out, o.Tokenizer = false, t.TempDir(), tokenizer.Bytes{}
	if _, err := Prepare(t.Context(), o); err == nil ||
		err.Error() != `prepare: in/c.jsonl: line 4: no field "body"; --field names another field, conversations need --kind chat, --skip-bad leaves out rows without text` {
		t.Errorf("a bad row: %v", err)
	}
	onlyDataset(t, o.Out)
}

// TestDamagedInputs checks that each damaged input gives one clear error and leaves no files.
func TestDamagedInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	table := inParquet(t, "one", "two")
	testfile.Tree(t, dir, map[string]string{
		"cut.txt.gz":    zipped(t, strings.Repeat("text", 1000))[:30],
		"cut.jsonl.zst": inZstd(t, inRows("one", "two"))[:20], "cut.parquet": table[:len(table)-20],
		"false.gz": "this is plain text", "false.parquet": "this is plain text",
		"broken.jsonl": `{"text": "one"` + "\n", "number.jsonl": `{"text": 1}`,
		"field.parquet": table, "cut.parquet.gz": zipped(t, table)[:50],
	})
	for input, want := range map[string]string{
		"cut.txt.gz":     "cut.txt.gz: damaged, or not a gzip file: unexpected EOF",
		"cut.jsonl.zst":  "cut.jsonl.zst: damaged, or not a zstd file: unexpected EOF",
		"cut.parquet":    "cut.parquet: damaged, or not a Parquet file: it does not end with PAR1",
		"cut.parquet.gz": "cut.parquet.gz: a Parquet file cannot be compressed as a whole",
		"false.gz":       "false.gz: damaged, or not a gzip file",
		"false.parquet":  "false.parquet: damaged, or not a Parquet file",
		"broken.jsonl":   "broken.jsonl: line 1: not valid JSON: it ends in the middle",
		"number.jsonl":   `number.jsonl: line 1: field "text" is not a string`,
		"field.parquet":  "field.parquet: none of the columns text exists; the file has id, body",
		"*.csv":          "*.csv: no such file",
	} {
		o := PrepareOptions{Inputs: []string{input}, Out: t.TempDir(), Tokenizer: tokenizer.Bytes{}}
		if _, err := Prepare(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", input, err, want)
		}
		onlyDataset(t, o.Out)
	}
}

// TestFormatOverride checks that file names determine the formats only if none is given.
func TestFormatOverride(t *testing.T) {
	dir := t.TempDir()
	rows := `{"text": "one"}` + "\n" + `{"text": "two"}`
	testfile.Tree(t, dir, map[string]string{"a.json": rows, "b.jsonl.gz": zipped(t, rows)})
	_, d := prepare(t, PrepareOptions{Inputs: []string{filepath.Join(dir, "a.json")},
		Format: source.JSONL})
	if diff := cmp.Diff([]string{"one", "two"}, allOf(t, d)); diff != "" {
		t.Error(diff)
	}
	_, d = prepare(t, PrepareOptions{Inputs: []string{dir}, Format: source.Text})
	if diff := cmp.Diff([]string{rows, rows}, allOf(t, d)); diff != "" {
		t.Error(diff)
	}
}

// TestCancelledInput checks that a canceled preparation stops within a file.
func TestCancelledInput(t *testing.T) {
	out, in := t.TempDir(), filepath.Join(t.TempDir(), "a.txt")
	testfile.Write(t, in, strings.Repeat("words and words ", 1<<18))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads := 0
	progress := func(p Progress) {
		if reads++; p.Documents == 0 {
			cancel()
		}
	}
	_, err := Prepare(ctx, PrepareOptions{Inputs: []string{in}, Progress: progress, Out: out,
		Tokenizer: tokenizer.Bytes{}})
	if err == nil || !strings.Contains(err.Error(), "context canceled") || reads > 1 {
		t.Errorf("error %v after %d reads", err, reads)
	}
	onlyDataset(t, out)
}
