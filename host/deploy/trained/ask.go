package trained

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
)

// GenerateUntil continues prompts greedily, by at most the given number of tokens each,
// until the text contains one of the strings in until or ends as described at
// [Model.Continue]. Of a prompt too long to leave room for that many tokens, the model
// sees only the end. The run must have been opened to generate at least this many
// sequences at once. Special tokens are left out of the returned texts.
func (t *Model) GenerateUntil(ctx context.Context, tok tokenizer.Tokenizer, prompts [][]int32, tokens int, until []string) ([]string, error) {
	if len(prompts) == 0 || len(prompts) > t.sequences {
		return nil, fmt.Errorf("%s was opened to continue %d sequences at once, not %d", t.dir, t.sequences, len(prompts))
	}
	room := t.Context() - tokens
	if room < 1 {
		return nil, fmt.Errorf("%s sees %d tokens: an answer of up to %d leaves no room for a question", t.dir, t.Context(), tokens)
	}
	all := make([][]int32, t.sequences)
	for i := range all {
		all[i] = prompts[min(i, len(prompts)-1)] // places that nobody wants get a copy
		all[i] = all[i][max(0, len(all[i])-room):]
	}
	said := make([]answer, len(all))
	next, err := generate.Continue(ctx, t, all, t.untilEnd(tok, generate.Options{Tokens: tokens}), func(i int, token int32) error {
		return said[i].add(tok, token, until)
	})
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(prompts))
	for i := range texts {
		if texts[i], err = tok.Decode(withoutSpecial(tok, next[i])); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// answer is the end of a text that is being generated.
type answer struct{ ids []int32 }

// add ends the text when its end contains one of until.
func (a *answer) add(tok tokenizer.Tokenizer, token int32, until []string) error {
	longest := 0
	for _, u := range until {
		longest = max(longest, len(u))
	}
	a.ids = append(a.ids, token)
	if len(a.ids) > longest+8 { // a token has a byte at least, but for those of half characters
		a.ids = a.ids[len(a.ids)-longest-8:]
	}
	text, err := tok.Decode(a.ids)
	if err != nil {
		return err
	}
	for _, u := range until {
		if u != "" && strings.Contains(text, u) {
			return generate.ErrStop
		}
	}
	return nil
}

// withoutSpecial leaves tokens out that stand for no text.
func withoutSpecial(tok tokenizer.Tokenizer, ids []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return tokenizer.IsSpecial(tok, id) })
}
