// Package dataset stores token ids: in token files, and in directories of them.
//
// A token file ([Writer], [File]) holds the ids of documents, one after the other. The documents
// are texts, or conversations with a loss mask. A dataset is a directory with token files for
// training and validation, the tokenizer that made them, and a [Manifest]. A [Folder] prepares a
// dataset and changes the directory only at the end. [Verify] checks a dataset against its
// manifest.
//
// Batches are drawn from texts ([Windows], or [Mixture] for several files) and from conversations
// ([Rows]), in an order that a seed determines for each epoch, or for evaluation in file order
// ([Sequential], RowsConfig.InOrder). A batch depends only on its number, so that training can be
// resumed from the step number alone.
//
// Packages data (texts) and chat (conversations) convert documents to ids.
package dataset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/digest"
)

// File is an open token file, or several that are read as one. It is safe for concurrent use.
//
// It reads through the operating system's page cache without a memory mapping: a file that shrinks
// while it is in use gives an error, not a crash. For conversations it keeps 12 bytes per document
// and one bit per token in memory.
type File struct {
	parts   []filePart
	header  Header
	index   index     // of conversations
	buffers sync.Pool // of *[]byte
}

type filePart struct {
	path   string
	file   content
	header Header
	begin  int64 // index of its first token in the tokens of all files
}

type content interface {
	io.ReaderAt
	io.Closer
}

// Open opens the token files at paths, to be read one after another as if they were one. A path may
// be a pattern ("train-*.tokens"), which selects the matching files sorted by name. Each header is
// checked against the length of its file. If a file is damaged or not a token file, the error is a
// [*FormatError].
func Open(paths ...string) (*File, error) {
	if len(paths) == 0 {
		return nil, errors.New("no token file given")
	}
	var files []string
	for _, path := range paths {
		_, err := os.Lstat(path)
		if !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(path, "*?[") {
			files = append(files, path)
			continue
		}
		matches, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", path, err)
		}
		if len(matches) == 0 {
			return nil, &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
		}
		files = append(files, matches...)
	}
	var parts []filePart
	for _, path := range files {
		file, err := vfs.At(path).Open()
		if wrong, ok := errors.AsType[*vfs.NotRegularError](err); ok {
			err = &FormatError{path, wrong.Error()}
		}
		if err == nil {
			var part filePart
			stat, problem := file.Stat()
			if err = problem; err == nil {
				part, err = newPart(path, file, stat.Size())
			}
			part.file = file
			parts = append(parts, part)
		}
		if err != nil {
			return nil, errors.Join(err, closeParts(parts))
		}
	}
	f, err := newFile(parts)
	if err != nil {
		return nil, errors.Join(err, closeParts(parts))
	}
	return f, nil
}

func newPart(path string, file content, size int64) (filePart, error) {
	block := make([]byte, headerSize)
	_, err := file.ReadAt(block, 0)
	if err == io.EOF {
		err = nil // parseHeader reports that the file is too short
	}
	var header Header
	if err == nil {
		header, err = parseHeader(block, size)
	}
	if err != nil {
		return filePart{}, &FormatError{path, err.Error()}
	}
	return filePart{path: path, file: file, header: header}, nil
}

// newFile joins parts, which must have the same tokenizer. Conversations must be in one part.
func newFile(parts []filePart) (*File, error) {
	f := &File{parts: parts, header: parts[0].header}
	f.buffers.New = func() any { return new([]byte) }
	first := parts[0]
	if len(parts) == 1 {
		if f.Conversations() {
			return f, f.readIndex()
		}
		return f, nil
	}
	f.header.Tokens, f.header.Documents = 0, 0
	sum := sha256.New()
	for i, part := range parts {
		if f.Conversations() || part.header.Conversations() {
			return nil, &FormatError{part.path, fmt.Sprintf("cannot be combined with %s: "+
				"conversations must be in one file", first.path)}
		}
		a, b := first.header.Tokenizer, part.header.Tokenizer
		if a.SHA256 != b.SHA256 || a.VocabSize != b.VocabSize || a.BOS != b.BOS || a.EOS != b.EOS {
			theirs, own := tokenizer.Distinct(b, a)
			return nil, &FormatError{part.path, fmt.Sprintf("was made with another tokenizer "+
				"(%s) than %s (%s): they cannot be combined", theirs, first.path, own)}
		}
		f.parts[i].begin = f.header.Tokens
		f.header.Tokens += part.header.Tokens
		f.header.Documents += part.header.Documents
		fmt.Fprintln(sum, part.header.SHA256)
	}
	f.header.SHA256 = fmt.Sprintf("%x", sum.Sum(nil))
	return f, nil
}

// Join combines files into one, as if their paths had been given to [Open] together. The result
// shares the open files: closing it closes them.
func Join(files ...*File) (*File, error) {
	var parts []filePart
	for _, f := range files {
		parts = append(parts, f.parts...)
	}
	return newFile(parts)
}

func closeParts(parts []filePart) error {
	return errors.Join(lists.Map(parts, func(p filePart) error { return p.file.Close() })...)
}

// Path returns the path of the first file.
func (f *File) Path() string { return f.parts[0].path }

// Paths returns the paths of all files.
func (f *File) Paths() []string {
	return lists.Map(f.parts, func(p filePart) string { return p.path })
}

// Header returns the file's header. For several files the counts are summed, and the hash is
// computed from the files' hashes, each in hexadecimal and followed by a line feed.
func (f *File) Header() Header { return f.header }

// Tokenizer returns the description of the tokenizer that made the tokens.
func (f *File) Tokenizer() tokenizer.Info { return f.header.Tokenizer }

// Conversations reports whether the documents are conversations rather than texts.
func (f *File) Conversations() bool { return f.header.Conversations() }

// SHA256 returns the hash of the tokens, in lower-case hexadecimal.
func (f *File) SHA256() string { return f.header.SHA256 }

// Len returns the number of tokens.
func (f *File) Len() int64 { return f.header.Tokens }

// Close closes the file.
func (f *File) Close() error { return closeParts(f.parts) }

// ReadTokens fills dst with the ids that begin at the given index. It is an error if the range is
// not in the file, or if an id is outside the vocabulary.
func (f *File) ReadTokens(dst []int32, at int64) error {
	if at < 0 || at > f.Len() || int64(len(dst)) > f.Len()-at {
		return fmt.Errorf("token file %s: cannot read tokens %d to %d of %d",
			f.Path(), at, at+int64(len(dst)), f.Len())
	}
	buffer := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buffer)
	i := sort.Search(len(f.parts), func(i int) bool { return f.parts[i].begin > at }) - 1
	for ; len(dst) > 0; i++ {
		p := &f.parts[i]
		n, width := min(int64(len(dst)), p.begin+p.header.Tokens-at), int64(p.header.TokenBytes)
		*buffer = slices.Grow((*buffer)[:0], int(n*width))
		raw := (*buffer)[:n*width]
		if _, err := p.file.ReadAt(raw, headerSize+(at-p.begin)*width); err != nil {
			return fmt.Errorf("token file %s: reading tokens from %d on: %w", p.path, at-p.begin, err)
		}
		if err := p.decode(dst[:n], raw, at-p.begin); err != nil {
			return err
		}
		dst, at = dst[n:], at+n
	}
	return nil
}

// Limit makes reading fail at ids from vocab on, for a model with fewer ids than the tokenizer,
// whose last tokens need not occur.
func (f *File) Limit(vocab int) {
	for i := range f.parts {
		t := &f.parts[i].header.Tokenizer
		t.VocabSize = min(t.VocabSize, vocab)
	}
}

func (p *filePart) decode(dst []int32, raw []byte, at int64) error {
	vocab := uint32(p.header.Tokenizer.VocabSize)
	for i := range dst {
		var id uint32
		if p.header.TokenBytes == 2 {
			id = uint32(binary.LittleEndian.Uint16(raw[2*i:]))
		} else {
			id = binary.LittleEndian.Uint32(raw[4*i:])
		}
		if id >= vocab {
			return fmt.Errorf("token file %s: at position %d: %w", p.path, at+int64(i),
				&tokenizer.RangeError{ID: int64(id), VocabSize: int(vocab)})
		}
		dst[i] = int32(id)
	}
	return nil
}

// Verify reads the whole file and checks it against its hash, its vocabulary and, for
// conversations, its mask; it stops when ctx ends. If the file was changed or damaged, the error is
// a [*FormatError], or a [*tokenizer.RangeError] for an id outside the vocabulary.
func (f *File) Verify(ctx context.Context) error {
	const chunk = 1 << 20
	raw, decoded := make([]byte, chunk), make([]int32, chunk/2)
	for i := range f.parts {
		p := &f.parts[i]
		sum, h := digest.New(), &p.header
		width, ids := int64(h.TokenBytes), h.idBytes()
		for at, end := int64(0), ids+h.maskBytes()+h.indexBytes(); at < end; at += chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := raw[:min(chunk, end-at)]
			if _, err := p.file.ReadAt(part, headerSize+at); err != nil {
				return fmt.Errorf("token file %s: reading %d bytes at %d: %w",
					p.path, len(part), headerSize+at, err)
			}
			sum.Write(part)
			n := min(int64(len(part)), max(0, ids-at)) / width
			if err := p.decode(decoded[:n], part, at/width); err != nil {
				return err
			}
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)); got != h.SHA256 {
			return changed(p.path, "the tokens have the hash %s, the header says %s", got, h.SHA256)
		}
	}
	return f.verifyIndex()
}

func changed(path, format string, args ...any) error {
	return &FormatError{path, fmt.Sprintf(format+": the file was changed or damaged", args...)}
}

// index holds the positions of conversations and their loss masks.
type index struct {
	starts []int64  // of each document, in tokens, and the end of the last one
	firsts []uint32 // the first token in each document that counts in the loss
	mask   []byte
}

func (f *File) readIndex() error {
	p := &f.parts[0]
	n, maskBytes := int(p.header.Documents), p.header.maskBytes()
	raw := make([]byte, maskBytes+p.header.indexBytes())
	_, err := p.file.ReadAt(raw, headerSize+p.header.idBytes())
	if err != nil && (err != io.EOF || len(raw) > 0) {
		return &FormatError{p.path, err.Error()}
	}
	f.index = index{make([]int64, n+1), make([]uint32, n), bytes.Clone(raw[:maskBytes])}
	longest := int64(0)
	for i, raw := 0, raw[maskBytes:]; i < n; i++ {
		length := int64(binary.LittleEndian.Uint32(raw[i*entrySize:]))
		first := binary.LittleEndian.Uint32(raw[i*entrySize+4:])
		if first < 1 || int64(first) >= length {
			return changed(p.path, "document %d has %d tokens, but the first in the loss is token %d",
				i, length, first)
		}
		f.index.starts[i+1], f.index.firsts[i] = f.index.starts[i]+length, first
		longest = max(longest, length)
	}
	if tokens := f.index.starts[n]; tokens != p.header.Tokens || longest != p.header.Longest {
		return changed(p.path, "the documents have %d tokens, the longest %d; the header says %d and %d",
			tokens, longest, p.header.Tokens, p.header.Longest)
	}
	return nil
}

// Documents returns the number of conversations, or 0 if the documents are texts.
func (f *File) Documents() int { return len(f.index.firsts) }

// Tokens returns the number of tokens in a conversation.
func (f *File) Tokens(document int) int {
	return int(f.index.starts[document+1] - f.index.starts[document])
}

// Longer returns the number of conversations that have more tokens than length, and of those in
// which none of the first length tokens counts in the loss.
func (f *File) Longer(length int) (longer, unused int) {
	for i := range f.Documents() {
		if f.Tokens(i) > length {
			longer++
		}
		if !f.Learned(i, length) {
			unused++
		}
	}
	return longer, unused
}

// Learned reports whether any of the first length tokens of a conversation counts in the loss.
func (f *File) Learned(document, length int) bool {
	return int64(f.index.firsts[document]) < int64(length)
}

// ReadDocument fills ids and learned, which must have the same length, with the first tokens of a
// conversation and their loss mask.
func (f *File) ReadDocument(document int, ids []int32, learned []bool) error {
	if document < 0 || document >= f.Documents() ||
		len(ids) != len(learned) || len(ids) > f.Tokens(document) {
		return fmt.Errorf("token file %s: cannot read %d tokens of document %d",
			f.Path(), len(ids), document)
	}
	if err := f.ReadTokens(ids, f.index.starts[document]); err != nil {
		return fmt.Errorf("document %d: %w", document, err)
	}
	f.readMask(learned, f.index.starts[document])
	return nil
}

func (f *File) readMask(learned []bool, at int64) {
	mask, bit := f.index.mask[at/8:], uint(at%8)
	for i := range learned {
		learned[i] = mask[bit/8]>>(bit%8)&1 != 0
		bit++
	}
}

func (f *File) verifyIndex() error {
	var learned []bool
	total := int64(0)
	for i := range f.Documents() {
		learned = append(learned[:0], make([]bool, f.Tokens(i))...)
		f.readMask(learned, f.index.starts[i])
		first := 0
		for at, learn := range learned {
			if learn {
				total++
				first = cmp.Or(first, at)
			}
		}
		if want := int(f.index.firsts[i]); first != want {
			return changed(f.Path(), "document %d: the first token with loss is %d, the index says %d",
				i, first, want)
		}
	}
	if total != f.header.Learned {
		return changed(f.Path(), "%d tokens have loss, the header says %d",
			total, f.header.Learned)
	}
	return nil
}
