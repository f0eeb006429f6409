package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/internal/plainjson"
)

// normalizer rewrites text before it is cut. rest says that other text stood before it.
type normalizer func(text string, rest bool) string

// normalForms are the normalizers that bring text into a normal form of Unicode.
var normalForms = []string{"NFC", "NFD", "NFKC", "NFKD"}

// everywhere is a normalizer that does the same with every text.
func everywhere(rewrite func(string) string) normalizer {
	return func(text string, _ bool) string { return rewrite(text) }
}

// newNormalizer builds the section "normalizer"; an absent one changes nothing.
func newNormalizer(section json.RawMessage) (normalizer, error) {
	if !present(section) {
		return everywhere(func(text string) string { return text }), nil
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
		return everywhere(inForm(norm.NFC)), nil
	case "NFD":
		return everywhere(inForm(norm.NFD)), nil
	case "NFKC":
		return everywhere(inForm(norm.NFKC)), nil
	case "NFKD":
		return everywhere(inForm(norm.NFKD)), nil
	case "Prepend":
		return func(text string, rest bool) string {
			if text == "" || rest {
				return text
			}
			return def.Prepend + text
		}, nil
	case "Replace":
		if def.Pattern.String != nil && *def.Pattern.String != "" {
			return everywhere(strings.NewReplacer(*def.Pattern.String, def.Content).Replace), nil
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
	return func(text string, rest bool) string {
		for _, step := range steps {
			text = step(text, rest)
		}
		return text
	}, nil
}
