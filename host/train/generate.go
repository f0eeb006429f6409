package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// piece is how many tokens of a prompt are read at once.
const piece = 64

// pieces are the numbers of tokens that are read at once to continue so many sequences.
func pieces(sequences int) []int {
	if sequences == 0 {
		return nil
	}
	return []int{piece * sequences, sequences}
}

// pieces are the numbers of tokens, of all sequences together, that are read at once.
func (t *Trained) pieces(o OpenOptions) []int {
	list := pieces(o.Generate)
	if o.Score {
		list = append(list, t.scoredTokens())
	}
	return list
}

// Generate continues a prompt: see [Trained.Continue].
func (t *Trained) Generate(ctx context.Context, prompt string, o generate.Options, emit func(text string) error) (string, error) {
	tok, err := t.Tokenizer()
	if err != nil {
		return "", err
	}
	ids, err := beginning(t.cfg, tok, prompt)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	return t.through(ctx, &stream{tok: tok, before: lastOf(prompt, ids), emit: emit}, ids, o)
}

// beginning are the tokens of a document that begins with a text: with the begin token in front where the model learned
// from documents with it, or where the tokenizer puts it before every text.
func beginning(cfg *config.Config, tok tokenizer.Tokenizer, text string) ([]int32, error) {
	ids, err := tok.Encode(text)
	learned := !cfg.Untrained() && cfg.Data.Kind == config.KindText
	if bos := tok.Info().BOS; bos != tokenizer.NoToken && (learned || tokenizer.AddsBOS(tok) || len(ids) == 0) {
		ids = append([]int32{bos}, ids...)
	}
	return ids, err
}

// Tokenizer opens the tokenizer of the model.
func (t *Trained) Tokenizer() (tokenizer.Tokenizer, error) {
	if err := t.checkLanguage(); err != nil {
		return nil, err
	}
	return t.tokenizer()
}

// Continue continues ids until the end of the document or of the model's answer (or until one of the tokens in o.Stop,
// if it is not nil), or until the text contains one of the strings in until. If emit is not nil, it receives the text
// as it grows, in whole characters. The run must have been opened to generate one sequence.
func (t *Trained) Continue(ctx context.Context, tok tokenizer.Tokenizer, ids []int32, o generate.Options, until []string, emit func(text string) error) (string, error) {
	return t.through(ctx, &stream{tok: tok, emit: emit, until: until}, ids, o)
}

// through continues ids and has a stream write the text.
func (t *Trained) through(ctx context.Context, s *stream, ids []int32, o generate.Options) (string, error) {
	o = t.untilEnd(s.tok, o)
	next, err := generate.Continue(ctx, t, [][]int32{ids}, o, s.add)
	if err != nil {
		return "", err
	}
	return s.finish(next[0])
}

// ContinueAll is [Trained.Continue] for several prompts at once, at most as many as the run was opened to generate. It
// returns the text that follows each.
func (t *Trained) ContinueAll(ctx context.Context, tok tokenizer.Tokenizer, prompts [][]int32, o generate.Options) ([]string, error) {
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
func (t *Trained) untilEnd(tok tokenizer.Tokenizer, o generate.Options) generate.Options {
	o.Vocab = tok.Info().VocabSize
	if o.Stop == nil {
		o.Stop = t.Ends(tok)
	}
	return o
}

// Ends returns the tokens that end a text: those that the model's source names, the one that ends a turn in the model's
// template of conversations, the one that ends a document, and the one that begins the next.
func (t *Trained) Ends(tok tokenizer.Tokenizer) []int32 {
	if t.ends == nil {
		files, _ := t.tokenizerFiles(tok) // without a template there is no end of a turn
		t.ends = allEnds(t.made.Initial, files, tok)
	}
	return t.ends
}

// allEnds are the tokens that end a text, given the files of the tokenizer.
func allEnds(from *origin, files map[string][]byte, tok tokenizer.Tokenizer) []int32 {
	list := slices.Concat(from.ends(), ends(tok.Info()))
	if end, err := endingOf(files, tok); err == nil && end.Token != tokenizer.NoToken {
		list = append(list, end.Token)
	}
	return list
}

// endingOf is what ends a turn in the template that is among the files of a tokenizer.
func endingOf(files map[string][]byte, tok tokenizer.Tokenizer) (chat.Ending, error) {
	template, err := chat.ModelTemplate(files)
	if err != nil || template == nil {
		return chat.Ending{Token: tokenizer.NoToken}, err
	}
	return template.Ending(tok, nil)
}

// ends are the tokens of a tokenizer that end a text.
func ends(info tokenizer.Info) (list []int32) {
	for _, id := range []int32{info.BOS, info.EOS} {
		if id != tokenizer.NoToken {
			list = append(list, id)
		}
	}
	return list
}

// Vocab returns the number of tokens that the model has.
func (t *Trained) Vocab() (int, error) { return t.cfg.Model.Vocab, t.checkLanguage() }

// checkLanguage refuses problems without data.
func (t *Trained) checkLanguage() error {
	if !t.cfg.Model.Language() {
		return fmt.Errorf("%s: a model of kind %q does not predict text", t.dir, t.cfg.Model.Kind)
	}
	return nil
}

// Context implements [generate.Model].
func (t *Trained) Context() int { return t.cfg.Model.Context }

// Begin implements [generate.Model].
func (t *Trained) Begin(prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	if len(prompts) != t.sequences {
		return nil, nil, fmt.Errorf("%s was opened to continue %d sequences at once, not %d", t.dir, t.sequences, len(prompts))
	}
	for i, p := range prompts {
		if err := t.checkIDs(i, p); err != nil {
			return nil, nil, err
		}
	}
	e, err := t.evaluating()
	if err != nil {
		return nil, nil, err
	}
	return begin(e, prompts, length)
}

// begin reads prompts, as [generate.Model] says. Shorter ones have padding in front, and the
// longest has some where it is not a whole number of pieces.
func begin(e *step.Evaluator, prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p))
	}
	places := (longest + piece - 1) / piece * piece
	first := make([]int32, len(prompts))
	rows := make([][]int32, len(prompts))
	for i, p := range prompts {
		first[i] = int32(places - len(p))
		rows[i] = slices.Concat(make([]int32, places-len(p)), p)
	}
	d, err := e.Decoder(first, room(places+length-longest))
	if err != nil {
		return nil, nil, err
	}
	var logits []float32
	for at := 0; at < places; at += piece {
		var tokens []int32
		for _, row := range rows {
			tokens = append(tokens, row[at:at+piece]...)
		}
		if logits, err = d.Next(tokens); err != nil {
			d.Close()
			return nil, nil, err
		}
	}
	return d, logits, nil
}

// room is a number of tokens that has at least the given one: one of few, because a program
// is compiled for each.
func room(tokens int) int {
	n := 2 * piece
	for n < tokens {
		n *= 2
	}
	return n
}
