package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/fileheader"
	"github.com/cage-qat/cage/internal/vfs"
)

// Writer writes a chat file. Nothing appears under the file's name before [Writer.Commit],
// and then all of it does. It keeps 8 bytes per document in memory.
type Writer struct {
	header  Header
	path    vfs.Path
	file    *fileheader.Writer
	index   []byte
	scratch []byte
}

// NewWriter begins the chat file at path.
func NewWriter(path vfs.Path, origin Origin) (*Writer, error) {
	if origin.Tokenizer.VocabSize < 1 {
		return nil, fmt.Errorf("chat file %s: vocabulary of %d tokens", path, origin.Tokenizer.VocabSize)
	}
	file, err := fileheader.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{header: Header{Origin: origin}, path: path, file: file}, nil
}

// Write appends a document: ids, and for each whether it carries loss. At least one token
// after the first must. If an id is outside the vocabulary, the error is a
// [*tokenizer.RangeError] and nothing is written.
func (w *Writer) Write(ids []int32, loss []bool) error {
	first := 0
	if len(ids) == len(loss) && len(ids) > 1 {
		first = 1 + slices.Index(loss[1:], true)
	}
	switch {
	case len(ids) != len(loss):
		return fmt.Errorf("chat file %s: a document of %d tokens with %d marks", w.path, len(ids), len(loss))
	case first == 0:
		return fmt.Errorf("chat file %s: a document of %d tokens without one to learn", w.path, len(ids))
	case len(ids) > math.MaxInt32 || w.header.Documents == math.MaxUint32:
		return fmt.Errorf("chat file %s: too many documents, or too long ones", w.path)
	}
	buf, learned := w.scratch[:0], int64(0)
	for i, id := range ids {
		if id < 0 || int(id) >= w.header.Tokenizer.VocabSize {
			return fmt.Errorf("chat file %s: %w", w.path, &tokenizer.RangeError{ID: int64(id), VocabSize: w.header.Tokenizer.VocabSize})
		}
		word := uint32(id)
		if loss[i] {
			word |= lossBit
			learned++
		}
		buf = binary.LittleEndian.AppendUint32(buf, word)
	}
	w.scratch = buf
	if _, err := w.file.Write(buf); err != nil {
		return fmt.Errorf("chat file %s: %w", w.path, err)
	}
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(len(ids)))
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(first))
	w.header.Documents++
	w.header.Tokens += int64(len(ids))
	w.header.Learned += learned
	w.header.Longest = max(w.header.Longest, int64(len(ids)))
	return nil
}

// Commit writes the rest, moves the file to its path, and returns when it is on disk.
func (w *Writer) Commit() (Header, error) {
	if err := w.commit(); err != nil {
		return Header{}, errors.Join(fmt.Errorf("chat file %s: %w", w.path, err), w.Abort())
	}
	return w.header, nil
}

func (w *Writer) commit() error {
	if _, err := w.file.Write(w.index); err != nil {
		return err
	}
	w.header.SHA256 = w.file.SHA256()
	block, err := w.header.encode()
	if err != nil {
		return err
	}
	if err := w.file.Finish(block); err != nil {
		return err
	}
	return w.file.CommitAs(w.path)
}

// Abort removes what was written. After Commit it does nothing, so it can be deferred.
func (w *Writer) Abort() error { return w.file.Abort() }
