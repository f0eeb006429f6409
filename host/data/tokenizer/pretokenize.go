package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// piece is a part of the text; when all cutters have seen it, it is a word.
type piece struct {
	text  string
	first bool // at the beginning of the whole input
}

// cutter is a step of a pre-tokenizer.
type cutter struct {
	// cut cuts one piece and appends the parts.
	cut func(dst []piece, p piece) ([]piece, error)
	// words is not nil where that is what the step does.
	words *wordPattern
	// digits tells that the step makes a piece of every digit.
	digits bool
}

// preTokenizer cuts text into words: each cutter in turn sees every piece that
// the one before it made.
type preTokenizer struct {
	cutters   []cutter
	byteLevel bool // words are to be written in the byte-level alphabet

	// scan, if not nil, does what all cutters do; isolate is for it.
	scan    *scanner
	isolate bool
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
	if err := p.add(section); err != nil {
		return nil, err
	}
	p.shorten()
	return p, nil
}

// shorten finds out whether a scanner can do what the cutters do.
func (p *preTokenizer) shorten() {
	steps := p.cutters
	if len(steps) > 0 && steps[0].digits {
		p.isolate, steps = true, steps[1:]
	}
	if len(steps) == 1 && steps[0].words != nil {
		p.scan = &scanner{classes(), *steps[0].words}
	}
}

// add appends the cutters of one section.
func (p *preTokenizer) add(section json.RawMessage) error {
	var def preTokenizerDefinition
	if err := plainjson.UnmarshalPart(section, &def); err != nil {
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
		if def.Pattern.String != nil && *def.Pattern.String != "" {
			return p.addCutter(literalFinder(*def.Pattern.String), def.Behavior, def.Invert)
		}
		if def.Pattern.Regex == nil || *def.Pattern.Regex == "" {
			return fmt.Errorf("pre_tokenizer: Split without a pattern")
		}
		return p.addSplit(*def.Pattern.Regex, def.Behavior, def.Invert)
	case "Digits":
		if def.IndividualDigits {
			err := p.addSplit(`\p{N}`, "Isolated", false)
			p.cutters[len(p.cutters)-1].digits = true
			return err
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
		p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
			if !strings.HasPrefix(p.text, " ") {
				p.text = " " + p.text
			}
			return append(dst, p), nil
		}})
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
	mark, err := metaspaceMark("pre_tokenizer", def.Replacement)
	if err != nil {
		return err
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
	p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
		p.text = strings.ReplaceAll(p.text, " ", mark)
		if !strings.HasPrefix(p.text, mark) && (scheme == "always" || scheme == "first" && p.first) {
			p.text = mark + p.text
		}
		return append(dst, p), nil
	}})
	if def.Split == nil || *def.Split {
		return p.addCutter(literalFinder(mark), "MergedWithNext", false)
	}
	return nil
}

// words cuts text; first says that it begins where the whole input begins. The words have
// at most left bytes, which then are fewer.
func (p *preTokenizer) words(text string, first bool, left *int) ([]piece, error) {
	if text == "" {
		return nil, nil
	}
	pieces, next := []piece{{text, first}}, []piece(nil)
	size := len(text) // of the pieces: cutters put marks before them
	for _, cut := range p.cutters {
		next, size = next[:0], 0
		for _, one := range pieces {
			var err error
			before := len(next)
			if next, err = cut.cut(next, one); err != nil {
				return nil, err
			}
			for _, part := range next[before:] {
				size += len(part.text)
			}
			if size > *left {
				return nil, &growthError{"pre_tokenizer"}
			}
		}
		pieces, next = next, pieces
	}
	*left -= size
	return pieces, nil
}
