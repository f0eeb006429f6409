package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/parallel"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
)

// Rows yields the input rows in order, each with a conversation in one of the forms of [ParseRow].
// If there is an error, it is the last item.
type Rows = iter.Seq2[data.InputRow, error]

// PrepareOptions selects the rows that [Prepare] reads, and how it processes them.
type PrepareOptions struct {
	Rows Rows
	// ValRows are the rows for validation. If nil, a fraction of Rows is used, ValFraction.
	ValRows Rows
	// ValFraction is the fraction of conversations used for validation: at least one, but not all.
	ValFraction float64
	// Seed determines which conversations are used for validation.
	Seed uint64
	// Out is the folder of the dataset; it is created if necessary.
	Out       string
	Template  *Template
	Tokenizer tokenizer.Tokenizer
	// TrainOn selects the turns that count in the loss; empty means [AllTurns].
	TrainOn TrainOn
	// Delimiters selects the treatment of the template's delimiters that are not tokens; empty
	// means [RefuseDelimiters].
	Delimiters Delimiters
	// SkipBad skips and counts rows that hold no conversation; otherwise the first of them is an
	// error.
	SkipBad bool
	// Files is the file system of Out; nil means the operating system's.
	Files vfs.FS
	// Progress, if not nil, is called for every row, by one goroutine.
	Progress func(conversations int64)
}

// Prepare makes a dataset of conversations and returns its manifest, which it also stores in the
// dataset. The other files are the documents for training and for validation, the template, and the
// tokenizer.
//
// Rows are read once, in order, and documents are stored in that order. The folder changes only at
// the end, each file atomically, and the manifest last.
func Prepare(ctx context.Context, o PrepareOptions) (m *Manifest, err error) {
	defer func() {
		if err != nil {
			m, err = nil, fmt.Errorf("prepare: %w", err)
		}
	}()
	o.TrainOn, o.Delimiters = cmp.Or(o.TrainOn, AllTurns), cmp.Or(o.Delimiters, RefuseDelimiters)
	switch {
	case o.Out == "":
		return nil, errors.New("no output folder")
	case o.ValRows == nil && !(o.ValFraction > 0 && o.ValFraction < 1):
		return nil, fmt.Errorf("validation fraction %v, want a number above 0 and below 1", o.ValFraction)
	case o.ValRows != nil && o.ValFraction != 0:
		return nil, errors.New("validation fraction and validation rows are mutually exclusive")
	}
	t := o.Template
	tok, added, err := t.withDelimiters(o.Tokenizer, o.Delimiters)
	if err != nil {
		return nil, err
	}
	p := &preparation{options: &o, counts: Counts{Dropped: []RowCount{}, Ignored: []RowCount{}}}
	if p.encoder, err = NewEncoder(t, tok, o.TrainOn); err != nil {
		return nil, err
	}
	// Training runs copy these files, so that their models can be used in chats.
	config, err := t.tokenizerConfig(added)
	if err != nil {
		return nil, err
	}
	text, err := atomicfile.JSON(config)
	if err != nil {
		return nil, err
	}
	companions := map[string][]byte{
		tokenizer.ConfigFile: text, tokenizer.TemplateFile: []byte(t.Source),
	}
	if h, ok := tok.(*tokenizer.HuggingFace); ok {
		companions[tokenizer.DefinitionFile] = h.Definition()
	}
	origin := dataset.Origin{
		Tokenizer: tok.Info(), Template: t.Name, TrainOn: string(o.TrainOn),
		TemplateSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(t.Source))),
	}
	out := vfs.On(o.Files, o.Out)
	folder, err := dataset.Prepare(out, dataset.Conversations, origin, companions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if o.ValRows == nil {
		err = p.split(ctx, folder)
	} else {
		err = p.each(ctx, o.ValRows, write(folder.Val))
		validation := p.counts.Documents
		if err == nil && validation == 0 {
			err = fmt.Errorf("no validation conversation counts in the loss%s", p.counts.explain())
		}
		if err == nil {
			err = p.each(ctx, o.Rows, write(folder.Train))
		}
		if err == nil && p.counts.Documents == validation {
			err = fmt.Errorf("no conversation counts in the loss%s", p.counts.explain())
		}
	}
	if err != nil {
		return nil, err
	}
	m = &Manifest{
		ValFraction: o.ValFraction, Seed: o.Seed, Tokens: t.Tokens, AddedTokens: added,
		Counts: p.counts,
	}
	return m, folder.Commit(&m.Manifest, m)
}

type preparation struct {
	options *PrepareOptions
	encoder *Encoder
	counts  Counts
}

func write(w *dataset.Writer) func([]*Document) error {
	return func(list []*Document) error {
		for _, d := range list {
			if err := w.WriteDocument(d.IDs, d.Loss); err != nil {
				return err
			}
		}
		return nil
	}
}

type outcome struct {
	location  string // of the row
	documents []*Document
	dropped   Reason
	ignored   []string // keys
	bad       error    // the fault of a skipped row
}

// each encodes rows on all processors, and calls use with the documents of each row, in order. If
// there are several errors, it returns the first in that order.
func (p *preparation) each(ctx context.Context, list Rows, use func([]*Document) error) error {
	type result struct {
		outcome
		err error // the error that ends the preparation
	}
	encode := func(r data.InputRow) (result, error) {
		o := result{location: r.Location()}
		var c Conversation
		var err error
		if r.Err != nil {
			err = rowError(r.Err.Problem) // the location has the rest of r.Err
		} else {
			c, o.ignored, err = ParseRow(r.Text)
			for _, name := range r.Unread { // columns
				if !slices.Contains(harmlessKeys, name) {
					o.ignored = append(o.ignored, name)
				}
			}
			// The template uses the other keys of messages.
			o.ignored = slices.DeleteFunc(o.ignored, func(name string) bool {
				key, ok := strings.CutPrefix(name, messagesVariable+ofMessage)
				return ok && strings.Contains(p.options.Template.Source, key)
			})
		}
		badRow := err != nil
		if err == nil {
			o.documents, err = p.encoder.Encode(ctx, c)
			_, badRow = errors.AsType[rowError](err)
		}
		dropped, ok := errors.AsType[*Dropped](err)
		switch {
		case ok:
			o.dropped = dropped.Reason
		case err == nil:
		case !badRow:
			o.err = fmt.Errorf("%s: %w", o.location, err)
		case p.options.SkipBad:
			o.bad = err
		default:
			o.err = fmt.Errorf("%s: %w; --skip-bad leaves out such rows and counts them", o.location, err)
		}
		return o, ctx.Err()
	}
	return parallel.Run(ctx, list, encode, func(o result) error {
		if o.err != nil {
			return o.err
		}
		p.counts.add(o.outcome)
		if p.options.Progress != nil {
			p.options.Progress(p.counts.Rows)
		}
		if o.documents == nil {
			return nil
		}
		return use(o.documents)
	})
}

// splitSequence separates the random numbers of the split from those for other uses of the seed.
const splitSequence = 0x63686174_73706c74 // "chatsplt"

// split writes a random fraction of the conversations for validation, and the others for training.
// Each has a random number, determined by the seed and its position, and goes to validation if the
// number is small. The one with the smallest number always does, and the one with the largest
// never: these two are held back until all are seen.
func (p *preparation) split(ctx context.Context, folder *dataset.Folder) error {
	type numbered struct {
		documents []*Document // of a conversation
		number    uint64
	}
	rng := rand.NewPCG(p.options.Seed, splitSequence)
	limit := uint64(math.Ldexp(p.options.ValFraction, 64))
	validation, training := write(folder.Val), write(folder.Train)
	var lowest, highest numbered
	err := p.each(ctx, p.options.Rows, func(list []*Document) error {
		n := numbered{list, rng.Uint64()}
		if lowest.documents == nil || n.number < lowest.number {
			lowest, n = n, lowest
		}
		if n.documents != nil && (highest.documents == nil || n.number > highest.number) {
			highest, n = n, highest
		}
		switch {
		case n.documents == nil:
			return nil
		case n.number < limit:
			return validation(n.documents)
		}
		return training(n.documents)
	})
	switch {
	case err != nil:
		return err
	case lowest.documents == nil:
		return fmt.Errorf("no conversation counts in the loss%s", p.counts.explain())
	case highest.documents == nil:
		return errors.New("cannot divide one conversation into training and validation: " +
			"give more, or separate ones for validation")
	}
	return errors.Join(validation(lowest.documents), training(highest.documents))
}

// Manifest describes the sources and the contents of a dataset; it is stored as chat.json.
type Manifest struct {
	dataset.Manifest
	// Tokens are the special tokens that the template uses.
	Tokens SpecialTokens `json:"tokens"`
	// AddedTokens are the template's delimiters that were added to the tokenizer.
	AddedTokens []AddedToken `json:"added_tokens,omitempty"`
	Counts
}

// Counts holds statistics of the rows.
type Counts struct {
	Rows      int64 `json:"rows"`
	Documents int64 `json:"documents"`
	// Divided counts the conversations with more than one document; see [Encoder.Encode].
	Divided Divided `json:"divided,omitzero"`
	// Dropped counts the conversations that yield no document, by reason, the most frequent first.
	Dropped []RowCount `json:"dropped"`
	// Ignored counts the rows with unknown keys, by key, the most frequent first.
	Ignored []RowCount `json:"ignored"`
	// Bad is the number of rows that hold no conversation; FirstBad is the error of the first of them.
	// BadReasons counts them by error, the most frequent first.
	Bad        int64      `json:"bad"`
	FirstBad   string     `json:"first_bad,omitempty"`
	BadReasons []RowCount `json:"bad_reasons,omitempty"`
}

// Divided counts conversations whose template renders turns differently when more messages follow.
type Divided struct {
	Conversations int64 `json:"conversations"`
	// Documents and Tokens count the additional documents and their tokens: all except the longest
	// document of each conversation.
	Documents int64 `json:"more_documents"`
	Tokens    int64 `json:"more_tokens"`
}

// RowCount counts the rows that were dropped for one reason, or that have one ignored key.
type RowCount struct {
	Reason Reason `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	Rows   int64  `json:"rows"`
	First  string `json:"first"` // location of the first of them
}

// Limits on the number of keys and reasons that are counted separately. A template can raise a
// different reason for every row.
const (
	maxKeys      = 50
	otherKeys    = "other keys"
	maxReasons   = 20
	otherReasons = refusal + "for other reasons"
	otherErrors  = "other errors"
)

// tally counts a row. Once list has limit entries, rows with new reasons or keys count as other.
func tally(list []RowCount, row, other RowCount, limit int) []RowCount {
	same := func(c RowCount) bool { return c.Reason == row.Reason && c.Key == row.Key }
	i := slices.IndexFunc(list, same)
	if i < 0 && len(list) >= limit {
		row.Reason, row.Key = other.Reason, other.Key
		i = slices.IndexFunc(list, same)
	}
	if i < 0 {
		i, list = len(list), append(list, row)
	}
	list[i].Rows++
	slices.SortStableFunc(list, func(a, b RowCount) int { return cmp.Compare(b.Rows, a.Rows) })
	return list
}

func (c *Counts) add(o outcome) {
	c.Rows++
	for _, key := range o.ignored {
		row := RowCount{Key: safetext.Clip(key, maxReason), First: o.location}
		c.Ignored = tally(c.Ignored, row, RowCount{Key: otherKeys}, maxKeys)
	}
	switch {
	case o.documents != nil:
		n := int64(len(o.documents))
		c.Documents += n
		if n > 1 {
			tokens, longest := 0, 0
			for _, d := range o.documents {
				tokens, longest = tokens+len(d.IDs), max(longest, len(d.IDs))
			}
			c.Divided.Conversations++
			c.Divided.Documents += n - 1
			c.Divided.Tokens += int64(tokens - longest)
		}
	case o.bad != nil:
		c.Bad++
		if c.FirstBad == "" {
			c.FirstBad = fmt.Sprintf("%s: %v", o.location, o.bad)
		}
		row := RowCount{Reason: Reason(o.bad.Error()), First: o.location}
		c.BadReasons = tally(c.BadReasons, row, RowCount{Reason: otherErrors}, maxReasons)
	default:
		row := RowCount{Reason: o.dropped, First: o.location}
		c.Dropped = tally(c.Dropped, row, RowCount{Reason: otherReasons}, maxReasons)
	}
}

// explain describes, for the end of an error message, why rows yielded no documents.
func (c *Counts) explain() string {
	if c.Rows == 0 {
		return ": there are no rows"
	}
	var parts []string
	for _, d := range c.Dropped {
		parts = append(parts, fmt.Sprintf("%d: %s (first at %s)", d.Rows, d.Reason, d.First))
	}
	if c.Bad > 0 {
		parts = append(parts, fmt.Sprintf("%d bad (%s)", c.Bad, c.FirstBad))
	}
	return fmt.Sprintf("; of %d rows, %s", c.Rows, strings.Join(parts, "; "))
}
