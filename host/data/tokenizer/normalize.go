package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/internal/plainjson"
)

// normalizer rewrites text before it is split into words, by the steps NFC, Prepend and Replace.
type normalizer []step

// newNormalizer parses the section "normalizer"; an absent one changes nothing.
func newNormalizer(section json.RawMessage) (normalizer, error) {
	steps, err := flatten(section)
	if err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	for _, step := range steps {
		switch {
		case step.Type == "NFC":
		case step.Type == "Prepend" && step.Prepend == spaceMark:
		case step.Type == "Replace" && step.Pattern.is(" ") && step.Content == spaceMark:
		default:
			return nil, &UnsupportedError{"normalizer", fmt.Sprintf("type %q", step.Type),
				`supported are NFC, Prepend and Replace with "▁" for spaces, and Sequence`}
		}
	}
	return steps, nil
}

func (n normalizer) apply(text string) string {
	for _, step := range n {
		switch {
		case step.Type == "NFC":
			// golang.org/x/text inserts a joiner after every 30 combining marks in a row (UAX #15,
			// Stream-Safe Text Format), and sorts marks only between joiners.
			const joiner = "\u034f"
			composed := norm.NFC.String(text)
			if !strings.Contains(text, joiner) {
				composed = strings.ReplaceAll(composed, joiner, "")
			}
			text = composed
		case step.Type == "Replace":
			text = strings.ReplaceAll(text, " ", spaceMark)
		case text != "":
			text = spaceMark + text
		}
	}
	return text
}

// replacesSpaces reports whether n leaves no space in a text.
func (n normalizer) replacesSpaces() bool {
	return slices.ContainsFunc(n, func(s step) bool { return s.Type == "Replace" })
}

// step has the fields of all supported normalizers, pre-tokenizers and decoders.
type step struct {
	Type             string            `json:"type"`
	Normalizers      []json.RawMessage `json:"normalizers"`
	PreTokenizers    []json.RawMessage `json:"pretokenizers"`
	Decoders         []json.RawMessage `json:"decoders"`
	Prepend          string            `json:"prepend"`
	Pattern          pattern           `json:"pattern"`
	Content          string            `json:"content"`
	Start            int               `json:"start"`
	Stop             int               `json:"stop"`
	Behavior         string            `json:"behavior"`
	Invert           bool              `json:"invert"`
	AddPrefixSpace   *bool             `json:"add_prefix_space"`
	UseRegex         *bool             `json:"use_regex"`
	IndividualDigits bool              `json:"individual_digits"`
	Replacement      string            `json:"replacement"`
	PrependScheme    *string           `json:"prepend_scheme"`
	Split            *bool             `json:"split"`
	Others           others            `json:",embed"`
}

// flatten lists the steps of a section, and replaces a Sequence by its steps.
func flatten(section json.RawMessage) (steps []step, err error) {
	if !present(section) {
		return nil, nil
	}
	var one step
	if err := plainjson.UnmarshalPart(section, &one); err != nil {
		return nil, err
	}
	if key := one.Others.key("trim_offsets"); key != "" {
		one.Type += " with the key " + key // which is not supported
	}
	if one.Type != "Sequence" {
		return []step{one}, nil
	}
	for _, child := range slices.Concat(one.Normalizers, one.PreTokenizers, one.Decoders) {
		more, err := flatten(child)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, nil
}
