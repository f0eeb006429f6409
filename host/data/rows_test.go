package data

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// rowFiles writes files in all formats that have rows, and others, and returns their folder.
func rowFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprintln(z, `{"a": 2}`)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	var columns bytes.Buffer
	type row struct {
		A int64 `parquet:"a"`
		B bool  `parquet:"b"`
	}
	w := parquet.NewGenericWriter[row](&columns)
	if _, err := w.Write([]row{{3, true}, {4, false}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"a.jsonl": "{\"a\": 1}\n\nx", "b.jsonl.gz": zipped.String(), "c.parquet": columns.String(),
		"d.txt":        `{"a": 5}`,
		"e.parquet.gz": "x", "f.parquet": "PAR1PAR1PAR1",
	} {
		testfile.Write(t, filepath.Join(dir, name), content)
	}
	return dir
}

// listed returns the rows as one text, up to an error.
func listed(o PrepareOptions, dir string, columns ...string) string {
	var out strings.Builder
	files, err := FindRows(o, dataset.Conversations, columns)
	if err != nil {
		return strings.ReplaceAll("error "+err.Error(), dir, "DIR")
	}
	for row, err := range files.Rows() {
		if err != nil {
			fmt.Fprintf(&out, "error %v", err)
			break
		}
		fmt.Fprintf(&out, "%s %s %d %s; ", strings.TrimPrefix(row.Path, dir+"/"), row.Unit, row.Number,
			bytes.TrimSpace(row.Text))
	}
	return strings.ReplaceAll(out.String(), dir, "DIR")
}

func TestReadRows(t *testing.T) {
	dir := rowFiles(t)
	in := func(names ...string) (list []string) {
		for _, name := range names {
			list = append(list, filepath.Join(dir, name))
		}
		return list
	}
	for _, c := range []struct {
		o       PrepareOptions
		columns []string
		want    string
	}{
		{PrepareOptions{Inputs: []string{dir}, Include: []string{"[a-c].*"}}, []string{"a", "z"},
			`a.jsonl line 1 {"a": 1}; a.jsonl line 3 x; b.jsonl.gz line 1 {"a": 2}; c.parquet row 1 {"a":3}; c.parquet row 2 {"a":4}; `},
		{PrepareOptions{Inputs: in("d.txt"), Format: source.JSONL}, nil, `d.txt line 1 {"a": 5}; `},
		{PrepareOptions{Inputs: in("d.txt")}, nil,
			"error DIR/d.txt: the name is not that of a JSONL or Parquet file: give --format"},
		{PrepareOptions{Inputs: in("c.parquet")}, []string{"z"},
			"error DIR/c.parquet: none of the columns z exists; the file has a, b"},
		{PrepareOptions{Inputs: in("e.parquet.gz")}, nil, "error DIR/e.parquet.gz: a Parquet file " +
			"cannot be compressed as a whole, because it is read from its end: decompress the file"},
		{PrepareOptions{Inputs: in("nothing")}, nil, "error stat DIR/nothing: no such file or directory"},
		{PrepareOptions{Inputs: []string{dir}, Include: []string{"*.go"}}, nil,
			`error no file found in ["DIR"] with include patterns ["*.go"]`},
	} {
		if got := listed(c.o, dir, c.columns...); got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.o, got, c.want)
		}
	}
	if got := listed(PrepareOptions{Inputs: in("f.parquet")}, dir, "a"); !strings.HasPrefix(got,
		"error DIR/f.parquet: ") {
		t.Errorf("a damaged file: %s", got)
	}
	files, err := FindRows(PrepareOptions{Inputs: in("a.jsonl")}, dataset.Conversations, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range files.Rows() {
		break // stop early
	}
}

// TestRowsOfFolders checks that files without rows, by their names, are left out of folders, and
// are errors if they are inputs themselves, before anything is read.
func TestRowsOfFolders(t *testing.T) {
	dir := t.TempDir()
	testfile.Tree(t, dir, map[string]string{"README.md": "Read me.", "a.jsonl": `{"a":1}`,
		"set/chat.json": `{"b":2}`, "set/sub/chat.json": `{"b":2}`})
	files, err := FindRows(PrepareOptions{Inputs: []string{dir}}, dataset.Conversations, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []LeftOut{{NoRows, 3,
		[]string{filepath.Join(dir, "README.md"), filepath.Join(dir, "set/chat.json"),
			filepath.Join(dir, "set/sub/chat.json")}}}
	if diff := cmp.Diff(want, files.LeftOut); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		o    PrepareOptions
		want string
	}{
		{PrepareOptions{Inputs: []string{dir}}, `a.jsonl line 1 {"a":1}; `},
		{PrepareOptions{Inputs: []string{dir + "/set"}},
			`error no file found in ["DIR/set"] with include patterns []; left out: neither JSONL nor Parquet (2: DIR/set/chat.json, DIR/set/sub/chat.json)`},
		{PrepareOptions{Inputs: []string{dir + "/README.md", dir}},
			"error DIR/README.md: the name is not that of a JSONL or Parquet file: give --format"},
		{PrepareOptions{Inputs: []string{dir + "/set"}, Format: source.JSONL, Out: dir + "/set"},
			`set/sub/chat.json line 1 {"b":2}; `},
	} {
		if got := listed(c.o, dir); got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.o, got, c.want)
		}
	}
}

// TestReadRowsBelow checks that rows are also read from a working directory below an input.
func TestReadRowsBelow(t *testing.T) {
	dir := t.TempDir()
	testfile.Tree(t, dir, map[string]string{"a.jsonl": `{"a":1}`, "sub/b.jsonl": `{"b":2}`})
	t.Chdir(filepath.Join(dir, "sub"))
	for _, input := range []string{dir, ".."} {
		var got []string
		files, err := FindRows(PrepareOptions{Inputs: []string{input}}, dataset.Conversations, nil)
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range files.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(row.Text))
		}
		if want := []string{`{"a":1}`, `{"b":2}`}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
}
