package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files makes a module with the given files.
func files(t *testing.T, texts map[string]string) *component {
	t.Helper()
	c := &component{name: "example.com/m", version: "v1.2.3", dir: t.TempDir()}
	for name, text := range texts {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// own returns the licence of this repository.
func own(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocuments checks that the documents of a package are those in its directory and above it.
func TestDocuments(t *testing.T) {
	c := files(t, map[string]string{
		"LICENSE": own(t), "license.go": "package m", "a/NOTICE": "by us", "a/b/COPYING.md": own(t),
		"c/LICENSE": "of another package",
	})
	c.uses(filepath.Join(c.dir, "a", "b"))
	c.uses(filepath.Join(c.dir, "a"))
	docs, err := c.documents()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range docs {
		names = append(names, d.name)
	}
	if want := []string{"LICENSE", "a/NOTICE", "a/b/COPYING.md"}; !slices.Equal(names, want) {
		t.Errorf("documents %q, want %q", names, want)
	}
	if got, err := c.licenses(docs); err != nil || !slices.Equal(got, []string{"Apache-2.0"}) {
		t.Errorf("licences %q, error %v", got, err)
	}
}

// TestRefused checks that a licence that is missing, unknown or not accepted is an error.
func TestRefused(t *testing.T) {
	const gpl = "This program is free software: you can redistribute it and/or modify it under the " +
		"terms of the GNU General Public License as published by the Free Software Foundation, either " +
		"version 3 of the License, or (at your option) any later version."
	for _, test := range []struct {
		texts map[string]string
		want  string
	}{
		{nil, "no licence was recognized"},
		{map[string]string{"LICENSE": "Do as you please, on Tuesdays."}, "0 % of LICENSE are the text"},
		{map[string]string{"LICENSE": own(t), "COPYING": "Pay a pound."}, "0 % of COPYING are the text"},
		{map[string]string{"LICENSE": own(t) + strings.Repeat("But pay a pound. ", 400)},
			" % of LICENSE are the text of known licences, want at least 75 %"},
		{map[string]string{"LICENSE": own(t), "COPYING": gpl}, "COPYING has the licence GPL"},
	} {
		c := files(t, test.texts)
		c.uses(c.dir)
		err := write(new(strings.Builder), []component{*c})
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "example.com/m v1.2.3") {
			t.Errorf("with %d files: error %v, want %q", len(test.texts), err, test.want)
		}
	}
}
