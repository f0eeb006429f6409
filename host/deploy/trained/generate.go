package trained

import (
	"context"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/step"
)

// pieces are the numbers of tokens, of all sequences together, that are read at once.
func (t *Model) pieces(o Options) []int {
	list := step.Pieces(o.Generate)
	if o.Score {
		list = append(list, t.scoredTokens())
	}
	return list
}

// Generate continues a prompt: see [Model.Continue].
func (t *Model) Generate(ctx context.Context, prompt string, o generate.Options, emit func(text string) error) (string, error) {
	tok, err := t.Tokenizer()
	if err != nil {
		return "", err
	}
	ids, err := assembly.Beginning(t.cfg, tok, prompt)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	return t.through(ctx, &generate.Stream{Tokenizer: tok, Before: generate.LastOf(prompt, ids), Emit: emit}, ids, o)
}

// Tokenizer opens the tokenizer of the model.
func (t *Model) Tokenizer() (tokenizer.Tokenizer, error) {
	if err := t.checkLanguage(); err != nil {
		return nil, err
	}
	return t.tokenizer()
}

// Continue continues ids until the end of the document or of the model's answer (or until one of the tokens in o.Stop,
// if it is not nil), or until the text contains one of the strings in until. If emit is not nil, it receives the text
// as it grows, in whole characters. The run must have been opened to generate one sequence.
func (t *Model) Continue(ctx context.Context, tok tokenizer.Tokenizer, ids []int32, o generate.Options, until []string, emit func(text string) error) (string, error) {
	return t.through(ctx, &generate.Stream{Tokenizer: tok, Emit: emit, Until: until}, ids, o)
}

// through continues ids and has a stream write the text.
func (t *Model) through(ctx context.Context, s *generate.Stream, ids []int32, o generate.Options) (string, error) {
	o = t.untilEnd(s.Tokenizer, o)
	next, err := generate.Continue(ctx, t, [][]int32{ids}, o, s.Add)
	if err != nil {
		return "", err
	}
	return s.Finish(next[0])
}

// ContinueAll is [Model.Continue] for several prompts at once, at most as many as the run was opened to generate. It
// returns the text that follows each.
func (t *Model) ContinueAll(ctx context.Context, tok tokenizer.Tokenizer, prompts [][]int32, o generate.Options) ([]string, error) {
	if len(prompts) == 0 || len(prompts) > t.sequences {
		return nil, fmt.Errorf("%s was opened to continue %d sequences at once, not %d", t.dir, t.sequences, len(prompts))
	}
	all := slices.Clone(prompts)
	for len(all) < t.sequences { // places that nobody wants get a copy
		all = append(all, prompts[0])
	}
	next, err := generate.Continue(ctx, t, all, t.untilEnd(tok, o), nil)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(prompts))
	for i := range texts {
		if texts[i], err = tok.Decode(next[i]); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// untilEnd are options with the tokens that end a document or an answer, unless others are
// named, for tokens that the tokenizer has.
func (t *Model) untilEnd(tok tokenizer.Tokenizer, o generate.Options) generate.Options {
	o.Vocab = tok.Info().VocabSize
	if o.Stop == nil {
		o.Stop = t.Ends(tok)
	}
	return o
}

// Ends returns the tokens that end a text: those that the model's source names, the one that ends a turn in the model's
// template of conversations, the one that ends a document, and the one that begins the next.
func (t *Model) Ends(tok tokenizer.Tokenizer) []int32 {
	if t.ends == nil {
		files, _ := t.tokenizerFiles(tok) // without a template there is no end of a turn
		t.ends = slices.Concat(t.made.Initial.Ends(), chat.Ends(files, tok))
	}
	return t.ends
}

// Vocab returns the number of tokens that the model has.
func (t *Model) Vocab() (int, error) { return t.cfg.Model.Vocab, t.checkLanguage() }

// checkLanguage refuses problems without data.
func (t *Model) checkLanguage() error {
	if !t.cfg.Model.Language() {
		return fmt.Errorf("%s: a model of kind %q does not predict text", t.dir, t.cfg.Model.Kind)
	}
	return nil
}

// Context implements [generate.Model].
func (t *Model) Context() int { return t.cfg.Model.Context }

// Begin implements [generate.Model].
func (t *Model) Begin(prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	if len(prompts) != t.sequences {
		return nil, nil, fmt.Errorf("%s was opened to continue %d sequences at once, not %d", t.dir, t.sequences, len(prompts))
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
