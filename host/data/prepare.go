// Package data converts text to token files and token files to batches for the training loop.
//
// [Prepare] converts texts to a dataset: a folder with training and validation files of token ids,
// the tokenizer that made them, and a manifest against which [dataset.Verify] checks the files.
// Package dataset reads and writes token files and draws batches from them, package source reads
// the input files, package tokenizer converts text to ids, and package chat converts conversations
// to documents.
//
// Everything here is deterministic: the same files and settings give the same bytes on every
// machine, and a batch depends only on its number. Batches are []int32: this package does not
// depend on models or devices.
package data

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/parallel"
	"github.com/cage-qat/cage/internal/shuffle"
	"github.com/cage-qat/cage/internal/vfs"
)

// Prepare makes a dataset from texts and returns its manifest, which it also stores in the dataset.
// Package source documents the supported files.
//
// Documents are put into a random order determined by the seed; the first are for validation, the
// others for training. [dataset.Writer] documents how they are written. A text file that contains a
// zero byte counts as binary and is left out, as is one that is not valid UTF-8; files and
// documents with only white space are left out too. The manifest counts them, together with other
// files that were found but not used ([Reason]). A row without text is an error, and so is a
// damaged file.
//
// Memory use grows by 24 bytes per document. A document, of at most 1 GiB, is in memory as a whole
// while it is encoded. During the preparation, the text of rows and of compressed files is kept in
// a temporary file in the folder.
//
// The folder changes only at the end, each file atomically, and the manifest last; [dataset.Verify]
// checks the files against it.
func Prepare(ctx context.Context, o PrepareOptions) (manifest *Manifest, err error) {
	defer func() {
		if err != nil {
			manifest, err = nil, fmt.Errorf("prepare: %w", err)
		}
	}()
	if err := o.resolve(); err != nil {
		return nil, err
	}
	companions := map[string][]byte{}
	if t, ok := o.Tokenizer.(*tokenizer.HuggingFace); ok {
		if companions, err = t.ReadCompanions(); err != nil {
			return nil, err
		}
		companions[tokenizer.DefinitionFile] = t.Definition()
	}
	out := vfs.On(o.Files, o.Out)
	origin := dataset.Origin{Tokenizer: o.Tokenizer.Info()}
	folder, err := dataset.Prepare(out, dataset.Texts, origin, companions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	p := &preparation{ctx: ctx, options: &o}
	if p.finder, err = newFinder(&o, dataset.Texts); err != nil {
		return nil, err
	}
	p.spools = &spools{dir: out, add: func(s *spool) int32 {
		return p.addFile(textFile{"the text of rows and compressed files", s})
	}}
	defer func() { err = errors.Join(err, p.spools.close()) }()

	// Validation inputs are scanned first, so that their files are not used for training as well.
	val, err := p.scan(o.ValInputs)
	if err != nil {
		return nil, err
	}
	train, err := p.scan(o.Inputs)
	if err != nil {
		return nil, err
	}
	if o.MaxBytes > 0 {
		// Otherwise, a document longer than the limit would end the selection.
		long := func(d document) bool { return d.length > o.MaxBytes }
		train = slices.DeleteFunc(train, long)
		left := o.MaxBytes
		end := slices.IndexFunc(train, func(d document) bool {
			left -= d.length
			return left < 0
		})
		if end >= 0 {
			train = train[:end]
		}
	}
	found := len(train)
	if n := found; len(o.ValInputs) == 0 && n > 1 {
		n = min(max(int(math.RoundToEven(o.ValFraction*float64(n))), 1), n-1)
		val, train = train[:n], train[n:]
	}
	left := p.finder.leftOut
	switch {
	case found == 0 && o.MaxBytes > 0:
		return nil, fmt.Errorf("no document of at most %d bytes found%s", o.MaxBytes, left)
	case found == 0:
		return nil, fmt.Errorf("no document found in %q with include patterns %q%s",
			o.Inputs, o.Include, left)
	case len(val) == 0 && len(o.ValInputs) > 0:
		return nil, fmt.Errorf("no document found in %q for validation%s", o.ValInputs, left)
	case len(val) == 0:
		return nil, errors.New("cannot split one document into training and validation: " +
			"give more files, --separator, which divides a file into documents, or --validation-text")
	}
	manifest = &Manifest{
		Train:       dataset.Part{Bytes: textBytes(train)},
		Val:         dataset.Part{Bytes: textBytes(val)},
		ValFraction: o.ValFraction,
		Seed:        o.Seed,
		Read:        p.report,
		LeftOut:     left.list(),
		Selection:   o.Selection,
	}
	p.progress = Progress{Stage: "encode", TotalBytes: manifest.Train.Bytes + manifest.Val.Bytes}
	if err := p.encode(folder.Train, train); err != nil {
		return nil, err
	}
	if err := p.encode(folder.Val, val); err != nil {
		return nil, err
	}
	return manifest, folder.Commit(&manifest.Manifest, manifest)
}

type preparation struct {
	ctx     context.Context
	options *PrepareOptions
	finder  *finder
	spools  *spools
	report  report

	mu       sync.Mutex // guards the fields below
	files    []textFile
	progress Progress
}

func (p *preparation) addFile(file textFile) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = append(p.files, file)
	return int32(len(p.files) - 1)
}

// splitStream is the second half of the seed for the order of documents, which separates its random
// numbers from those for other uses of the seed.
const splitStream = 0x63616765_73706c74 // "cagesplt"

// scan returns the documents of inputs in random order.
func (p *preparation) scan(inputs []string) ([]document, error) {
	files, err := p.finder.find(inputs)
	if err != nil {
		return nil, err
	}
	p.progress = Progress{Stage: "scan"}
	for i := range files {
		files[i].number = p.addFile(textFile{path: files[i].path})
		p.progress.TotalBytes += files[i].size
	}
	var documents []document
	err = parallel.Run(p.ctx, parallel.Each(files), p.readFile, func(f sourceResult) error {
		tooLong := func(d document) bool { return d.length > maxDocument }
		if slices.ContainsFunc(f.documents, tooLong) {
			return fmt.Errorf("%s: a document has more than %d MiB: divide the file, or give --separator",
				f.source.path, maxDocument>>20)
		}
		documents = append(documents, f.documents...)
		if f.reason != isText {
			p.finder.leftOut.add(f.reason, f.source.path)
		} else {
			p.report.add(&f)
		}
		p.advance(int64(len(f.documents)), 0)
		return nil
	})
	shuffle.Slice(rand.NewPCG(p.options.Seed, splitStream), documents)
	return documents, err
}

func (p *preparation) advance(documents, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress.Documents += documents
	p.progress.Bytes += bytes
	if p.options.Progress != nil {
		p.options.Progress(p.progress)
	}
}

func textBytes(documents []document) int64 {
	var sum int64
	for i := range documents {
		sum += documents[i].length
	}
	return sum
}
