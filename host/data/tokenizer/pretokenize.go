package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

type preTokenizer struct {
	byteLevel   bool // words are written in the byte-level alphabet
	isolate     bool // every digit is split off
	prefixSpace bool // a space is put before each text, unless it begins with one
	prefixWords bool // or before each word
	scan        *scanner
	metaspace   *metaspace
}

// metaspace replaces spaces by "▁".
type metaspace struct {
	scheme string // the texts that get a "▁" in front: always, first (of the input) or never
	split  bool   // a word begins at each "▁"
}

// newPreTokenizer parses the section "pre_tokenizer"; an absent one leaves the text in one piece. n
// normalizes the texts.
func newPreTokenizer(section json.RawMessage, n normalizer) (*preTokenizer, error) {
	unsupported := func(feature, hint string) error {
		return &UnsupportedError{"pre_tokenizer", feature, hint}
	}
	p := &preTokenizer{}
	list, err := flatten(section)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	for i, step := range list {
		if p.byteLevel {
			return nil, unsupported(step.Type+" after ByteLevel", "put ByteLevel last")
		}
		pattern := ""
		switch {
		case step.Type == "ByteLevel":
			p.byteLevel = true
			p.prefixSpace = step.AddPrefixSpace == nil || *step.AddPrefixSpace
			if p.scan != nil { // its texts are the words of Split
				p.prefixSpace, p.prefixWords = false, p.prefixSpace
			}
			if step.UseRegex == nil || *step.UseRegex {
				pattern = byteLevelPattern
			}
		case step.Type == "Split" && len(list) == 1 && step.Pattern.is(" ") && n.replacesSpaces():
			return p, nil // as in Gemma: there is no space left to split at
		case step.Type == "Split":
			// The patterns leave no text between matches, so these settings are equivalent.
			if step.Behavior != "Isolated" && (step.Behavior != "Removed" || !step.Invert) {
				return nil, unsupported(
					fmt.Sprintf("Split with behavior %q, invert %v", step.Behavior, step.Invert),
					"supported are Isolated, and Removed with invert")
			}
			if step.Pattern.Regex == nil {
				return nil, unsupported("Split without a regular expression", "want Regex")
			}
			pattern = *step.Pattern.Regex
		case step.Type == "Digits" && step.IndividualDigits && i == 0 && len(list) > 1:
			p.isolate = true
			continue
		case step.Type == "Metaspace" && len(list) == 1:
			m := &metaspace{scheme: "always", split: step.Split == nil || *step.Split}
			if step.PrependScheme != nil {
				m.scheme = *step.PrependScheme
			} else if step.AddPrefixSpace != nil && !*step.AddPrefixSpace {
				m.scheme = "never"
			}
			if m.scheme != "always" && m.scheme != "first" && m.scheme != "never" {
				return nil, unsupported(fmt.Sprintf("prepend_scheme %q", m.scheme),
					"supported are always, first and never")
			}
			p.metaspace = m
			return p, checkMark("pre_tokenizer", step.Replacement)
		default:
			return nil, unsupported(fmt.Sprintf("type %q here", step.Type),
				"supported are Metaspace, or individual Digits, Split and ByteLevel in this order")
		}
		if pattern == "" {
			continue
		}
		words, known := wordPatterns[pattern]
		if !known || p.scan != nil {
			return nil, unsupported(fmt.Sprintf("the pattern %q here", pattern),
				"supported is one of those of GPT-2, GPT-4 (Llama 3, OLMo 2) and Qwen")
		}
		p.scan = &scanner{classes(), words}
	}
	if p.isolate && p.scan == nil {
		return nil, unsupported("Digits without a pattern", "put Split or ByteLevel after it")
	}
	return p, nil
}

// checkMark rejects a Metaspace that replaces a space by a character other than U+2581.
func checkMark(section, mark string) error {
	if mark != "" && mark != spaceMark {
		feature := fmt.Sprintf("Metaspace with the replacement %q", mark)
		return &UnsupportedError{section, feature, "want ▁"}
	}
	return nil
}

// eachWord calls emit for the words of text; first says whether text is the beginning of the input.
func (p *preTokenizer) eachWord(text string, first bool, emit func(word string) error) error {
	if p.metaspace != nil && text != "" {
		text = strings.ReplaceAll(text, " ", spaceMark)
		prepend := p.metaspace.scheme == "always" || p.metaspace.scheme == "first" && first
		if prepend && !strings.HasPrefix(text, spaceMark) {
			text = spaceMark + text
		}
		for p.metaspace.split {
			i := strings.Index(text[1:], spaceMark)
			if i < 0 {
				break
			}
			if err := emit(text[:1+i]); err != nil {
				return err
			}
			text = text[1+i:]
		}
		return emit(text)
	}
	for len(text) > 0 {
		part := text
		for at := 0; p.isolate && at < len(text); {
			c, size := p.scan.classAt(text, at)
			if c == number { // split off
				part = text[:cmp.Or(at, size)]
				break
			}
			at += size
		}
		text = text[len(part):]
		if p.prefixSpace && part[0] != ' ' {
			part = " " + part
		}
		for at := 0; at < len(part); {
			end := len(part)
			if p.scan != nil {
				end = p.scan.next(p.scan, part, at)
			}
			word := part[at:end]
			if p.prefixWords && word[0] != ' ' {
				word = " " + word
			}
			if err := emit(word); err != nil {
				return err
			}
			at = end
		}
	}
	return nil
}
