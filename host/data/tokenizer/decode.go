package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// decodeStep rewrites the list of tokens; what is left at the end is joined. More than most bytes are an error.
type decodeStep func(tokens []string, most int) ([]string, error)

// newDecoder builds the section "decoder". Without one, tokens are joined with
// spaces between them, as the original library does.
func newDecoder(section json.RawMessage) ([]decodeStep, error) {
	if !present(section) {
		return []decodeStep{joinTokens(" ")}, nil
	}
	var def struct {
		Type          string            `json:"type"`
		Decoders      []json.RawMessage `json:"decoders"`
		Pattern       pattern           `json:"pattern"`
		Content       string            `json:"content"`
		Start         int               `json:"start"`
		Stop          int               `json:"stop"`
		Replacement   string            `json:"replacement"`
		PrependScheme *string           `json:"prepend_scheme"`
	}
	if err := plainjson.UnmarshalPart(section, &def); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	switch def.Type {
	case "Sequence":
		var steps []decodeStep
		for _, child := range def.Decoders {
			more, err := newDecoder(child)
			if err != nil {
				return nil, err
			}
			steps = append(steps, more...)
		}
		return steps, nil
	case "ByteLevel":
		return []decodeStep{decodeByteLevel}, nil
	case "ByteFallback":
		return []decodeStep{each(decodeByteFallback)}, nil
	case "Fuse":
		return []decodeStep{joinTokens("")}, nil
	case "Replace":
		if def.Pattern.String == nil || *def.Pattern.String == "" {
			return nil, &UnsupportedError{"decoder", "Replace with a regular expression", "a literal pattern works"}
		}
		return []decodeStep{replaceEach(*def.Pattern.String, def.Content)}, nil
	case "Strip":
		return []decodeStep{each(func(token string) string { return strip(token, def.Content, def.Start, def.Stop) })}, nil
	case "Metaspace":
		prepended := def.PrependScheme == nil || *def.PrependScheme != "never"
		mark, err := metaspaceMark("decoder", def.Replacement)
		return []decodeStep{decodeMetaspace(mark, prepended)}, err
	}
	return nil, &UnsupportedError{"decoder", fmt.Sprintf("type %q", def.Type),
		"supported are ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence"}
}

// joinTokens makes one text of the tokens.
func joinTokens(between string) decodeStep {
	return func(tokens []string, _ int) ([]string, error) { return []string{strings.Join(tokens, between)}, nil }
}

// each rewrites tokens without making them longer.
func each(rewrite func(string) string) decodeStep {
	return func(tokens []string, _ int) ([]string, error) {
		for i := range tokens {
			tokens[i] = rewrite(tokens[i])
		}
		return tokens, nil
	}
}

// replaceEach replaces a text in every token.
func replaceEach(old, content string) decodeStep {
	return func(tokens []string, most int) ([]string, error) {
		for i := range tokens {
			token, err := replaced("decoder", tokens[i], old, content, most)
			if err != nil {
				return nil, err
			}
			tokens[i] = token
			most -= len(token)
		}
		return tokens, nil
	}
}

// decodeByteLevel returns a single text, since a character may begin in one
// token and end in the next.
func decodeByteLevel(tokens []string, _ int) ([]string, error) {
	var text []byte
	for _, token := range tokens {
		text = fromByteLevel(text, token)
	}
	return []string{string(text)}, nil
}

// decodeByteFallback turns a token of the form <0x0A> into the byte that it names.
func decodeByteFallback(token string) string {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return token
	}
	value, err := strconv.ParseUint(token[3:5], 16, 8)
	if err != nil {
		return token
	}
	return string([]byte{byte(value)})
}

// strip removes up to start copies of content from the front, and up to stop from the end.
func strip(token, content string, start, stop int) string {
	for ; start > 0 && content != "" && strings.HasPrefix(token, content); start-- {
		token = token[len(content):]
	}
	for ; stop > 0 && content != "" && strings.HasSuffix(token, content); stop-- {
		token = token[:len(token)-len(content)]
	}
	return token
}

// decodeMetaspace turns marks into spaces. Where a mark was prepended to the text,
// those of the first token are removed.
func decodeMetaspace(mark string, prepended bool) decodeStep {
	return func(tokens []string, _ int) ([]string, error) {
		for i := range tokens {
			space := " "
			if i == 0 && prepended {
				space = ""
			}
			tokens[i] = strings.ReplaceAll(tokens[i], mark, space)
		}
		return tokens, nil
	}
}
