package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/data/chat/rows"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Row is an input row: a conversation as JSON, in one of the forms of [ParseRow].
type Row struct {
	Text []byte
	// Place is the location of the row, for messages: a file and a line.
	Place string
	// Err, if not nil, says why there is no text; such a row is bad.
	Err error
}

// Rows are the input rows in order. An error ends them.
type Rows = iter.Seq2[Row, error]

// PrepareOptions says which rows [Prepare] reads and what it makes of them.
type PrepareOptions struct {
	Rows Rows
	// ValRows are the rows for validation; nil means a share of Rows, ValFraction.
	ValRows Rows
	// ValFraction is the share of the conversations that goes to validation: at least one
	// of them, and not all.
	ValFraction float64
	// Seed determines which conversations these are.
	Seed uint64
	// Out is the folder of the data set; it is created if necessary.
	Out       string
	Template  *Template
	Tokenizer tokenizer.Tokenizer
	// TrainOn says which turns carry loss; empty means all of the assistant's.
	TrainOn TrainOn
	// Special says what to do with special tokens in messages; empty means that they are
	// allowed.
	Special Special
	// Marks says what becomes of marks of the template that are no tokens; empty means that they are an error.
	Marks Marks
	// SkipBad leaves out and counts rows that hold no conversation; otherwise the first
	// of them is an error.
	SkipBad bool
	// Files is the file system of Out; nil means the operating system's.
	Files vfs.FS
	// Progress, if not nil, is called for every row, by one goroutine.
	Progress func(conversations int64)
}

func (o *PrepareOptions) out(elem ...string) vfs.Path { return vfs.On(o.Files, o.Out).Join(elem...) }

func (o *PrepareOptions) resolve() error {
	if o.TrainOn == "" {
		o.TrainOn = AllTurns
	}
	if o.Special == "" {
		o.Special = AllowSpecial
	}
	if o.Marks == "" {
		o.Marks = RefuseMarks
	}
	switch {
	case o.Out == "":
		return errors.New("no output folder")
	case o.ValRows == nil && !(o.ValFraction > 0 && o.ValFraction < 1):
		return fmt.Errorf("validation fraction %v, want a number above 0 and below 1", o.ValFraction)
	case o.ValRows != nil && o.ValFraction != 0:
		return errors.New("a validation fraction and validation rows exclude each other")
	}
	return nil
}

// Prepare makes a data set of conversations and returns its manifest, which it also
// stores in the data set. The other files are the documents for training and for
// validation, the template, and the tokenizer.
//
// Rows are read once, one after the other, and documents are stored in that order. The
// folder changes only at the end, file by file and each atomically; the manifest comes
// last.
func Prepare(ctx context.Context, options PrepareOptions) (*Manifest, error) {
	began := time.Now()
	p := &preparation{options: &options}
	m, err := p.run(ctx)
	if err == nil {
		m.Seconds = time.Since(began).Seconds()
		err = atomicfile.WriteJSON(options.out(ManifestFile), m)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return m, nil
}

// preparation is one run of Prepare.
type preparation struct {
	options    *PrepareOptions
	encoder    *Encoder
	train, val *rows.Writer
	counts     counts
	added      []AddedToken
}

func (p *preparation) run(ctx context.Context) (*Manifest, error) {
	o := p.options
	err := o.resolve()
	if err == nil {
		o.Tokenizer, p.added, err = o.Template.withMarks(o.Tokenizer, o.Marks)
	}
	if err == nil {
		p.encoder, err = NewEncoder(o.Template, o.Tokenizer, o.TrainOn, o.Special)
	}
	if err == nil {
		err = o.out().MkdirAll()
	}
	if err != nil {
		return nil, err
	}
	if err := p.checkOurs(); err != nil {
		return nil, err
	}
	lock, err := enter(o.out())
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	for _, part := range []struct {
		name string
		w    **rows.Writer
	}{{TrainFile, &p.train}, {ValFile, &p.val}} {
		w, err := rows.NewWriter(o.out(part.name), p.origin())
		if err != nil {
			return nil, err
		}
		defer w.Abort()
		*part.w = w
	}
	if err := p.encode(ctx); err != nil {
		return nil, err
	}
	return p.commit()
}

// besideFile is a file of a data set, beside its documents and the manifest.
type besideFile struct {
	name    string
	content []byte
}

// beside are the files with which the folder of the data, and a run that copies from it, has all that chats need.
func (p *preparation) beside() (list []besideFile, err error) {
	o := p.options
	config, err := o.Template.tokenizerConfig(p.added)
	if err != nil {
		return nil, err
	}
	if t, ok := o.Tokenizer.(interface{ Definition() []byte }); ok {
		list = append(list, besideFile{tokenizer.DefinitionFile, t.Definition()})
	}
	text, err := atomicfile.JSON(config)
	return append(list, besideFile{tokenizer.ConfigFile, text}, besideFile{tokenizer.TemplateFile, []byte(o.Template.Source)}), err
}

// checkOurs fails if a file of somebody else stands in the folder where one of the data set is to be. With a manifest the
// folder is a data set, which is replaced; without, a preparation may have been killed that wrote the same.
func (p *preparation) checkOurs() error {
	o := p.options
	manifest, err := o.out(ManifestFile).ReadFile()
	if err == nil && new(Manifest).parse(manifest) == nil {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := p.beside()
	if err != nil {
		return err
	}
	errs := []error{atomicfile.CheckOurs(o.out(ManifestFile), func(io.Reader) bool { return false })}
	for _, name := range []string{TrainFile, ValFile} {
		errs = append(errs, atomicfile.CheckOurs(o.out(name), atomicfile.Begins(rows.Magic)))
	}
	for _, f := range files {
		errs = append(errs, atomicfile.CheckOurs(o.out(f.name), atomicfile.Is(f.content)))
	}
	return errors.Join(errs...)
}

// lockFile is held while a data set is prepared.
const lockFile = vfs.LockFile

// enter makes sure that nobody else prepares the data set in dir. It removes what a killed
// preparation has left there.
func enter(dir vfs.Path) (vfs.Lock, error) {
	lock, err := dir.Join(lockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("another process prepares the data set in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	if err := atomicfile.RemoveAbandoned(dir, func(name string) bool { return slices.Contains(Files, name) }); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

func (p *preparation) origin() rows.Origin {
	sum := sha256.Sum256([]byte(p.options.Template.Source))
	return rows.Origin{
		Tokenizer: p.options.Tokenizer.Info(), Template: p.options.Template.Name,
		TemplateSHA256: hex.EncodeToString(sum[:]), TrainOn: string(p.options.TrainOn),
	}
}

// encode writes all documents.
func (p *preparation) encode(ctx context.Context) error {
	if p.options.ValRows == nil {
		return p.split(ctx)
	}
	if err := p.each(ctx, p.options.ValRows, p.write(p.val)); err != nil {
		return err
	}
	validation := p.counts.Documents
	if validation == 0 {
		return fmt.Errorf("no conversation for validation can be learned from%s", p.counts.explain())
	}
	err := p.each(ctx, p.options.Rows, p.write(p.train))
	if err == nil && p.counts.Documents == validation {
		err = fmt.Errorf("no conversation can be learned from%s", p.counts.explain())
	}
	return err
}

func (p *preparation) write(w *rows.Writer) func(*Document) error {
	return func(d *Document) error { return w.Write(d.IDs, d.Loss) }
}

// commit puts everything in place.
func (p *preparation) commit() (*Manifest, error) {
	o := p.options
	m := &Manifest{
		Version: manifestVersion, Origin: p.origin(), Tokens: o.Template.Tokens, Special: o.Special,
		AddedTokens: p.added, Counts: p.counts.Counts, ValFraction: o.ValFraction, Seed: o.Seed,
	}
	if len(o.Template.Variables) > 0 {
		m.Variables = o.Template.Variables
	}
	if m.Dropped == nil {
		m.Dropped = []DroppedRows{}
	}
	files, err := p.beside()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := atomicfile.WriteBytes(o.out(f.name), f.content); err != nil {
			return nil, err
		}
	}
	if m.Train, err = part(p.train); err != nil {
		return nil, err
	}
	m.Val, err = part(p.val)
	return m, err
}

func part(w *rows.Writer) (Part, error) {
	h, err := w.Commit()
	return Part{Documents: h.Documents, Tokens: h.Tokens, Learned: h.Learned, Longest: h.Longest, SHA256: h.SHA256}, err
}

// share is the number below which a random number of 64 bits stands for validation.
func share(fraction float64) uint64 { return uint64(math.Ldexp(fraction, 64)) }
