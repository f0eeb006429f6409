package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// piece is a stretch of text on its way to becoming words.
type piece struct {
	text  string
	first bool // begins where the whole input begins
}

// cutter appends the parts of one piece.
type cutter func(dst []piece, p piece) ([]piece, error)

// preTokenizer cuts text into words: each cutter in turn sees every piece that
// the one before it made.
type preTokenizer struct {
	cutters   []cutter
	byteLevel bool // words are to be written in the byte-level alphabet
}

// preTokenizerDefinition is the union of the supported variants.
type preTokenizerDefinition struct {
	Type             string            `json:"type"`
	PreTokenizers    []json.RawMessage `json:"pretokenizers"`
	Pattern          pattern           `json:"pattern"`
	Behavior         string            `json:"behavior"`
	Invert           bool              `json:"invert"`
	AddPrefixSpace   *bool             `json:"add_prefix_space"`
	UseRegex         *bool             `json:"use_regex"`
	IndividualDigits bool              `json:"individual_digits"`
	Replacement      string            `json:"replacement"`
	PrependScheme    *string           `json:"prepend_scheme"`
	Split            *bool             `json:"split"`
}

// The pattern that ByteLevel has built in (GPT-2, Radford et al. 2019).
const byteLevelPattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// newPreTokenizer builds the section "pre_tokenizer"; an absent one leaves the
// text in one piece.
func newPreTokenizer(section json.RawMessage) (*preTokenizer, error) {
	p := &preTokenizer{}
	if !present(section) {
		return p, nil
	}
	return p, p.add(section)
}

// add appends the cutters of one section.
func (p *preTokenizer) add(section json.RawMessage) error {
	var def preTokenizerDefinition
	if err := json.Unmarshal(section, &def); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	if p.byteLevel {
		return &UnsupportedError{"pre_tokenizer", def.Type + " after ByteLevel", "put ByteLevel last"}
	}
	switch def.Type {
	case "Sequence":
		for _, child := range def.PreTokenizers {
			if err := p.add(child); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		return p.addByteLevel(&def)
	case "Split":
		expr, err := def.Pattern.expression()
		if err != nil {
			return err
		}
		return p.addSplit(expr, def.Behavior, def.Invert)
	case "Digits":
		if def.IndividualDigits {
			return p.addSplit(`\p{N}`, "Isolated", false)
		}
		return p.addSplit(`\p{N}+`, "Isolated", false)
	case "Metaspace":
		return p.addMetaspace(&def)
	}
	return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("type %q", def.Type),
		"supported are ByteLevel, Split, Digits, Metaspace and Sequence"}
}

func (p *preTokenizer) addByteLevel(def *preTokenizerDefinition) error {
	if def.AddPrefixSpace == nil || *def.AddPrefixSpace {
		p.cutters = append(p.cutters, func(dst []piece, p piece) ([]piece, error) {
			if !strings.HasPrefix(p.text, " ") {
				p.text = " " + p.text
			}
			return append(dst, p), nil
		})
	}
	if def.UseRegex == nil || *def.UseRegex {
		if err := p.addSplit(byteLevelPattern, "Isolated", false); err != nil {
			return err
		}
	}
	p.byteLevel = true
	return nil
}

// addMetaspace writes spaces as a visible character (U+2581 by default), puts
// one before the text, and cuts before each.
func (p *preTokenizer) addMetaspace(def *preTokenizerDefinition) error {
	mark := def.Replacement
	if mark == "" {
		mark = "\u2581"
	}
	scheme := "always"
	if def.PrependScheme != nil {
		scheme = *def.PrependScheme
	} else if def.AddPrefixSpace != nil && !*def.AddPrefixSpace {
		scheme = "never"
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("prepend_scheme %q", scheme), "supported are always, first and never"}
	}
	p.cutters = append(p.cutters, func(dst []piece, p piece) ([]piece, error) {
		p.text = strings.ReplaceAll(p.text, " ", mark)
		if !strings.HasPrefix(p.text, mark) && (scheme == "always" || scheme == "first" && p.first) {
			p.text = mark + p.text
		}
		return append(dst, p), nil
	})
	if def.Split == nil || *def.Split {
		return p.addSplit(literal(mark), "MergedWithNext", false)
	}
	return nil
}

// words cuts text; first says that it begins where the whole input begins.
func (p *preTokenizer) words(text string, first bool) ([]piece, error) {
	if text == "" {
		return nil, nil
	}
	pieces, next := []piece{{text, first}}, []piece(nil)
	for _, cut := range p.cutters {
		next = next[:0]
		for _, one := range pieces {
			var err error
			if next, err = cut(next, one); err != nil {
				return nil, err
			}
		}
		pieces, next = next, pieces
	}
	return pieces, nil
}
