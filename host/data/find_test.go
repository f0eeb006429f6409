package data

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeTree makes the files of a map from slash-separated paths to contents.
func writeTree(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{
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
		"all":               {[]string{"."}, nil, []string{"a.txt", "b.go", "sub/deep/y.go", "sub/deep/y.md", "sub/z.go"}},
		"by name":           {[]string{"."}, []string{"*.go"}, []string{"b.go", "sub/deep/y.go", "sub/z.go"}},
		"two patterns":      {[]string{"."}, []string{"*.md", "*.txt"}, []string{"a.txt", "sub/deep/y.md"}},
		"by path":           {[]string{"."}, []string{"sub/*.go"}, []string{"sub/z.go"}},
		"below the input":   {[]string{"sub"}, []string{"deep/*"}, []string{"sub/deep/y.go", "sub/deep/y.md"}},
		"a file":            {[]string{"a.txt"}, []string{"*.go"}, []string{"a.txt"}},
		"a hidden file":     {[]string{".hidden.go"}, nil, []string{".hidden.go"}},
		"order of inputs":   {[]string{"sub", "b.go"}, []string{"*.go"}, []string{"sub/deep/y.go", "sub/z.go", "b.go"}},
		"named twice":       {[]string{"sub/z.go", "sub", "sub"}, []string{"*.go"}, []string{"sub/z.go", "sub/deep/y.go"}},
		"pattern":           {[]string{"*.go"}, nil, []string{"b.go"}},
		"pattern of folder": {[]string{"s?b/*"}, nil, []string{"sub/deep/y.go", "sub/deep/y.md", "sub/z.go"}},
		"any depth":         {[]string{"**/*.go"}, nil, []string{"b.go", "sub/z.go", "sub/deep/y.go"}},
		"any depth at end":  {[]string{"sub/**"}, []string{"*.md"}, []string{"sub/deep/y.md"}},
		"depth in include":  {[]string{"."}, []string{"sub/**/*.go"}, []string{"sub/deep/y.go", "sub/z.go"}},
		"pattern and name":  {[]string{"**/y.md", "sub/deep/y.md", "s*/[yz].go"}, nil, []string{"sub/deep/y.md", "sub/z.go"}},
		"link as the input": {[]string{"linked"}, []string{"*.md"}, []string{"sub/deep/y.md"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := newFinder(&PrepareOptions{Include: test.include, Out: filepath.Join(root, "out")})
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
