package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sources writes Go files of some length, and returns their directory.
func sources(t *testing.T, files int) string {
	t.Helper()
	root := t.TempDir()
	for i := range files {
		var b strings.Builder
		fmt.Fprintf(&b, "package p%d\n\nfunc walkTree%d(node, parent *Tree) (count int, err error) {\n",
			i, i)
		for k := range 30 {
			fmt.Fprintf(&b, "\tif node.left%d != parent {\n\t\tcount, err = visit(node, parent)\n\t}\n", k)
		}
		b.WriteString("\treturn count, err\n}\n")
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("f%d.go", i)), []byte(b.String()),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "x_test.go"),
		[]byte("package p\n\nvar onlyInTests = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func made(t *testing.T, seed uint64) *corpus {
	t.Helper()
	m, err := newCorpus(options{Root: sources(t, 300), Bytes: 200_000, Items: 20, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestItems checks that every question has four different answers, of which one is right, and fits
// into the context of a small model.
func TestItems(t *testing.T) {
	m := made(t, 0)
	for _, name := range []string{"cloze", "recall", "needle"} {
		items := m.Tasks[name]
		if len(items) != 20 {
			t.Errorf("%s has %d items", name, len(items))
		}
		golds := map[int]bool{}
		for _, it := range items {
			sorted := slices.Sorted(slices.Values(it.Choices))
			if len(it.Choices) != 4 || len(slices.Compact(sorted)) != 4 || it.Gold < 0 || it.Gold > 3 {
				t.Fatalf("%s: %+v", name, it)
			}
			golds[it.Gold] = true
			right := it.Choices[it.Gold]
			if n := len(it.Question) + len(right); n > 128 {
				t.Errorf("%s: %d bytes: %q", name, n, it.Question)
			}
			if name == "cloze" {
				if !strings.Contains(it.Question, right) {
					t.Errorf("%s: nothing says that %q is right: %q", name, right, it.Question)
				}
				continue
			}
			key := it.Question[len(it.Question)-1:]
			for i, c := range it.Choices {
				if stated := strings.Contains(it.Question, key+c); stated != (i == it.Gold) {
					t.Errorf("%s: %q is stated: %v, gold is %d: %q", name, key+c, stated, it.Gold, it.Question)
				}
			}
		}
		if len(golds) < 3 {
			t.Errorf("%s: the right answers are always in the same places: %v", name, golds)
		}
	}
}

// TestApart checks that sources of clozes and tests are not in the training documents, and that
// half of these are lookups.
func TestApart(t *testing.T) {
	m := made(t, 0)
	all := strings.Join(m.Documents, "\x00")
	source, lookups := 0, 0
	for _, d := range m.Documents {
		if strings.HasPrefix(d, "package ") {
			source += len(d)
		} else {
			lookups += len(d)
		}
	}
	if strings.Contains(all, "onlyInTests") || source < 200_000 || lookups < source ||
		lookups > source+1000*300 {
		t.Errorf("%d bytes of source and %d of lookups", source, lookups)
	}
	for i := range 300 {
		name := fmt.Sprintf("walkTree%d(", i)
		for _, it := range m.Tasks["cloze"] {
			if strings.Contains(it.Question, name) && strings.Contains(all, name) {
				t.Errorf("%s is trained on and asked for", name)
			}
		}
	}
}

// TestSeeds checks that a seed always gives the same result, and another seed another one.
func TestSeeds(t *testing.T) {
	root := sources(t, 300)
	make := func(seed uint64) *corpus {
		m, err := newCorpus(options{Root: root, Bytes: 20_000, Items: 5, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if !reflect.DeepEqual(make(1), make(1)) {
		t.Error("one seed made two things")
	}
	if reflect.DeepEqual(make(1).Tasks, make(2).Tasks) {
		t.Error("two seeds made the same questions")
	}
}

// TestWrite checks that each task and the documents are written to one file each.
func TestWrite(t *testing.T) {
	files := map[string]string{}
	err := made(t, 0).write(func(path string, write func(io.Writer) error) error {
		var b bytes.Buffer
		err := write(&b)
		files[filepath.ToSlash(path)] = b.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cloze/test.jsonl": `"gold":`,
		"recall/test.jsonl": `{"question":"`, "needle/test.jsonl": `"choices":["`,
		"train.jsonl": `{"text":"package p`} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: %.100q, want %s", name, files[name], want)
		}
	}
	if len(files) != 4 || strings.Count(files["needle/test.jsonl"], "\n") != 20 {
		t.Errorf("%d files", len(files))
	}
}

// TestTooLittle checks the errors for a directory with too little source.
func TestTooLittle(t *testing.T) {
	for files, want := range map[int]string{0: "has too few Go files",
		60: "has too little source for 5000 clozes"} {
		_, err := newCorpus(options{Root: sources(t, files), Bytes: 1000, Items: 5000})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d files: %v, want %s", files, err, want)
		}
	}
}

// TestQuotable checks that files without a long part of ASCII are no source: snippet would look for
// one forever.
func TestQuotable(t *testing.T) {
	root := t.TempDir()
	for i := range 60 {
		text := strings.Repeat("var a int // größer als b\n", 20)
		path := filepath.Join(root, fmt.Sprintf("f%d.go", i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := newCorpus(options{Root: root, Bytes: 1000, Items: 5})
	if err == nil || !strings.Contains(err.Error(), "one must have 80 bytes of ASCII in a row") {
		t.Error(err)
	}
	random, text := rand.New(rand.NewPCG(0, 0)), "é"+strings.Repeat("x", noiseBytes)
	if quotable(text) || !quotable(text+"x") || snippet(random, []string{text + "x"}, noiseBytes) !=
		text[2:] {
		t.Error("snippet does not find what is quotable")
	}
}
