package data

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	testfile.Tree(t, root, map[string]string{
		"b.go": "1", "a.txt": "2", "sub/z.go": "3", "sub/deep/y.go": "4", "sub/deep/y.md": "5",
		".hidden.go": "6", ".git/x.go": "7", "out/made.go": "8",
	})
	if err := os.Symlink(filepath.Join(root, "b.go"), filepath.Join(root, "link.go")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "sub"), filepath.Join(root, "linked")); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		inputs, include, want []string
	}{
		"all": {[]string{"."}, nil,
			[]string{"a.txt", "b.go", "sub/deep/y.go", "sub/deep/y.md", "sub/z.go"}},
		"by name": {[]string{"."}, []string{"*.go"},
			[]string{"b.go", "sub/deep/y.go", "sub/z.go"}},
		"two patterns": {[]string{"."}, []string{"*.md", "*.txt"},
			[]string{"a.txt", "sub/deep/y.md"}},
		"by path": {[]string{"."}, []string{"sub/*.go"}, []string{"sub/z.go"}},
		"below the input": {[]string{"sub"}, []string{"deep/*"},
			[]string{"sub/deep/y.go", "sub/deep/y.md"}},
		"a file":        {[]string{"a.txt"}, []string{"*.go"}, []string{"a.txt"}},
		"a hidden file": {[]string{".hidden.go"}, nil, []string{".hidden.go"}},
		"order of inputs": {[]string{"sub", "b.go"}, []string{"*.go"},
			[]string{"sub/deep/y.go", "sub/z.go", "b.go"}},
		"named twice": {[]string{"sub/z.go", "sub", "sub"}, []string{"*.go"},
			[]string{"sub/z.go", "sub/deep/y.go"}},
		"link as the input": {[]string{"linked"}, []string{"*.md"}, []string{"sub/deep/y.md"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := newFinder(&PrepareOptions{Include: test.include, Out: filepath.Join(root, "out")},
				dataset.Texts)
			if err != nil {
				t.Fatal(err)
			}
			var inputs []string
			for _, input := range test.inputs {
				inputs = append(inputs, filepath.Join(root, input))
			}
			files, err := f.find(inputs)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, file := range files {
				below, err := filepath.Rel(root, file.path)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, filepath.ToSlash(below))
				if file.size != 1 {
					t.Errorf("%s has size %d", below, file.size)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPreparedInPlace checks that files of an earlier preparation among the texts are left out and
// reported.
func TestPreparedInPlace(t *testing.T) {
	dir := t.TempDir()
	testfile.Tree(t, dir, map[string]string{"a.txt": "first", "b.txt": "second",
		"sub/dataset.json": "third", "tokenizer.json": "another time"})
	for i := range 4 { // first as a folder, then by the names in it
		inputs := []string{dir}
		if i >= 2 {
			var err error
			if inputs, err = filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil {
				t.Fatal(err)
			}
		}
		m, d := prepare(t, PrepareOptions{Inputs: inputs, Out: dir})
		if got := allOf(t, d); !slices.Equal(got, []string{"first", "second", "third"}) {
			t.Errorf("%s: documents %q", inputs, got)
		}
		if !slices.ContainsFunc(m.LeftOut, func(l LeftOut) bool {
			return l.Reason == Own && slices.Contains(l.Names, filepath.Join(dir, "tokenizer.json"))
		}) {
			t.Errorf("%s: left out are %v", inputs, m.LeftOut)
		}
	}
}

// TestLinkedInputs checks that, by their own names or by links, validation texts are not used for
// training, and the files of a dataset are not texts.
func TestLinkedInputs(t *testing.T) {
	root := t.TempDir()
	testfile.Tree(t, root, map[string]string{"real/a.txt": "first", "real/b.txt": "second",
		"real/c.txt": "third"})
	link := filepath.Join(root, "link")
	if err := os.Symlink(filepath.Join(root, "real"), link); err != nil {
		t.Skip("needs symbolic links: ", err)
	}
	toB := filepath.Join(root, "to-b.txt")
	if err := os.Symlink(filepath.Join(root, "real", "b.txt"), toB); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ inputs, val string }{
		"a folder by its link":    {link, filepath.Join(root, "real", "b.txt")},
		"validation below a link": {filepath.Join(root, "real"), filepath.Join(link, "b.txt")},
		"validation by a link":    {filepath.Join(root, "real"), toB},
		"both by the names of the tree": {filepath.Join(root, "real"),
			filepath.Join(root, "real", "b.txt")},
	} {
		out := filepath.Join(link, "out")
		for range 2 { // the second time, there is a dataset below the input
			_, d := prepare(t, PrepareOptions{Inputs: []string{c.inputs}, ValInputs: []string{c.val},
				Out: out})
			train, val := documentsOf(t, d.Train), documentsOf(t, d.Val)
			if slices.Sort(train); !slices.Equal(train, []string{"first", "third"}) ||
				!slices.Equal(val, []string{"second"}) {
				t.Errorf("%s: trained on %q, validated on %q", name, train, val)
			}
		}
	}
}

// FuzzInclude checks that malformed patterns are errors, and that those without a slash match names
// in any folder.
func FuzzInclude(f *testing.F) {
	f.Add("*.go", "a/b.go")
	f.Add("a/[^x]?\\*", "a/yz*")
	f.Add("a/[", "a/b")
	f.Add("a/**/b", "a/b")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		found, err := newFinder(&PrepareOptions{Include: []string{pattern}, Out: "out"}, dataset.Texts)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(pattern)) {
				t.Fatalf("no pattern in %v", err)
			}
			return
		}
		matched := found.matches(name, name)
		if !strings.Contains(pattern, "/") && matched != found.matches(name, "deep/"+name) {
			t.Fatalf("%q matches %q: %v, in another folder %v", pattern, name, matched, !matched)
		}
	})
}

// zipped returns text compressed with gzip.
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

// TestLeftOut checks that every file that is found but not used is reported with its reason.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testfile.Tree(t, dir, map[string]string{
		"in/a.txt": "text", "in/b.txt": "more text",
		"in/table": "PAR1\x15\x00", "in/renamed.txt": zipped(t, "two"), "in/text.xz": "\xfd7zXZ\x00\xff",
		"in/picture": "\x89PNG\x00", "in/utf16": "\xff\xfet\x00e\x00", "in/latin1": "caf\xe9",
		"in/blank": " \n", "in/empty": "",
		"in/.hidden": "x", "in/.git/config": "x", "in/.git/head": "x",
	})
	for link, target := range map[string]string{"in/loop": "loop", "in/self": ".",
		"in/gone": "nowhere", "in/link": "a.txt"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("in/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	want := []LeftOut{
		{Binary, 5, []string{"in/picture", "in/renamed.txt", "in/table", "in/text.xz", "in/utf16"}},
		{InvalidUTF8, 1, []string{"in/latin1"}},
		{Empty, 2, []string{"in/blank", "in/empty"}},
		{Hidden, 2, []string{"in/.git/", "in/.hidden"}},
		{Link, 4, []string{"in/gone", "in/link", "in/loop", "in/self"}},
		{Special, 1, []string{"in/pipe"}},
	}
	m, d := prepare(t, PrepareOptions{Inputs: []string{"in"}})
	if diff := cmp.Diff(want, m.LeftOut); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"more text", "text"}, allOf(t, d)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, manifestIn(t, filepath.Dir(d.Train.Path())).LeftOut); diff != "" {
		t.Error(diff)
	}
}

// TestLeftOutOfManyNames checks that only the first of many files are named, each once even if
// inputs overlap.
func TestLeftOutOfManyNames(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"a.txt": "text", "b.txt": "more text"}
	for i := range 9 {
		files[fmt.Sprintf("%d.bin", i)] = "\x00"
	}
	testfile.Tree(t, dir, files)
	m, _ := prepare(t, PrepareOptions{Inputs: []string{dir, dir},
		ValInputs: []string{filepath.Join(dir, "a.txt")}})
	if len(m.LeftOut) != 1 || m.LeftOut[0].Files != 9 || len(m.LeftOut[0].Names) != maxNames ||
		!strings.HasSuffix(m.LeftOut[0].String(), "4.bin, …)") {
		t.Errorf("left out %v", m.LeftOut)
	}
}
