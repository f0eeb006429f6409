package data

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// zipped is text as gzip writes it.
func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLeftOut: every file that is found and not taken is reported with its reason.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeTree(t, dir, map[string]string{
		"in/a.txt": "text", "in/b.txt": "more text",
		"in/table": "PAR1\x15\x00", "in/renamed.txt": zipped(t, "two"), "in/text.xz": "\xfd7zXZ\x00\xff",
		"in/picture": "\x89PNG\x00", "in/utf16": "\xff\xfet\x00e\x00", "in/latin1": "caf\xe9", "in/blank": " \n",
		"in/.hidden": "x", "in/.git/config": "x", "in/.git/head": "x",
	})
	for link, target := range map[string]string{"in/loop": "loop", "in/self": ".", "in/gone": "nowhere", "in/link": "a.txt"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("in/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	want := []LeftOut{
		{Parquet, 1, []string{"in/table"}},
		{Compressed, 2, []string{"in/renamed.txt", "in/text.xz"}},
		{Binary, 1, []string{"in/picture"}},
		{InvalidUTF8, 2, []string{"in/latin1", "in/utf16"}},
		{Empty, 1, []string{"in/blank"}},
		{Hidden, 2, []string{"in/.git/", "in/.hidden"}},
		{Link, 4, []string{"in/gone", "in/link", "in/loop", "in/self"}},
		{Special, 1, []string{"in/pipe"}},
	}
	m, d := prepare(t, PrepareOptions{Inputs: []string{"in"}})
	if diff := cmp.Diff(want, m.LeftOut); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, manifestIn(t, filepath.Dir(d.Train.Path())).LeftOut); diff != "" {
		t.Error(diff)
	}
}

// TestLeftOutOfManyNames: the first few are named, once each, also when inputs overlap.
func TestLeftOutOfManyNames(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"a.txt": "text", "b.txt": "more text"}
	for i := range 9 {
		files[fmt.Sprintf("%d.bin", i)] = "\x00"
	}
	writeTree(t, dir, files)
	m, _ := prepare(t, PrepareOptions{Inputs: []string{dir, dir}, ValInputs: []string{filepath.Join(dir, "a.txt")}})
	if len(m.LeftOut) != 1 || m.LeftOut[0].Files != 9 || len(m.LeftOut[0].Names) != mostNames || !strings.HasSuffix(m.LeftOut[0].String(), "4.bin, …)") {
		t.Errorf("left out %v", m.LeftOut)
	}
}
