package train

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
)

// TestStream: a text grows in whole characters, nothing of what ends it is ever sent, and all that does not end it is.
func TestStream(t *testing.T) {
	for _, c := range []struct {
		text, want string
		until      []string
	}{
		{"if 1<2 ok<|im_end|>\nmore", "if 1<2 ok", []string{"<|im_end|>"}},
		{"if 1<2 ok", "if 1<2 ok", []string{"<|im_end|>"}},
		{"a<|im_en", "a<|im_en", []string{"<|im_end|>"}}, // it never comes
		{"<|im_end|>", "", []string{"<|im_end|>"}},
		{"aaab aab", "aa", []string{"ab"}},
		{"one END two STOP", "one ", []string{"STOP", "END"}},
		{"größe λ|", "größe λ", []string{"|"}},
		{"no ends", "no ends", nil},
	} {
		sent := ""
		s := stream{tok: tokenizer.Bytes{}, until: c.until, emit: func(text string) error {
			sent += text
			if len(sent) > len(c.want) || sent != c.want[:len(sent)] {
				t.Errorf("%q: %q was sent", c.text, sent)
			}
			return nil
		}}
		ids, err := s.tok.Encode(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var made []int32
		for _, id := range ids {
			made = append(made, id)
			if err := s.add(0, id); errors.Is(err, generate.ErrStop) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		text, err := s.finish(made)
		if err != nil || text != c.want || sent != c.want {
			t.Errorf("%q: the text is %q, and %q was sent, want %q; %v", c.text, text, sent, c.want, err)
		}
		if len(c.until) > 0 && len(made) == len(ids) && len(c.text) > len(c.want)+len(c.until[0]) {
			t.Errorf("%q: it went on to the end", c.text)
		}
	}
}
