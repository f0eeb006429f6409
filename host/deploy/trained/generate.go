package trained

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/internal/safetext"
)

// Generate continues a prompt; see [Model.Continue].
func (t *Model) Generate(
	ctx context.Context, prompt string, o generate.Options, emit func(text string) error,
) (string, error) {
	tok, err := t.Tokenizer()
	if err != nil {
		return "", err
	}
	ids, err := build.Beginning(t.Config, tok, prompt)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	s := &generate.Stream{Tokenizer: tok, Before: generate.LastOf(prompt, ids), Emit: emit}
	return t.stream(ctx, s, ids, o)
}

// Tokenizer opens the tokenizer of the model.
func (t *Model) Tokenizer() (tokenizer.Tokenizer, error) {
	if err := t.checkLanguage(); err != nil {
		return nil, err
	}
	return t.tokenizer()
}

// Continue continues ids until a token that ends a document or an answer (or, if o.Stop is not nil,
// until one of its tokens), or until the text contains one of the strings in until. If emit is not
// nil, it receives the text in pieces, as it is generated, in whole characters. The model must have
// been opened with Options.Generate = 1.
func (t *Model) Continue(ctx context.Context, tok tokenizer.Tokenizer, ids []int32,
	o generate.Options, until []string, emit func(text string) error) (string, error) {
	s := &generate.Stream{Tokenizer: tok, Emit: emit, Until: until}
	return t.stream(ctx, s, ids, o)
}

// stream continues ids and writes the text to a stream.
func (t *Model) stream(
	ctx context.Context, s *generate.Stream, ids []int32, o generate.Options,
) (string, error) {
	o = t.untilEnd(s.Tokenizer, o)
	next, err := generate.Continue(ctx, t, [][]int32{ids}, o, s.Add)
	if err != nil {
		return "", err
	}
	return s.Finish(next[0])
}

// ContinueAll is like [Model.Continue] for several prompts, at most as many as Options.Generate, at
// once. It returns their continuations, without the tokens for which omit is true.
func (t *Model) ContinueAll(ctx context.Context, tok tokenizer.Tokenizer, prompts [][]int32,
	o generate.Options, emit func(i int, token int32) error, omit func(int32) bool,
) ([]string, error) {
	if len(prompts) == 0 || len(prompts) > t.sequences {
		return nil, t.countError(len(prompts))
	}
	all := slices.Clone(prompts)
	for len(all) < t.sequences { // pads the batch
		all = append(all, prompts[0])
	}
	next, err := generate.Continue(ctx, t, all, t.untilEnd(tok, o), emit)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(prompts))
	for i := range texts {
		text, err := tok.Decode(slices.DeleteFunc(next[i], omit))
		if err != nil {
			return nil, err
		}
		texts[i] = safetext.Valid(text)
	}
	return texts, nil
}

// untilEnd restricts o to ids of the tokenizer and, if o.Stop is nil, makes generation stop at a
// token that ends a document or an answer.
func (t *Model) untilEnd(tok tokenizer.Tokenizer, o generate.Options) generate.Options {
	o.Vocab = tok.Info().VocabSize
	if o.Stop == nil {
		o.Stop = t.Ends(tok)
	}
	return o
}

// Ends returns the tokens that end a text: those that the model's checkpoint names, the end-of-turn
// token of its chat template, EOS, and BOS, which begins the next document.
func (t *Model) Ends(tok tokenizer.Tokenizer) []int32 {
	if t.ends == nil {
		files, _ := t.tokenizerFiles(tok) // without a template there is no end-of-turn token
		t.ends = slices.Concat(t.Record.Initial.Ends(), tokenizer.Ends(tok, chat.EndOfTurn(files, tok)))
	}
	return t.ends
}

// Vocab returns the size of the model's vocabulary.
func (t *Model) Vocab() (int, error) { return t.Config.Model.Vocab, t.checkLanguage() }

func (t *Model) checkLanguage() error {
	if !t.Config.Model.Language() {
		return fmt.Errorf("%s: a model of kind %q does not predict text", t.Dir, t.Config.Model.Kind)
	}
	return nil
}

func (t *Model) countError(prompts int) error {
	return fmt.Errorf("%s was opened to continue %d sequences at once, not %d",
		t.Dir, t.sequences, prompts)
}

// Context implements [generate.Model].
func (t *Model) Context() int { return t.Config.Model.Context }

// Begin implements [generate.Model].
func (t *Model) Begin(prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	if len(prompts) != t.sequences {
		return nil, nil, t.countError(len(prompts))
	}
	for i, p := range prompts {
		if err := t.checkIDs(i, p); err != nil {
			return nil, nil, err
		}
	}
	e, err := t.openEvaluator()
	if err != nil {
		return nil, nil, err
	}
	return e.Begin(prompts, length)
}

// GenerateUntil continues prompts greedily, by at most the given number of tokens each, until the
// text contains a string in until or ends as described at [Model.Continue]. A prompt that does not
// leave space for that many tokens is truncated at its beginning. Special tokens are omitted from
// the returned texts. Options.Generate must be at least the number of prompts.
func (t *Model) GenerateUntil(
	ctx context.Context, tok tokenizer.Tokenizer, prompts [][]int32, tokens int, until []string,
) ([]string, error) {
	longestPrompt := t.Context() - tokens
	if longestPrompt < 1 {
		return nil, fmt.Errorf("%s has a context of %d tokens: an answer of up to %d leaves none for a "+
			"question", t.Dir, t.Context(), tokens)
	}
	ends := make([][]int32, len(prompts)) // of the prompts
	for i, p := range prompts {
		ends[i] = p[max(0, len(p)-longestPrompt):]
	}
	tails := make([][]int32, t.sequences) // the last tokens of the texts
	longest := 8                          // a token has at least one byte, except parts of characters
	for _, u := range until {
		longest = max(longest, len(u)+8)
	}
	emit := func(i int, token int32) error { // stops when the end of a text contains one of until
		tails[i] = append(tails[i], token)
		tails[i] = tails[i][max(0, len(tails[i])-longest):]
		text, err := tok.Decode(tails[i])
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
	special := func(id int32) bool { return tokenizer.IsSpecial(tok, id) }
	return t.ContinueAll(ctx, tok, ends, generate.Options{Tokens: tokens}, emit, special)
}
