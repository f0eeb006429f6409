package rows

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/regular"
)

// File is a chat file opened for reading. It is safe for concurrent use.
//
// It keeps 16 bytes per document in memory. Tokens are read through the operating system's
// page cache: a file that shrinks while it is in use gives an error, not a crash.
type File struct {
	path    string
	file    io.ReaderAt
	close   func() error
	header  Header
	starts  []int64  // of each document, in tokens, and the end of the last
	firsts  []uint32 // the first token of each that is learned
	buffers sync.Pool
}

// Open opens the chat file at path, and checks its header and the positions of its
// documents. A file that is damaged or not a chat file is a [*FormatError].
func Open(path string) (*File, error) {
	file, err := regular.Open(path)
	if wrong, ok := errors.AsType[*regular.Error](err); ok {
		return nil, &FormatError{path, wrong.Error()}
	}
	if err != nil {
		return nil, err
	}
	stat, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	f, err := newFile(path, file, stat.Size())
	if err != nil {
		file.Close()
		return nil, err
	}
	f.close = file.Close
	return f, nil
}

// newFile reads the header and the index of a file that is size bytes long.
func newFile(path string, file io.ReaderAt, size int64) (*File, error) {
	block := make([]byte, headerSize)
	if _, err := file.ReadAt(block, 0); err != nil && err != io.EOF {
		return nil, &FormatError{path, err.Error()}
	}
	header, err := parseHeader(block, size)
	if err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	f := &File{path: path, file: file, close: func() error { return nil }, header: header}
	f.buffers.New = func() any { return new([]byte) }
	if err := f.readIndex(); err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	return f, nil
}

// readIndex finds the places of the documents.
func (f *File) readIndex() error {
	n := int(f.header.Documents)
	index := make([]byte, n*entrySize)
	if _, err := f.file.ReadAt(index, headerSize+f.header.Tokens*tokenSize); err != nil && (err != io.EOF || n > 0) {
		return err
	}
	f.starts, f.firsts = make([]int64, n+1), make([]uint32, n)
	longest := int64(0)
	for i := range n {
		length := int64(binary.LittleEndian.Uint32(index[i*entrySize:]))
		first := binary.LittleEndian.Uint32(index[i*entrySize+4:])
		if first < 1 || int64(first) >= length {
			return fmt.Errorf("document %d has %d tokens, of which the first to learn is %d: the file was changed or damaged", i, length, first)
		}
		f.starts[i+1], f.firsts[i] = f.starts[i]+length, first
		longest = max(longest, length)
	}
	if f.starts[n] != f.header.Tokens || longest != f.header.Longest {
		return fmt.Errorf("the documents have %d tokens, the longest %d; the header says %d and %d: the file was changed or damaged",
			f.starts[n], longest, f.header.Tokens, f.header.Longest)
	}
	return nil
}

// Path returns the path that the file was opened with.
func (f *File) Path() string { return f.path }

// Paths returns a list of that path.
func (f *File) Paths() []string { return []string{f.path} }

// Tokenizer returns the description of the tokenizer that made the tokens.
func (f *File) Tokenizer() tokenizer.Info { return f.header.Tokenizer }

// SHA256 returns the hash of the documents, in lower-case hexadecimal.
func (f *File) SHA256() string { return f.header.SHA256 }

// Len returns the number of tokens in all documents.
func (f *File) Len() int64 { return f.header.Tokens }

// Header returns what the file says about itself.
func (f *File) Header() Header { return f.header }

// Documents returns the number of documents.
func (f *File) Documents() int { return len(f.firsts) }

// Tokens returns the number of tokens in a document.
func (f *File) Tokens(document int) int {
	return int(f.starts[document+1] - f.starts[document])
}

// Learned reports whether the first tokens of a document, as many as fit into a row,
// include one that carries loss.
func (f *File) Learned(document, length int) bool { return int64(f.firsts[document]) < int64(length) }

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Read fills ids and loss, which must have the same length, with the first tokens of a
// document and their marks.
func (f *File) Read(document int, ids []int32, loss []bool) error {
	if document < 0 || document >= f.Documents() || len(ids) != len(loss) || len(ids) > f.Tokens(document) {
		return fmt.Errorf("chat file %s: %d tokens of document %d asked for, which it does not have", f.path, len(ids), document)
	}
	buffer := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buffer)
	if need := len(ids) * tokenSize; cap(*buffer) < need {
		*buffer = make([]byte, need)
	}
	raw := (*buffer)[:len(ids)*tokenSize]
	if _, err := f.file.ReadAt(raw, headerSize+f.starts[document]*tokenSize); err != nil {
		return fmt.Errorf("chat file %s: document %d: %w", f.path, document, err)
	}
	for i := range ids {
		word := binary.LittleEndian.Uint32(raw[i*tokenSize:])
		ids[i], loss[i] = int32(word&^lossBit), word&lossBit != 0
		if int(ids[i]) >= f.header.Tokenizer.VocabSize {
			return fmt.Errorf("chat file %s: document %d, token %d: %w", f.path, document, i,
				&tokenizer.RangeError{ID: int64(ids[i]), VocabSize: f.header.Tokenizer.VocabSize})
		}
	}
	return nil
}

// Verify reads the whole file and checks it against its hash, its vocabulary and its
// index; it stops when ctx ends. A file that was changed or damaged is a [*FormatError],
// or a [*tokenizer.RangeError] if the damage shows in an id.
func (f *File) Verify(ctx context.Context) error { return f.VerifyPaced(ctx, nil) }

// VerifyPaced is Verify with pauses for other work on the same processors: after some
// documents, about a megabyte, it calls pause, unless that is nil, with the time that
// they took.
func (f *File) VerifyPaced(ctx context.Context, pause func(worked time.Duration)) error {
	began, read := time.Now(), 0
	sum := digest.New()
	hashed := io.TeeReader(io.NewSectionReader(f.file, headerSize, f.header.Tokens*tokenSize+f.header.Documents*entrySize), sum)
	learned := int64(0)
	var raw []byte
	for i := range f.Documents() {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw = append(raw[:0], make([]byte, f.Tokens(i)*tokenSize)...)
		if _, err := io.ReadFull(hashed, raw); err != nil {
			return fmt.Errorf("chat file %s: document %d: %w", f.path, i, err)
		}
		n, err := f.verifyDocument(i, raw)
		if err != nil {
			return err
		}
		learned += n
		if read += len(raw); pause != nil && read >= 1<<20 {
			pause(time.Since(began))
			began, read = time.Now(), 0
		}
	}
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return fmt.Errorf("chat file %s: %w", f.path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.header.SHA256 || learned != f.header.Learned {
		return &FormatError{f.path, fmt.Sprintf("the documents have the hash %s and %d tokens to learn, the header says %s and %d: the file was changed or damaged",
			got, learned, f.header.SHA256, f.header.Learned)}
	}
	return nil
}

// verifyDocument compares a document with the vocabulary and its entry in the index, and
// counts the tokens that are learned.
func (f *File) verifyDocument(i int, raw []byte) (learned int64, err error) {
	first := 0
	for at := 0; at*tokenSize < len(raw); at++ {
		word := binary.LittleEndian.Uint32(raw[at*tokenSize:])
		if id := word &^ lossBit; int(id) >= f.header.Tokenizer.VocabSize {
			return 0, fmt.Errorf("chat file %s: document %d, token %d: %w", f.path, i, at,
				&tokenizer.RangeError{ID: int64(id), VocabSize: f.header.Tokenizer.VocabSize})
		}
		if word&lossBit != 0 {
			learned++
			if first == 0 {
				first = at
			}
		}
	}
	if first != int(f.firsts[i]) {
		return 0, &FormatError{f.path, fmt.Sprintf("document %d: the first token to learn is %d, the index says %d: the file was changed or damaged", i, first, f.firsts[i])}
	}
	return learned, nil
}
