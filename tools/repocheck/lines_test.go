package repocheck

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the longest line of Go code, in characters; a tab counts as one.
const maxColumns = 100

// TestLineLengths checks that lines have at most maxColumns characters, except lines that cannot be
// wrapped: those with a raw string or with a long string, and the expected output of an example.
func TestLineLengths(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && !generated(text) {
			files++
			for _, line := range longLines(text) {
				t.Errorf("%s:%d has more than %d characters", path, line, maxColumns)
			}
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("%d files: %v", files, err)
	}
}

func generated(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "// Code generated ") {
			return true
		}
		if strings.HasPrefix(line, "package ") {
			break
		}
	}
	return false
}

// longLines returns the numbers of the lines that are too long and could be wrapped.
func longLines(text []byte) (long []int) {
	const longString = 60
	exempt := map[int]bool{}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	output := false
	for {
		pos, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			for i, line := range strings.Split(string(text), "\n") {
				if utf8.RuneCountInString(line) > maxColumns && !exempt[i+1] {
					long = append(long, i+1)
				}
			}
			return long
		case kind == token.STRING && (literal[0] == '`' || len(literal) >= longString):
			for i := range strings.Count(literal, "\n") + 1 {
				exempt[file.Line(pos)+i] = true
			}
		case kind == token.COMMENT:
			output = output || strings.HasPrefix(literal, "// Output:") ||
				strings.HasPrefix(literal, "// Unordered output:")
			exempt[file.Line(pos)] = exempt[file.Line(pos)] || output
		default:
			output = false
		}
	}
}
