package tokenizer

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/vfs"
)

// Bounds on what a tokenizer.json can cost. Without them a small file could ask for any amount of memory.
const (
	maxFile    = 128 << 20 // bytes of a file of a tokenizer; those of the largest published ones are around 35 MB
	maxNesting = 32        // values within values; published files have about six
	maxGrowth  = 4         // a text may become as many times as long
	maxShort   = 64 << 10  // and its first bytes, so many of them,
	shortMore  = 12        // so many times more: a normal form with marks for its spaces can need 13 in all
	maxExtra   = 64        // and so many bytes longer, for what is put before it
)

// mostOf is how many bytes a tokenizer may make of a text before it looks for tokens, or of tokens when it decodes them.
func mostOf(text string) int { return mostOfSize(len(text)) }

func mostOfSize(size int) int { return maxGrowth*size + shortMore*min(size, maxShort) + maxExtra }

// growthError reports a section of a tokenizer.json that makes more of a text than it may.
type growthError struct{ section string }

func (e *growthError) Error() string {
	return fmt.Sprintf("%s: it makes a text longer than is supported: at most %d times as long, or %d times if the text has up to %d KiB",
		e.section, maxGrowth, maxGrowth+shortMore, maxShort>>10)
}

// replaced is strings.ReplaceAll; more than most bytes are an error of a section.
func replaced(section, text, old, content string, most int) (string, error) {
	if size := len(text) + strings.Count(text, old)*(len(content)-len(old)); size > most {
		return "", &growthError{section}
	}
	return strings.ReplaceAll(text, old, content), nil
}

// metaspaceMark is the one character that Metaspace writes for a space; "" stands for the usual one.
func metaspaceMark(section, mark string) (string, error) {
	switch utf8.RuneCountInString(mark) {
	case 0:
		return spaceMark, nil
	case 1:
		return mark, nil
	}
	return "", fmt.Errorf("%s: Metaspace with the replacement %q: want one character", section, mark)
}

// readFile reads a file of a tokenizer.
func readFile(path string) ([]byte, error) { return vfs.At(path).ReadSmallFile(maxFile) }

// checkNesting refuses a section with values too deep within each other: each level of a Sequence is copied and parsed again.
func checkNesting(section string, value []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return nil // at the end: the section was found to be JSON before
		}
		if dec.StackDepth() > maxNesting {
			return fmt.Errorf("%s: values within values more than %d deep", section, maxNesting)
		}
	}
}
