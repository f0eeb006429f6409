// Package testfile reads and writes files in tests.
package testfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Read returns the content of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// ReadJSON decodes a JSON file.
func ReadJSON(t testing.TB, path string, to any) {
	t.Helper()
	if err := json.Unmarshal(Read(t, path), to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// Write writes a file, and creates its directory if necessary.
func Write[T string | []byte](t testing.TB, path string, content T) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Tree writes files below a directory. Their names are slash-separated relative paths.
func Tree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		Write(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
}
