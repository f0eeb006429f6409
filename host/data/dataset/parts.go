package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
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

// expandPatterns puts what patterns match, by name, in their place. Of shards that
// belong together none may be missing.
func expandPatterns(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, errors.New("no token file is named")
	}
	var list []string
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(path, "*?[") {
			list = append(list, path)
			continue
		}
		matches, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", path, err)
		}
		if len(matches) == 0 {
			return nil, &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
		}
		if err := complete(matches); err != nil {
			return nil, err
		}
		list = append(list, matches...)
	}
	return list, nil
}

var shardNumbers = regexp.MustCompile(`^(.*)-([0-9]{5,})-of-([0-9]{5,})(\..*)$`)

// complete makes sure that a pattern matches all of the shards that it matches one of.
func complete(paths []string) error {
	have, want := map[string]int{}, map[string]int{}
	for _, path := range paths {
		m := shardNumbers.FindStringSubmatch(path)
		if m == nil {
			continue
		}
		set := m[1] + "-*-of-" + m[3] + m[4]
		have[set]++
		want[set], _ = strconv.Atoi(m[3])
	}
	for set, n := range have {
		if n != want[set] {
			return fmt.Errorf("%s: %d of %d files are there", set, n, want[set])
		}
	}
	return nil
}

// join adds a file to those that are open. All must have the same tokenizer; conversations
// lie in one file.
func (f *File) join(p filePart) error {
	if len(f.parts) == 1 {
		f.header = p.header
		return nil
	}
	first := &f.parts[0]
	if f.Conversations() || p.header.Conversations() {
		return &FormatError{p.path, fmt.Sprintf("cannot be read as one with %s: conversations are read from one file", first.path)}
	}
	a, b := first.header.Tokenizer, p.header.Tokenizer
	if a.SHA256 != b.SHA256 || a.VocabSize != b.VocabSize || a.BOS != b.BOS || a.EOS != b.EOS {
		theirs, own := tokenizer.Distinct(b, a)
		return &FormatError{p.path, fmt.Sprintf("was made with another tokenizer (%s) than %s (%s): "+
			"they cannot be read as one", theirs, first.path, own)}
	}
	f.header.Tokens += p.header.Tokens
	f.header.Documents += p.header.Documents
	return nil
}

// Join returns files as one, as if their paths had been given to [Open] together. The
// result shares the open files: closing it closes them.
func Join(files ...*File) (*File, error) {
	var parts []filePart
	for _, f := range files {
		parts = append(parts, f.parts...)
	}
	return newFile(parts)
}

// joinHashes is the hash of several token files, as [File.Header] says.
func joinHashes(hashes []string) string {
	if len(hashes) == 1 {
		return hashes[0]
	}
	sum := sha256.New()
	for _, h := range hashes {
		fmt.Fprintln(sum, h)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
