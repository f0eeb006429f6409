package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// decodeStep rewrites the list of tokens; what is left at the end is joined.
type decodeStep func(tokens []string) []string

// newDecoder builds the section "decoder". Without one, tokens are joined with spaces between them,
// as the original library does.
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
		if !def.Pattern.is(spaceMark) || def.Content != " " {
			return nil, &UnsupportedError{"decoder", "Replace of anything but ▁ by a space", "want that"}
		}
		return []decodeStep{each(func(token string) string {
			return strings.ReplaceAll(token, spaceMark, " ")
		})}, nil
	case "Strip":
		return []decodeStep{each(func(token string) string {
			return strip(token, def.Content, def.Start, def.Stop)
		})}, nil
	case "Metaspace":
		prepended := def.PrependScheme == nil || *def.PrependScheme != "never"
		return []decodeStep{decodeMetaspace(prepended)}, checkMark("decoder", def.Replacement)
	}
	return nil, &UnsupportedError{"decoder", fmt.Sprintf("type %q", def.Type),
		"supported are ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence"}
}

func joinTokens(between string) decodeStep {
	return func(tokens []string) []string { return []string{strings.Join(tokens, between)} }
}

func each(rewrite func(string) string) decodeStep {
	return func(tokens []string) []string {
		for i := range tokens {
			tokens[i] = rewrite(tokens[i])
		}
		return tokens
	}
}

// decodeByteLevel returns a single text, since a character may begin in one
// token and end in the next.
func decodeByteLevel(tokens []string) []string {
	var text []byte
	for _, token := range tokens {
		text = fromByteLevel(text, token)
	}
	return []string{string(text)}
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
func decodeMetaspace(prepended bool) decodeStep {
	return func(tokens []string) []string {
		for i := range tokens {
			space := " "
			if i == 0 && prepended {
				space = ""
			}
			tokens[i] = strings.ReplaceAll(tokens[i], spaceMark, space)
		}
		return tokens
	}
}
