package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// decodeStep rewrites a list of tokens. After the last step, the tokens are joined.
type decodeStep func(tokens []string) []string

// newDecoder parses the section "decoder". Without one, tokens are joined by spaces, as in the
// reference library.
func newDecoder(section json.RawMessage) ([]decodeStep, error) {
	if !present(section) {
		return []decodeStep{joinTokens(" ")}, nil
	}
	list, err := flatten(section)
	if err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	var steps []decodeStep
	for _, def := range list {
		one, err := newDecodeStep(def)
		if err != nil {
			return nil, err
		}
		steps = append(steps, one)
	}
	return steps, nil
}

func newDecodeStep(def step) (decodeStep, error) {
	switch def.Type {
	case "ByteLevel":
		// The result is a single string, since a character may span tokens.
		return func(tokens []string) []string {
			var text []byte
			for _, token := range tokens {
				text = fromByteLevel(text, token)
			}
			return []string{string(text)}
		}, nil
	case "ByteFallback": // a token of the form <0x0A> denotes a byte
		return each(func(_ int, token string) string {
			if len(token) == 6 && strings.HasPrefix(token, "<0x") && token[5] == '>' {
				if value, err := strconv.ParseUint(token[3:5], 16, 8); err == nil {
					return string([]byte{byte(value)})
				}
			}
			return token
		}), nil
	case "Fuse":
		return joinTokens(""), nil
	case "Replace":
		if !def.Pattern.is(spaceMark) || def.Content != " " {
			return nil, &UnsupportedError{"decoder", "Replace of other characters", "replace ▁ by a space"}
		}
		return each(func(_ int, token string) string {
			return strings.ReplaceAll(token, spaceMark, " ")
		}), nil
	case "Strip":
		return each(func(_ int, token string) string {
			if def.Content == "" {
				return token
			}
			for n := def.Start; n > 0 && strings.HasPrefix(token, def.Content); n-- {
				token = token[len(def.Content):]
			}
			for n := def.Stop; n > 0 && strings.HasSuffix(token, def.Content); n-- {
				token = token[:len(token)-len(def.Content)]
			}
			return token
		}), nil
	case "Metaspace": // the first token loses its "▁" if the pre-tokenizer puts one before texts
		prepended := def.PrependScheme == nil || *def.PrependScheme != "never"
		return each(func(i int, token string) string {
			if i == 0 && prepended {
				return strings.ReplaceAll(token, spaceMark, "")
			}
			return strings.ReplaceAll(token, spaceMark, " ")
		}), checkMark("decoder", def.Replacement)
	}
	return nil, &UnsupportedError{"decoder", fmt.Sprintf("type %q", def.Type),
		"supported are ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence"}
}

func joinTokens(between string) decodeStep {
	return func(tokens []string) []string { return []string{strings.Join(tokens, between)} }
}

func each(rewrite func(i int, token string) string) decodeStep {
	return func(tokens []string) []string {
		for i := range tokens {
			tokens[i] = rewrite(i, tokens[i])
		}
		return tokens
	}
}
