package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/internal/plainjson"
)

// normalizer rewrites text before it is cut. rest says that other text stood before it. More than most bytes are an
// error.
type normalizer func(text string, rest bool, most int) (string, error)

// normalForms are the normalizers that bring text into a normal form of Unicode.
var normalForms = []string{"NFC", "NFD", "NFKC", "NFKD"}

// newNormalizer builds the section "normalizer"; an absent one changes nothing.
func newNormalizer(section json.RawMessage) (normalizer, error) {
	if !present(section) {
		return func(text string, _ bool, _ int) (string, error) { return text, nil }, nil
	}
	var def step
	if err := plainjson.UnmarshalPart(section, &def); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	switch def.Type {
	case "Sequence":
		return normalizerChain(def.Normalizers)
	case "NFC":
		return inForm(norm.NFC), nil
	case "NFD":
		return inForm(norm.NFD), nil
	case "NFKC":
		return inForm(norm.NFKC), nil
	case "NFKD":
		return inForm(norm.NFKD), nil
	case "Prepend":
		return func(text string, rest bool, most int) (string, error) {
			if text == "" || rest {
				return text, nil
			}
			if len(def.Prepend)+len(text) > most {
				return "", &growthError{"normalizer"}
			}
			return def.Prepend + text, nil
		}, nil
	case "Replace":
		if def.Pattern.String != nil && *def.Pattern.String != "" {
			return func(text string, _ bool, most int) (string, error) {
				return replaced("normalizer", text, *def.Pattern.String, def.Content, most)
			}, nil
		}
		return nil, &UnsupportedError{"normalizer", "Replace with a regular expression", "a literal pattern works"}
	}
	return nil, &UnsupportedError{"normalizer", fmt.Sprintf("type %q", def.Type),
		"supported are NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence"}
}

func normalizerChain(sections []json.RawMessage) (normalizer, error) {
	steps := make([]normalizer, len(sections))
	for i, section := range sections {
		step, err := newNormalizer(section)
		if err != nil {
			return nil, err
		}
		steps[i] = step
	}
	return func(text string, rest bool, most int) (string, error) {
		var err error
		for i := 0; i < len(steps) && err == nil; i++ {
			text, err = steps[i](text, rest, most)
		}
		return text, err
	}, nil
}

// joiner is what golang.org/x/text puts behind every 30 marks in a row, so that a buffer of fixed size holds them (UAX #15,
// Stream-Safe Text Format). A normal form has no more of them than the text.
const joiner = "\u034f"

// mostOfForm is by how much a normal form can lengthen a text: NFKC and NFKD write U+FDFA, of 3 bytes, in 33.
const mostOfForm = 11

// inForm brings text into a normal form of Unicode.
func inForm(f norm.Form) normalizer {
	return func(text string, _ bool, most int) (string, error) {
		// A text that other steps have lengthened is checked piece by piece.
		if len(text) > most/mostOfForm {
			w := f.Writer(&boundedWriter{most: most})
			_, err := io.WriteString(w, text)
			if err = cmp.Or(err, w.Close()); err != nil {
				return "", err
			}
		}
		out := f.String(text)
		if out == text || strings.Count(out, joiner) == strings.Count(text, joiner) {
			return out, nil
		}
		return inFormByRule(f, text), nil
	}
}

// boundedWriter counts the bytes written to it, and fails where there are more than most.
type boundedWriter struct{ size, most int }

func (f *boundedWriter) Write(p []byte) (int, error) {
	if f.size += len(p); f.size > f.most {
		return 0, &growthError{"normalizer"}
	}
	return len(p), nil
}

// inFormByRule is the algorithm of the Unicode Standard (section 3.11) for texts with any number of marks in a row.
func inFormByRule(f norm.Form, text string) string {
	decompose := norm.NFD
	if f == norm.NFKC || f == norm.NFKD {
		decompose = norm.NFKD
	}
	var runes []rune
	for _, r := range text {
		runes = append(runes, []rune(decompose.String(string(r)))...)
	}
	for at := 0; at < len(runes); at++ {
		end := at
		for end < len(runes) && combining(runes[end]) > 0 {
			end++
		}
		slices.SortStableFunc(runes[at:end], func(a, b rune) int { return cmp.Compare(combining(a), combining(b)) })
		at = end
	}
	if f == norm.NFC || f == norm.NFKC {
		runes = compose(runes)
	}
	return string(runes)
}

// combining is the canonical combining class, 0 of what is no mark.
func combining(r rune) int { return int(norm.NFD.PropertiesString(string(r)).CCC()) }

// compose joins letters with the marks behind them that no other mark of the same class separates from them.
func compose(runes []rune) []rune {
	var out []rune
	starter, last := -1, -1 // where the letter is, and the class of what is behind it; -1: nothing is
	for _, r := range runes {
		c := combining(r)
		if starter >= 0 && last < c {
			if one := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(one) == 1 {
				out[starter] = one[0]
				continue
			}
		}
		out = append(out, r)
		if last = c; c == 0 {
			starter, last = len(out)-1, -1
		}
	}
	return out
}
