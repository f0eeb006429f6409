package tokenizer

import (
	"encoding/json"
	"fmt"

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
	var def struct {
		Type        string            `json:"type"`
		Normalizers []json.RawMessage `json:"normalizers"`
		Prepend     string            `json:"prepend"`
		Pattern     pattern           `json:"pattern"`
		Content     string            `json:"content"`
	}
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
