package dataset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// PartWriter writes the documents of a part to one token file, or to several of about the
// same length.
type PartWriter struct {
	path        vfs.Path // of the one file; the names of several are made of it
	origin      Origin
	shardTokens int64 // tokens after which a document ends a file; 0: no bound
	writers     []*Writer
	open        bool // the last writer takes more documents
}

// WriteDocument appends one document: [PartWriter.Append] and [PartWriter.End].
func (p *PartWriter) WriteDocument(ids []int32, learned []bool) error {
	if err := p.Append(ids, learned); err != nil {
		return err
	}
	return p.End()
}

// Append appends part of a document, as [Writer.Append] does.
func (p *PartWriter) Append(ids []int32, learned []bool) error {
	w, err := p.writer()
	if err != nil {
		return err
	}
	return w.Append(ids, learned)
}

// End ends a document.
func (p *PartWriter) End() error {
	w, err := p.writer()
	if err != nil {
		return err
	}
	if err := w.End(); err != nil {
		return err
	}
	if p.shardTokens > 0 && w.header.Tokens >= p.shardTokens {
		return p.Finish()
	}
	return nil
}

// writer is the writer of the current document.
func (p *PartWriter) writer() (*Writer, error) {
	if !p.open {
		w, err := NewWriter(p.path, p.origin)
		if err != nil {
			return nil, err
		}
		p.writers, p.open = append(p.writers, w), true
	}
	return p.writers[len(p.writers)-1], nil
}

// Finish ends the last file.
func (p *PartWriter) Finish() error {
	if !p.open {
		return nil
	}
	p.open = false
	return p.writers[len(p.writers)-1].finish()
}

// commit puts the files in their places.
func (p *PartWriter) commit() (Part, error) {
	part := Part{}
	hashes := make([]string, len(p.writers))
	for i, w := range p.writers {
		if p.shardTokens > 0 {
			w.path = p.path.Dir().Join(shardName(p.path.Base(), i, len(p.writers)))
		}
		h, err := w.Commit()
		if err != nil {
			return Part{}, err
		}
		part.Documents += h.Documents
		part.Tokens += h.Tokens
		part.Learned += h.Learned
		part.Longest = max(part.Longest, h.Longest)
		hashes[i] = h.SHA256
		if p.shardTokens > 0 {
			part.Shards = append(part.Shards, Shard{w.path.Base(), h.Documents, h.Tokens, h.SHA256})
		}
	}
	part.SHA256 = joinHashes(hashes)
	return part, nil
}

// abort removes what was written and not committed.
func (p *PartWriter) abort() error {
	var errs []error
	for _, w := range p.writers {
		errs = append(errs, w.Abort())
	}
	return errors.Join(errs...)
}

// shardName is the name of a shard, numbered from 0: train-00000-of-00002.tokens.
func shardName(name string, i, of int) string {
	stem, ext, _ := strings.Cut(name, ".")
	return fmt.Sprintf("%s-%05d-of-%05d.%s", stem, i, of, ext)
}
