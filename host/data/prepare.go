package data

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Prepare makes a dataset of text files and returns its manifest, which it
// also stores with it.
//
// Documents are put into a random order that the seed fixes; the first go to
// validation, the others to training. In each file every document begins with
// the tokenizer's beginning-of-document token, if it has one, and nothing marks
// its end. A file that contains a zero byte counts as binary and is left out,
// as is one that is not valid UTF-8; files and documents of nothing but white
// space are left out too. The manifest counts them, with the other files that
// were found and not taken ([Reason]).
//
// The folder changes only at the end, file by file and each atomically; the
// manifest comes last, and [OpenDataset] compares it with the files.
func Prepare(ctx context.Context, options PrepareOptions) (*Manifest, error) {
	began := time.Now()
	if err := options.resolve(); err != nil {
		return nil, err
	}
	if err := options.out().MkdirAll(); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	lock, err := enter(options.out())
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	defer lock.Unlock()
	finder, err := newFinder(options.Include, options.Out)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	p := &preparation{options: &options, finder: finder, leftOut: finder.leftOut}
	train, val, err := p.collect(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	manifest, err := p.write(ctx, train, val)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	manifest.Seconds = time.Since(began).Seconds()
	if err := manifest.save(options.out(ManifestFile)); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return manifest, nil
}

// lockFile is held while a dataset is prepared.
const lockFile = ".lock"

// enter makes sure that nobody else prepares the dataset in dir, and removes what a
// preparation that was killed left there.
func enter(dir vfs.Path) (vfs.Lock, error) {
	lock, err := dir.Join(lockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("another process prepares the dataset in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	names := []string{TrainFile, ValFile, ManifestFile, tokenizer.DefinitionFile}
	if err := atomicfile.RemoveAbandoned(dir, func(name string) bool { return slices.Contains(names, name) }); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// preparation is one run of Prepare.
type preparation struct {
	options  *PrepareOptions
	finder   *finder
	leftOut  leftOut
	progress Progress
}

// collect finds the documents of both parts.
func (p *preparation) collect(ctx context.Context) (train, val []document, err error) {
	o := p.options
	// Validation comes first: its files are then taken, and cannot be trained on.
	if val, err = p.scan(ctx, o.ValInputs); err != nil {
		return nil, nil, err
	}
	documents, err := p.scan(ctx, o.Inputs)
	if err != nil {
		return nil, nil, err
	}
	documents = limit(documents, o.MaxBytes)
	train = documents
	if len(o.ValInputs) == 0 {
		val, train = split(documents, o.ValFraction)
	}
	if len(train) == 0 || len(val) == 0 {
		return nil, nil, p.tooFew(len(documents))
	}
	return train, val, nil
}

// tooFew explains why a part would be empty.
func (p *preparation) tooFew(documents int) error {
	o := p.options
	switch {
	case documents == 0 && o.MaxBytes > 0:
		return fmt.Errorf("no document of at most %d bytes found%s", o.MaxBytes, p.leftOut)
	case documents == 0:
		return fmt.Errorf("no document found in %q with include patterns %q%s", o.Inputs, o.Include, p.leftOut)
	case len(o.ValInputs) > 0:
		return fmt.Errorf("no document found in %q for validation%s", o.ValInputs, p.leftOut)
	}
	return errors.New("one document cannot be split into training and validation: give more files, a separator that cuts it into documents, or separate validation text")
}

// scan returns the documents of inputs in random order.
func (p *preparation) scan(ctx context.Context, inputs []string) ([]document, error) {
	files, err := p.finder.find(inputs)
	if err != nil {
		return nil, err
	}
	p.progress = Progress{Stage: "scan"}
	for i := range files {
		p.progress.TotalBytes += files[i].size
	}
	type found struct {
		file      *sourceFile
		documents []document
		reason    Reason
	}
	var documents []document
	err = inOrder(ctx, files, func(file *sourceFile) (found, error) {
		list, reason, err := scanFile(file, p.options.Separator)
		return found{file, list, reason}, err
	}, func(f found) error {
		documents = append(documents, f.documents...)
		if f.reason != isText {
			p.leftOut.add(f.reason, f.file.path)
		}
		p.advance(int64(len(f.documents)), f.file.size)
		return nil
	})
	shuffle(rand.NewPCG(p.options.Seed, splitStream), documents)
	return documents, err
}

// advance reports progress.
func (p *preparation) advance(documents, bytes int64) {
	p.progress.Documents += documents
	p.progress.Bytes += bytes
	if p.options.Progress != nil {
		p.options.Progress(p.progress)
	}
}

// limit returns the documents up to the first that would exceed the bound.
func limit(documents []document, maxBytes int64) []document {
	if maxBytes == 0 {
		return documents
	}
	var sum int64
	for i := range documents {
		sum += documents[i].end - documents[i].start
		if sum > maxBytes {
			return documents[:i]
		}
	}
	return documents
}

// split returns the first documents for validation, fraction of all but at
// least one, and the rest; where that leaves nothing, the last one stays.
func split(documents []document, fraction float64) (val, train []document) {
	if len(documents) < 2 {
		return nil, documents
	}
	n := int(math.RoundToEven(fraction * float64(len(documents))))
	n = min(max(n, 1), len(documents)-1)
	return documents[:n], documents[n:]
}

// write makes the token files and then puts everything in place.
func (p *preparation) write(ctx context.Context, train, val []document) (*Manifest, error) {
	o := p.options
	p.progress = Progress{Stage: "encode", TotalBytes: textBytes(train) + textBytes(val)}
	m := &Manifest{
		Version:     manifestVersion,
		Tokenizer:   o.Tokenizer.Info(),
		Inputs:      o.Inputs,
		Include:     o.Include,
		Separator:   o.Separator,
		ValInputs:   o.ValInputs,
		ValFraction: o.ValFraction,
		Seed:        o.Seed,
		MaxBytes:    o.MaxBytes,
		LeftOut:     p.leftOut.list(),
	}
	trainOut, err := p.encode(ctx, TrainFile, train)
	if err != nil {
		return nil, err
	}
	defer trainOut.Abort()
	valOut, err := p.encode(ctx, ValFile, val)
	if err != nil {
		return nil, err
	}
	defer valOut.Abort()
	if t, ok := o.Tokenizer.(interface{ Definition() []byte }); ok {
		if err := atomicfile.WriteBytes(o.out(tokenizer.DefinitionFile), t.Definition()); err != nil {
			return nil, err
		}
	}
	if m.Train, err = commit(trainOut, textBytes(train)); err != nil {
		return nil, err
	}
	m.Val, err = commit(valOut, textBytes(val))
	return m, err
}

// encode writes documents to a token file that is still to be committed.
func (p *preparation) encode(ctx context.Context, name string, documents []document) (*Writer, error) {
	w, err := NewWriter(p.options.out(name), p.options.Tokenizer.Info())
	if err != nil {
		return nil, err
	}
	type encoded struct {
		ids   []int32
		bytes int64
	}
	err = inOrder(ctx, documents, func(d *document) (encoded, error) {
		text, err := d.read()
		if err != nil {
			return encoded{}, err
		}
		ids, err := p.options.Tokenizer.Encode(text)
		if err != nil {
			err = fmt.Errorf("%s: %w", d.file.path, err)
		}
		return encoded{ids, int64(len(text))}, err
	}, func(e encoded) error {
		p.advance(1, e.bytes)
		return w.WriteDocument(e.ids)
	})
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

func commit(w *Writer, bytes int64) (Part, error) {
	header, err := w.Commit()
	return Part{Documents: header.Documents, Tokens: header.Tokens, Bytes: bytes, SHA256: header.SHA256}, err
}

func textBytes(documents []document) int64 {
	var sum int64
	for i := range documents {
		sum += documents[i].end - documents[i].start
	}
	return sum
}
