package generate

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/safetext"
)

// TestStream checks that text is sent in whole characters, that no part of a stop string is sent,
// and that all other text is.
func TestStream(t *testing.T) {
	for _, c := range []struct {
		text, want string
		until      []string
	}{
		{"if 1<2 ok<|im_end|>\nmore", "if 1<2 ok", []string{"<|im_end|>"}},
		{"if 1<2 ok", "if 1<2 ok", []string{"<|im_end|>"}},
		{"a<|im_en", "a<|im_en", []string{"<|im_end|>"}}, // the stop string is never complete
		{"<|im_end|>", "", []string{"<|im_end|>"}},
		{"aaab aab", "aa", []string{"ab"}},
		{"one END two STOP", "one ", []string{"STOP", "END"}},
		{"größe λ|", "größe λ", []string{"|"}},
		{"no ends", "no ends", nil},
		{"\xe2\x80", "\xe2\x80", nil}, // the text has one replacement character
	} {
		sent := ""
		s := Stream{Tokenizer: tokenizer.Bytes{}, Until: c.until, Emit: func(text string) error {
			sent += text
			if len(sent) > len(c.want) || sent != c.want[:len(sent)] {
				t.Errorf("%q: %q was sent", c.text, sent)
			}
			return nil
		}}
		ids, err := s.Tokenizer.Encode(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var made []int32
		for _, id := range ids {
			made = append(made, id)
			if err := s.Add(0, id); errors.Is(err, ErrStop) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		text, err := s.Finish(made)
		if err != nil || text != safetext.Valid(c.want) || sent != c.want {
			t.Errorf("%q: the text is %q, and %q was sent, want %q; %v", c.text, text, sent, c.want, err)
		}
		if len(c.until) > 0 && len(made) == len(ids) && len(c.text) > len(c.want)+len(c.until[0]) {
			t.Errorf("%q: it went on to the end", c.text)
		}
	}
}

// TestFollowing checks that a text and the text that follows it give the text of all their tokens,
// wherever they are split, although the tokenizer of Llama 2 omits the space at the start of a
// text.
func TestFollowing(t *testing.T) {
	llama, err := tokenizer.Open("../../data/tokenizer/testdata/llama2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []tokenizer.Tokenizer{llama, tokenizer.Bytes{}} {
		ids, err := tok.Encode("the quick brown fox  runs; in the run")
		if err != nil {
			t.Fatal(err)
		}
		decode := func(ids []int32) string {
			text, err := tok.Decode(ids)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		for k := 1; k < len(ids); k++ {
			more, err := Following(tok, ids[k-1:k], ids[k:])
			if got := decode(ids[:k]) + more; err != nil || got != decode(ids) {
				t.Errorf("%s: cut at %d it is %q, %v", tok.Info().Name, k, got, err)
			}
		}
		if alone, err := Following(tok, nil, ids); err != nil || alone != decode(ids) {
			t.Errorf("%s: behind nothing it is %q, %v", tok.Info().Name, alone, err)
		}
	}
	// The second byte of a character follows the first: the text of both bytes does not begin with the
	// text of the first.
	if text, err := Following(tokenizer.Bytes{}, []int32{0xc3}, []int32{0xb6, 'x'}); err != nil ||
		text[len(text)-1] != 'x' {
		t.Errorf("in the middle of a character: %q, %v", text, err)
	}
}

// counted counts the tokens that are decoded.
type counted struct {
	tokenizer.Tokenizer
	tokens int
}

func (c *counted) Decode(ids []int32) (string, error) {
	c.tokens += len(ids)
	return c.Tokenizer.Decode(ids)
}

// TestLongStream checks that the text sent in pieces is that of all tokens, and that the number of
// tokens that are decoded is proportional to their number.
func TestLongStream(t *testing.T) {
	llama, err := tokenizer.Open("../../data/tokenizer/testdata/llama2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []tokenizer.Tokenizer{llama, tokenizer.Bytes{}} {
		ids, err := tok.Encode(strings.Repeat("a  größe λ😀; in</s> the run\n", 50))
		if err != nil {
			t.Fatal(err)
		}
		for begin := range 12 { // within the first characters, too
			before, after := ids[:begin], ids[begin:]
			sent, c := "", &counted{tok, 0}
			s := Stream{Tokenizer: c, Before: before, Until: []string{"absent", "run\n."},
				Emit: func(text string) error {
					sent += text
					return nil
				}}
			for _, id := range after {
				if err := s.Add(0, id); err != nil {
					t.Fatal(err)
				}
			}
			decoded := c.tokens
			text, err := s.Finish(after)
			want, err2 := Following(tok, before, after)
			if err := errors.Join(err, err2); err != nil || text != safetext.Valid(want) || sent != want {
				t.Errorf("%s after %d tokens: the text is %q, and %q was sent, want %q; %v",
					tok.Info().Name, begin, text, sent, want, err)
			}
			if decoded > 12*len(ids) {
				t.Errorf("%s: %d tokens were decoded for a text of %d", tok.Info().Name, decoded, len(ids))
			}
		}
	}
}
